"""State of the config topic: what a reader holds after some prefix of it. Made by
`headgate.topics.config_reducer` alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from headgate.ids import TargetState, TaskId
from headgate.topics.config_events import Config, RecordRejected, SessionKeyChanged

EMPTY: Final[Mapping[int, Config]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ConnectorEntry:
    """All that the log says of one connector name, also after its deletion.

    `headgate.topics.config_reducer` tells what outlives a deletion, and why: a connector made again
    under the same name must fence the producers of its namesake.
    """

    config: Config | None = None
    """None: not configured (deleted, or only other records of it were seen)."""
    target_state: TargetState | None = None
    """As logged; read it through `ConfigState.target_state`, where absence means STARTED."""
    tasks: Mapping[int, Config] = field(default_factory=lambda: EMPTY)
    """Task configs of the last complete commit, and of higher numbers from before it; see
    `ConfigState.tasks`."""
    task_count: int | None = None
    """N of the last commit record, complete or not. None: no commit since the connector
    appeared."""
    deferred: Mapping[int, Config] = field(default_factory=lambda: EMPTY)
    """Task configs read, not committed yet."""
    deferred_seen: bool = False
    """A task config was read since the connector appeared. A commit without any leaves the task
    generation as it is, as in Java."""
    inconsistent: bool = False
    """The last commit found its task configs incomplete."""
    task_generation: int | None = None
    """Complete commits seen, from 0. Local to a reader: compare within one process only."""
    commit_offset: int | None = None
    """Offset of the last commit record since the connector appeared, complete or not: names the
    task generation across processes."""
    applied: Config | None = None
    """The connector config in force at the last complete commit (KAFKA-15575)."""
    fencing_count: int | None = None
    """N of the last task count record."""
    fencing_pending: bool = False
    """A commit was read since the last task count record."""
    configured_at: int | None = None
    """Config offset of the last change of `config`: the same for every reader, since compaction
    keeps the last record, and one that repeats a config says which one."""
    target_state_at: int | None = None
    """Config offset of the last record of the target state."""
    restarted_at: int | None = None
    """Config offset of the last order to restart it, with flags. Compaction may take it away."""
    tasks_restarted_at: int | None = None
    """Likewise, where its tasks were to be restarted, too."""

    @property
    def etag(self) -> int:
        """Config offset of the last change that a user made: of the config or the target state."""
        return max(self.configured_at or 0, self.target_state_at or 0)


@dataclass(frozen=True, slots=True)
class ConfigState:
    """What the config topic says up to `offset`. Immutable: keep it, hand it to other threads."""

    offset: int = -1
    """Config offset: that of the last record read, plus 1; -1 before any. Not the consumer's
    position."""
    entries: Mapping[str, ConnectorEntry] = field(default_factory=lambda: MappingProxyType({}))
    """Entries by name, deleted connectors included; `connector_names` has the configured ones."""
    session_key: SessionKeyChanged | None = None
    rejected: tuple[RecordRejected, ...] = ()
    """The last `REJECTED_KEPT` records that could not be used."""
    rejected_count: int = 0
    assignment_offset: int = -1
    """Offset + 1 of the last record that changes what is to be assigned: a connector that appeared
    or went, or a commit of a configured one. Groups of our own compare this one, so that other
    records cost no round."""

    def entry(self, connector: str) -> ConnectorEntry | None:
        """The entry of a *configured* connector, else None."""
        found = self.entries.get(connector)
        return found if found is not None and found.config is not None else None

    def connector_names(self) -> Iterator[str]:
        """Configured connectors, inconsistent ones included, in order of first appearance."""
        return (name for name, entry in self.entries.items() if entry.config is not None)

    def target_state(self, connector: str) -> TargetState:
        """What the user asked for; a connector without a record is STARTED."""
        found = self.entries.get(connector)
        return (found.target_state if found else None) or TargetState.STARTED

    def tasks(self, connector: str) -> tuple[TaskId, ...]:
        """The tasks to be assigned: none while the connector is inconsistent or has no commit."""
        return tuple(TaskId(connector, n) for n in range(self.count_tasks(connector)))

    def count_tasks(self, connector: str) -> int:
        """How many `tasks` has."""
        entry = self.entries.get(connector)
        if entry is None or entry.config is None or entry.inconsistent:
            return 0
        return entry.task_count or 0

    def task_config(self, task: TaskId) -> Config | None:
        """Committed config of a task, None if it is not one of `tasks`."""
        entry = self.entry(task.connector)
        if entry is None or entry.inconsistent or not 0 <= task.task < (entry.task_count or 0):
            return None
        return entry.tasks.get(task.task)
