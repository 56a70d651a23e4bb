"""State of the config topic as a reader holds it after some prefix of the log. Only
`headgate.topics.config_reducer` makes it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from headgate.ids import TargetState, TaskId
from headgate.topics.config_events import Config, RecordRejected, SessionKeyChanged

EMPTY: Final[Mapping[int, Config]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ConnectorEntry:
    """All that the log says about one connector name, also after the connector's deletion.

    `headgate.topics.config_reducer` says what outlives a deletion, and why: a connector created
    again under the same name must fence the producers of its namesake.
    """

    config: Config | None = None
    """Config of the connector. None if it is not configured: it was deleted, or only other records
    of its name were read."""
    target_state: TargetState | None = None
    """Target state as logged. Read it through `ConfigState.target_state`, where absence means
    STARTED."""
    tasks: Mapping[int, Config] = field(default_factory=lambda: EMPTY)
    """Task configs of the last complete commit, and those with higher numbers from earlier commits;
    see `ConfigState.tasks`."""
    task_count: int | None = None
    """Task count in the last commit record, complete or not. None if there was no commit since the
    connector was created."""
    deferred: Mapping[int, Config] = field(default_factory=lambda: EMPTY)
    """Task configs that were read but whose commit record was not."""
    deferred_seen: bool = False
    """Whether a task config was read since the connector was created. A commit without one leaves
    the task generation unchanged, as in Java."""
    inconsistent: bool = False
    """Whether the last commit record found its task configs incomplete."""
    task_generation: int | None = None
    """Number of the last complete commit that this reader saw, from 0. Compare it within one
    process only."""
    commit_offset: int | None = None
    """Offset of the last commit record, complete or not, since the connector was created. It names
    the task generation across processes."""
    applied: Config | None = None
    """The connector config in force at the last complete commit (KAFKA-15575)."""
    fencing_count: int | None = None
    """Task count in the last task count record."""
    fencing_pending: bool = False
    """Whether a commit was read since the last task count record."""
    configured_at: int | None = None
    """Config offset of the last change of `config`. It is the same for every reader: compaction
    keeps the last record of a key, and a record that repeats a config carries the offset of the
    original."""
    target_state_at: int | None = None
    """Config offset of the last record of the target state."""
    restarted_at: int | None = None
    """Config offset of the last restart request with flags (KIP-745). Compaction may remove the
    record."""
    tasks_restarted_at: int | None = None
    """Config offset of the last restart request that included the connector's tasks."""

    @property
    def etag(self) -> int:
        """Config offset of the last change that a user made to the config or the target state."""
        return max(self.configured_at or 0, self.target_state_at or 0)


@dataclass(frozen=True, slots=True)
class ConfigState:
    """The content of the config topic up to `offset`. Immutable: it may be kept and shared between
    threads."""

    offset: int = -1
    """Config offset: offset of the last record read, plus 1; -1 before any record. It is not the
    consumer's position."""
    entries: Mapping[str, ConnectorEntry] = field(default_factory=lambda: MappingProxyType({}))
    """Entries by connector name, deleted connectors included. `connector_names` lists the
    configured ones."""
    session_key: SessionKeyChanged | None = None
    rejected: tuple[RecordRejected, ...] = ()
    """The last `REJECTED_KEPT` records that no reader could use."""
    rejected_count: int = 0
    assignment_offset: int = -1
    """Offset of the last record that changes what is to be assigned, plus 1: a connector was
    created or deleted, or a configured connector had a commit. Groups of Headgate workers compare
    this offset, so that other records cause no rebalance."""

    def entry(self, connector: str) -> ConnectorEntry | None:
        """Return the entry of a connector if it is configured, else None."""
        found = self.entries.get(connector)
        return found if found is not None and found.config is not None else None

    def connector_names(self) -> Iterator[str]:
        """Return the names of the configured connectors, inconsistent ones included, in order of
        first appearance."""
        return (name for name, entry in self.entries.items() if entry.config is not None)

    def target_state(self, connector: str) -> TargetState:
        """Return the target state that the user asked for; STARTED if there is no record of one."""
        found = self.entries.get(connector)
        return (found.target_state if found else None) or TargetState.STARTED

    def tasks(self, connector: str) -> tuple[TaskId, ...]:
        """Return the tasks to be assigned: none while the connector is inconsistent or has no
        commit."""
        return tuple(TaskId(connector, n) for n in range(self.count_tasks(connector)))

    def count_tasks(self, connector: str) -> int:
        """Return the number of tasks in `tasks(connector)`."""
        entry = self.entries.get(connector)
        if entry is None or entry.config is None or entry.inconsistent:
            return 0
        return entry.task_count or 0

    def task_config(self, task: TaskId) -> Config | None:
        """Return the committed config of a task; None if the task is not one of `tasks`."""
        entry = self.entry(task.connector)
        if entry is None or entry.inconsistent or not 0 <= task.task < (entry.task_count or 0):
            return None
        return entry.tasks.get(task.task)
