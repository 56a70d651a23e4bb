"""What the config topic says, one class for each kind of record. Source: `KafkaConfigBackingStore`.

An event is past tense, complete when made, and carries the offset of its record. Bytes become
events in `headgate.topics.config_records`; events become state in `headgate.topics.config_reducer`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headgate.ids import TargetState

Config: TypeAlias = Mapping[str, str | None]
"""Configuration of a connector or task as logged: raw, config provider references unresolved."""


@dataclass(frozen=True, slots=True)
class ConnectorConfigured:
    """A connector was created or reconfigured. Key: ``connector-<connector>``."""

    offset: int
    connector: str
    config: Config
    changed: int | None = None
    """Config offset of the record that this one repeats; None: it repeats none. Only Headgate
    writes it; Java's readers pass over it."""


@dataclass(frozen=True, slots=True)
class ConnectorRemoved:
    """A connector was deleted. Key: ``connector-<connector>``, no value."""

    offset: int
    connector: str


@dataclass(frozen=True, slots=True)
class TaskConfigured:
    """One task's configuration, not in force before its commit. Key:
    ``task-<connector>-<task>``."""

    offset: int
    connector: str
    task: int
    config: Config


@dataclass(frozen=True, slots=True)
class TasksCommitted:
    """The task configs of one connector are complete. Key: ``commit-<connector>``."""

    offset: int
    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class TargetStateChanged:
    """The user asked for another target state. Key: ``target-state-<connector>``. Source: KIP-52,
    KIP-875."""

    offset: int
    connector: str
    target_state: TargetState


@dataclass(frozen=True, slots=True)
class TargetStateRemoved:
    """The target state is forgotten: absent means STARTED. Key: ``target-state-<connector>``, no
    value."""

    offset: int
    connector: str


@dataclass(frozen=True, slots=True)
class TaskCountRecorded:
    """How many producers of the connector may be alive from here on; older ones are fenced.

    Key: ``tasks-fencing-<connector>``. Source: KIP-618 (whose text calls it ``tasks-count-``).
    """

    offset: int
    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class SessionKeyChanged:
    """The key that signs calls between workers. Key: ``session-key``. Source: KIP-507."""

    offset: int
    key: bytes
    algorithm: str
    creation_timestamp_ms: int

    def __repr__(self) -> str:
        return (
            f"SessionKeyChanged(offset={self.offset}, key=<{len(self.key)} bytes>, "
            f"algorithm={self.algorithm!r}, creation_timestamp_ms={self.creation_timestamp_ms})"
        )


@dataclass(frozen=True, slots=True)
class RestartRequested:
    """A restart with flags. Key: ``restart-connector-<connector>``. Never replayed. Source:
    KIP-745."""

    offset: int
    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True)
class LoggerLevelChanged:
    """A log level for the whole cluster. Key: ``logger-cluster-<logger>``. Never replayed. Source:
    KIP-976."""

    offset: int
    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class RecordRejected:
    """A record that says nothing a reader can use; it costs itself alone.

    `advances` is False where Java's reader does not count the record into its config offset: the
    value was not JSON. A reader's own position must still move past it.
    """

    offset: int
    key: str
    reason: str
    advances: bool = True

    @property
    def partition(self) -> int:
        """The config topic has but one."""
        return 0


ConfigEvent: TypeAlias = (
    ConnectorConfigured
    | ConnectorRemoved
    | TaskConfigured
    | TasksCommitted
    | TargetStateChanged
    | TargetStateRemoved
    | TaskCountRecorded
    | SessionKeyChanged
    | RestartRequested
    | LoggerLevelChanged
    | RecordRejected
)
