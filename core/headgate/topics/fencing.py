"""Which producers must be shut out before the source tasks of a connector may start. Source:
KIP-618; `DistributedHerder.doFenceZombieSourceTasks`."""

from dataclasses import dataclass
from typing import TypeAlias

from headgate.topics.config_state import ConfigState


@dataclass(frozen=True, slots=True)
class NothingToFence:
    """Tasks may start at once: no commit was read since the last task count record. One task after
    one shuts out the older one itself, when it initialises its producer."""

    reason: str


@dataclass(frozen=True, slots=True)
class RecordTaskCount:
    """Write a task count record; no producer needs to be shut out for it."""

    connector: str
    task_count: int
    task_generation: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class FenceTasks:
    """Shut out these producers, check that the task generation is still this one, then write a
    task count record. `transactional_ids` may be empty: the round then costs nothing, but is
    one."""

    connector: str
    transactional_ids: tuple[str, ...]
    task_count: int
    task_generation: int | None
    reason: str


FencingRequirement: TypeAlias = NothingToFence | RecordTaskCount | FenceTasks


def transactional_id(group: str, connector: str, task: int) -> str:
    """Transactional id of a source task's producer; `group` is the workers' group."""
    return f"{group}-{connector}-{task}"


def recorded_producers(state: ConfigState, connector: str, group: str) -> tuple[str, ...]:
    """Transactional ids of the producers that the last task count record tells of, also after the
    connector's deletion."""
    entry = state.entries.get(connector)
    count = entry.fencing_count if entry is not None else None
    return tuple(transactional_id(group, connector, task) for task in range(count or 0))


def is_fenced_by_starting(alive: int | None, count: int) -> bool:
    """Whether no round is needed for `count` tasks to start, where `alive` producers were recorded
    last (None: never any): there are none, or there is one, which the new one shuts out itself.
    After a count of 0 Connect has a round, which shuts out nobody."""
    return alive is None or (alive == 1 and count == 1)


def fencing_requirement(state: ConfigState, connector: str, group: str) -> FencingRequirement:
    """What is to be done before source tasks of `connector` may start, and why.

    `task_generation` in the answer is of this reader: compare it after the round with the state of
    the same reader.
    """
    entry = state.entries.get(connector)
    if entry is None or entry.task_count is None:
        return NothingToFence("the connector has no task configs")
    count, alive = max(entry.task_count, 0), entry.fencing_count
    generation = entry.task_generation
    if not entry.fencing_pending:
        return NothingToFence(
            "a task count record follows the last commit: older producers are shut out"
        )
    if is_fenced_by_starting(alive, count):
        reason = (
            "no producers were recorded: the first transactional start"
            if alive is None
            else "one task after one task: the new producer shuts out the old one itself"
        )
        return RecordTaskCount(connector, count, generation, reason)
    ids = recorded_producers(state, connector, group)
    return FenceTasks(
        connector, ids, count, generation, f"{alive} producers were recorded, {count} tasks follow"
    )


def may_start_source_tasks(state: ConfigState, connector: str) -> bool:
    """Whether `connector` has tasks, and a task count record follows the last commit: nobody older
    can write, once a task after one task has initialised its producer."""
    entry = state.entry(connector)
    return entry is not None and not entry.fencing_pending and bool(state.tasks(connector))
