"""Which producers must be fenced before the source tasks of a connector may start. Source: KIP-618;
`DistributedHerder.doFenceZombieSourceTasks`."""

from dataclasses import dataclass
from typing import TypeAlias

from headgate.topics.config_state import ConfigState


@dataclass(frozen=True, slots=True)
class NothingToFence:
    """The tasks may start at once: no commit was read since the last task count record. Where one
    task follows one task, the new producer fences the old one when it is initialised."""

    reason: str


@dataclass(frozen=True, slots=True)
class RecordTaskCount:
    """A task count record must be written; no producer needs to be fenced before it."""

    connector: str
    task_count: int
    task_generation: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class FenceTasks:
    """These producers must be fenced; then, if the task generation is still `task_generation`, a
    task count record must be written. `transactional_ids` may be empty: the fencing round is then
    needed but fences nobody."""

    connector: str
    transactional_ids: tuple[str, ...]
    task_count: int
    task_generation: int | None
    reason: str


FencingRequirement: TypeAlias = NothingToFence | RecordTaskCount | FenceTasks


def transactional_id(group: str, connector: str, task: int) -> str:
    """Return the transactional id of a source task's producer; `group` is the workers' group id."""
    return f"{group}-{connector}-{task}"


def recorded_producers(state: ConfigState, connector: str, group: str) -> tuple[str, ...]:
    """Return the transactional ids of the producers that the last task count record covers, also
    after the connector's deletion."""
    entry = state.entries.get(connector)
    count = entry.fencing_count if entry is not None else None
    return tuple(transactional_id(group, connector, task) for task in range(count or 0))


def is_fenced_by_starting(alive: int | None, count: int) -> bool:
    """Return whether `count` tasks may start without a fencing round.

    They may if no producers were ever recorded (`alive` is None), or if one task follows one task:
    the new producer then fences the old one itself. After a count of 0 Connect runs a round, which
    fences nobody.
    """
    return alive is None or (alive == 1 and count == 1)


def fencing_requirement(state: ConfigState, connector: str, group: str) -> FencingRequirement:
    """Return what must be done before source tasks of `connector` may start, and why.

    The `task_generation` in the result is local to this reader: after the round, compare it with
    the state of the same reader.
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
    """Return whether `connector` has tasks and a task count record follows the last commit. Then no
    older producer can write, except that where one task follows one task the old producer can until
    the new one is initialised."""
    entry = state.entry(connector)
    return entry is not None and not entry.fencing_pending and bool(state.tasks(connector))
