"""Calls: what a user, another worker or `headgate up` may ask of a worker, and their results.

Any worker takes any call, and forwards it to the worker that can execute it. Other modules import
these names from `headgate.herder.messages`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from headgate.herder.views import ConnectorCall, LoopBusy
from headgate.ids import TargetState, TaskId
from headgate.task.messages import TaskKind
from headgate.topics.config_events import Config

OffsetChange: TypeAlias = tuple[object, object]
"""(partition, offset) as a user gave them, as plain data. An offset of None removes the partition's
offset."""


@dataclass(frozen=True, slots=True)
class CreateConnector:
    """Create a connector. ALREADY_EXISTS: there is one of the name. `initial_state` None:
    STARTED."""

    name: str
    config: Config
    initial_state: TargetState | None = None


@dataclass(frozen=True, slots=True)
class PutConnectorConfig:
    """Create the connector or replace its config. An equal config changes nothing and restarts
    nothing."""

    name: str
    config: Config
    etag: int | None = None
    """`ConnectorEntry.etag` that the connector must have when the write is decided. Otherwise the
    answer is PRECONDITION, and nothing is written. None: no condition. It means the same in other
    calls."""


@dataclass(frozen=True, slots=True)
class PatchConnectorConfig:
    """Change some keys of a connector's config. Source: KIP-477.

    The leader merges the changes with the config in force at the time of the write, so no
    concurrent change is lost. It validates the merged config.
    """

    name: str
    changes: Mapping[str, str | None]
    """New values by key. None removes the key."""
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    name: str
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Pause, resume or stop a connector. Any worker executes a pause or resume without an etag. The
    leader executes the others."""

    name: str
    target_state: TargetState
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class RestartConnector:
    """Restart a connector. Source: KIP-745.

    Without a flag, the owner stops and starts the connector, and answers when that is done. With a
    flag, all workers restart the connector and tasks that the flags select. The answer is then the
    plan, as a status body.
    """

    name: str
    include_tasks: bool = False
    only_failed: bool = False
    """Restart only the connector and tasks that are FAILED."""

    @property
    def by_record(self) -> bool:
        """Whether a record in the config topic tells all workers of the restart."""
        return self.include_tasks or self.only_failed


@dataclass(frozen=True, slots=True)
class RestartTask:
    task: TaskId


@dataclass(frozen=True, slots=True)
class PutTaskConfigs:
    """Submit the task configs that a connector generated. Its owner sends the call to the
    leader."""

    connector: str
    configs: tuple[Config, ...]
    made_of: str | None = None
    """`config_digest` of the connector config that the task configs were generated from. The leader
    refuses them if another config is in force by then. None, as from a Java worker: no check."""
    instead_of: int | None = None
    """Offset of a commit record that these task configs replace even if they are equal to those in
    force, because values that they refer to have changed. Ignored if another commit is in force by
    then."""


def config_digest(config: Config) -> str:
    """Return a digest of a config, whatever the order of its keys. It is short enough for a header
    of the request, whose body has Java's format."""
    text = json.dumps(dict(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class FenceConnector:
    """Fence producers of a connector's older task generations. The worker of a source task sends
    the call to the leader. Source: KIP-618."""

    connector: str


@dataclass(frozen=True, slots=True)
class DescribeWorker:
    """Describe the worker that is asked. It answers at once, with a `WorkerView` as plain data."""

    seen: str | None = None
    """`WorkerView.mark` of the last answer, to be told only what has changed since. Empty: tell
    everything, with a mark. None: tell everything, without a mark."""
    loop: LoopBusy | None = None
    """`WorkerView.loop`, which the herder's host fills in."""
    connector_calls: tuple[ConnectorCall, ...] = ()
    """`WorkerView.connector_calls`, which the herder's host fills in."""


# -- reads: Connect's JSON bodies as plain data, from what the worker has read --


@dataclass(frozen=True, slots=True)
class ListConnectors:
    """Names of all connectors. With `expand`, a map by name with "status" and "info" as asked for.
    Unknown values of `expand` are ignored."""

    expand: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConnector:
    """ConnectorInfo of a connector: ``{"name", "config", "tasks", "type"}``."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeTasks:
    """Task configs of a connector: ``[{"id": {"connector", "task"}, "config"}]``."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeStatus:
    name: str


@dataclass(frozen=True, slots=True)
class DescribeTaskStatus:
    task: TaskId


@dataclass(frozen=True, slots=True)
class DescribeTopics:
    """Topics that a connector has used: ``{name: {"topics": [...]}}``. An unknown connector has
    none. Source: KIP-558."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowConnector:
    """Row of a connector (see `headgate.herder.rows`): ``{"row", "config_offset"}``."""

    name: str
    parts: tuple[str, ...] = ()
    """Further parts of the row: "config", "tasks" (their configs), "topics", "outdated"."""
    min_config_offset: int = 0
    """Config offset that the worker must have reached before it answers."""
    to_end: bool = False
    """Answer only after the config topic and the status topic were read to their ends. The answer
    then shows whatever any worker has acknowledged before."""


@dataclass(frozen=True, slots=True)
class ShowConnectors:
    """Rows of connectors, sorted by name: ``{"rows", "more", "config_offset"}``."""

    names: tuple[str, ...] = ()
    """Show only these connectors; empty: all. Unknown names are left out."""
    prefix: str = ""
    """Show only connectors whose names begin with it."""
    states: tuple[str, ...] = ()
    """Show only connectors that have one of these states, or a task in one; empty: all."""
    after: str = ""
    """Show only connectors whose names sort after it."""
    limit: int | None = None
    """Most rows in the answer. "more" says whether there are others."""
    parts: tuple[str, ...] = ()
    """As in `ShowConnector`."""
    min_config_offset: int = 0
    """As in `ShowConnector`."""


@dataclass(frozen=True, slots=True)
class ForeseeMoves:
    """Predict where connectors and tasks would move if connectors were changed. Nothing is changed.

    The leader answers ``{"moves": [{"connector", "task", "from", "to"}], "count"}``, with the URLs
    of workers. "task" is None for the connector itself.
    """

    task_counts: Mapping[str, int | None]
    """Number of tasks that each connector would have; None: it would be deleted. Others stay as
    they are."""


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """Describe the members of the group, from the leader's last round.

    The leader answers ``{"leader", "generation", "members": [{"url", "connectors", "tasks"}]}``,
    where "connectors" and "tasks" are counts.
    """


# -- offsets. Source: KIP-875 --


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """Offsets of a connector: ``{"offsets": [{"partition", "offset"}]}``."""

    name: str


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Alter offsets of a STOPPED connector, as leader. Partitions that are not named keep their
    offsets."""

    name: str
    offsets: tuple[OffsetChange, ...]
    etag: int | None = None
    dry_run: bool = False
    """Tell what would change, and change nothing. Any worker executes it."""


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """Remove all offsets of a STOPPED connector, as leader."""

    name: str
    etag: int | None = None
    dry_run: bool = False
    """As in `AlterOffsets`."""


@dataclass(frozen=True, slots=True)
class ReadDeletedOffsets:
    """Offsets that a deleted connector has left, in the shape of `ReadOffsets`.

    NOT_FOUND: there are none. ALREADY_EXISTS: a connector has the name.

    Offsets of a source are those in the workers' offsets topic. Offsets of a sink are those of the
    group ``connect-<name>``. The connector's config, which may have named others, is gone. Source:
    an earlier text of KIP-875.
    """

    name: str
    kind: TaskKind


@dataclass(frozen=True, slots=True)
class ResetDeletedOffsets:
    """Remove the offsets that `ReadDeletedOffsets` tells, as leader."""

    name: str
    kind: TaskKind
    dry_run: bool = False
    """As in `AlterOffsets`."""


# -- others --


@dataclass(frozen=True, slots=True)
class ResetTopics:
    """Forget which topics the connector has used. Any worker executes it. Source: KIP-558."""

    name: str


@dataclass(frozen=True, slots=True)
class SetLoggerLevel:
    """Set the level of a logger on all workers of the cluster. Any worker executes it. Source:
    KIP-976."""

    logger: str
    level: str
    """Level as the user typed it. Each worker interprets it."""


Call: TypeAlias = (
    CreateConnector
    | PutConnectorConfig
    | PatchConnectorConfig
    | DeleteConnector
    | SetTargetState
    | RestartConnector
    | RestartTask
    | PutTaskConfigs
    | FenceConnector
    | DescribeWorker
    | ListConnectors
    | DescribeConnector
    | DescribeTasks
    | DescribeStatus
    | DescribeTaskStatus
    | DescribeTopics
    | ShowConnector
    | ShowConnectors
    | ForeseeMoves
    | DescribeGroup
    | ReadOffsets
    | AlterOffsets
    | ResetOffsets
    | ReadDeletedOffsets
    | ResetDeletedOffsets
    | ResetTopics
    | SetLoggerLevel
)


class ErrorKind(StrEnum):
    """Kinds of failure, with the HTTP status that Connect gives them."""

    BAD_REQUEST = "bad request"  # 400
    FORBIDDEN = "forbidden"  # 403: topic tracking is off, a wrong signature
    NOT_FOUND = "not found"  # 404
    ALREADY_EXISTS = "already exists"  # 409
    CONFLICT = "conflict"  # 409: rebalance, stale configuration, fencing overtaken
    PRECONDITION = "precondition"  # 412: the connector has another etag
    INTERNAL = "internal"  # 500
    TIMEOUT = "timeout"  # 500
    NOT_READY = "not ready"  # 503
    UNREACHABLE = "unreachable"  # 503: no connection to the worker that would do it


@dataclass(frozen=True, slots=True)
class Success:
    value: object = None
    """Plain data: what JSON can carry."""
    config_offset: int | None = field(default=None, compare=False)
    """Config offset from which on a reader sees what the answer tells. None: unknown."""
    etag: int | None = field(default=None, compare=False)
    """Etag of the call's connector in the version that the answer shows or has written; else
    None."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: ErrorKind
    message: str


Result: TypeAlias = Success | Failure
