"""Events of the config topic, one class for each kind of record. Source: `KafkaConfigBackingStore`.

An event says in the past tense what happened. It is complete when it is made, and carries the
offset of its record. `headgate.topics.config_records` turns bytes into events;
`headgate.topics.config_reducer` turns events into state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headgate.ids import TargetState

Config: TypeAlias = Mapping[str, str | None]
"""Configuration of a connector or task as it stands in the log: references to config providers are
not resolved."""


@dataclass(frozen=True, slots=True)
class ConnectorConfigured:
    """A connector was created or reconfigured. Key: ``connector-<connector>``."""

    offset: int
    connector: str
    config: Config
    changed: int | None = None
    """Config offset of the record that this one repeats; None if it repeats none. Only Headgate
    writes the field; Java's readers ignore it."""


@dataclass(frozen=True, slots=True)
class ConnectorRemoved:
    """A connector was deleted. Key: ``connector-<connector>``, no value."""

    offset: int
    connector: str


@dataclass(frozen=True, slots=True)
class TaskConfigured:
    """The config of one task was written. It is in force once its commit record is read. Key:
    ``task-<connector>-<task>``."""

    offset: int
    connector: str
    task: int
    config: Config


@dataclass(frozen=True, slots=True)
class TasksCommitted:
    """The set of task configs of one connector was committed. Key: ``commit-<connector>``."""

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
    """The target state was removed; a connector without one is STARTED. Key:
    ``target-state-<connector>``, no value."""

    offset: int
    connector: str


@dataclass(frozen=True, slots=True)
class TaskCountRecorded:
    """The leader recorded how many producers of the connector may be alive from this record on;
    older producers are fenced.

    Key: ``tasks-fencing-<connector>``. Source: KIP-618 (whose text calls it ``tasks-count-``).
    """

    offset: int
    connector: str
    task_count: int


@dataclass(frozen=True, slots=True)
class SessionKeyChanged:
    """The leader distributed a new session key, which signs requests between workers. Key:
    ``session-key``. Source: KIP-507."""

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
    """A user asked for a restart with flags. Key: ``restart-connector-<connector>``. It is executed
    only by workers that are running when it is written, never on replay. Source: KIP-745."""

    offset: int
    connector: str
    include_tasks: bool
    only_failed: bool


@dataclass(frozen=True, slots=True)
class LoggerLevelChanged:
    """A user set a log level for the whole cluster. Key: ``logger-cluster-<logger>``. It is applied
    only by workers that are running when it is written, never on replay. Source: KIP-976."""

    offset: int
    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class RecordRejected:
    """A record that no reader can use. It affects no record around it.

    `advances` is False where Java's reader does not count the record in its config offset, because
    its value is not JSON. A reader's own position must still move past the record.
    """

    offset: int
    key: str
    reason: str
    advances: bool = True

    @property
    def partition(self) -> int:
        """Return 0: the config topic has one partition."""
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
