"""Calls: what a user, another worker or `headgate up` may ask of a worker, and how it is answered.

A call is asked of any worker and brought to the one that can do it. Part of
`headgate.herder.messages`, from where the others import them too.
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
"""Partition and offset as a user gave them: JSON as plain data. An offset of None forgets."""


@dataclass(frozen=True, slots=True)
class CreateConnector:
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
    """`ConnectorEntry.etag` that the connector must still have when the write is decided; else the
    answer is PRECONDITION, and nothing is written. None: whatever it has. So in other calls."""


@dataclass(frozen=True, slots=True)
class PatchConnectorConfig:
    """Change some keys of a connector's config. The leader merges on the config that is in force
    when the write has its turn, so that no concurrent change is lost, and validates the whole.
    Source: KIP-477."""

    name: str
    changes: Mapping[str, str | None]
    """None removes the key."""
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    name: str
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Pause and resume are taken by any worker; stop, and what has an etag, by the leader."""

    name: str
    target_state: TargetState
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class RestartConnector:
    """Without a flag the owner stops and starts the connector and answers when that is done. With
    one, all workers restart what the flags select; the answer is the plan, as a status body.
    Source: KIP-745."""

    name: str
    include_tasks: bool = False
    only_failed: bool = False
    """Only what has the status FAILED."""

    @property
    def by_record(self) -> bool:
        return self.include_tasks or self.only_failed


@dataclass(frozen=True, slots=True)
class RestartTask:
    task: TaskId


@dataclass(frozen=True, slots=True)
class PutTaskConfigs:
    """Owner of a connector to the leader: the task configs it generated."""

    connector: str
    configs: tuple[Config, ...]
    made_of: str | None = None
    """`config_digest` of the connector config that they were generated from. The leader refuses
    them when another one is in force by now; None (a Java worker) is not checked."""
    instead_of: int | None = None
    """Config offset of a commit that these are to follow even if nothing in the log has changed:
    what its configs refer to has. Not written if another commit is in force by now."""


def config_digest(config: Config) -> str:
    """Tells two configs apart, whatever the order of their keys. Short enough for a header of the
    request whose body is Java's."""
    text = json.dumps(dict(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class FenceConnector:
    """Worker of a source task to the leader: shut out producers of older task generations. Source:
    KIP-618."""

    connector: str


@dataclass(frozen=True, slots=True)
class DescribeWorker:
    """Answered at once by the worker that is asked, with `WorkerView` as JSON-able data."""

    seen: str | None = None
    """`WorkerView.mark` of its last answer: to be told only what has changed since; empty: all, and
    a mark. None: all."""
    loop: LoopBusy | None = None
    """`WorkerView.loop`. Whoever serves the herder that is asked puts it in."""
    connector_calls: tuple[ConnectorCall, ...] = ()
    """Likewise."""


# -- reads: Connect's JSON bodies as plain data, from what this worker has read --


@dataclass(frozen=True, slots=True)
class ListConnectors:
    """Names; with `expand` a map by name with "status" and "info" as asked. Unknown ones are
    ignored."""

    expand: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeConnector:
    """ConnectorInfo: name, config, tasks, type."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeTasks:
    """``[{"id": {"connector", "task"}, "config"}]``"""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeStatus:
    name: str


@dataclass(frozen=True, slots=True)
class DescribeTaskStatus:
    task: TaskId


@dataclass(frozen=True, slots=True)
class DescribeTopics:
    """``{name: {"topics": [...]}}``, also of a connector that nobody knows. Source: KIP-558."""

    name: str


@dataclass(frozen=True, slots=True)
class ShowConnector:
    """A connector as a row, see `headgate.herder.rows`, and the config offset: ``{"row",
    "config_offset"}``."""

    name: str
    parts: tuple[str, ...] = ()
    """More than the statuses: "config", "tasks" (their configs), "topics", "outdated"."""
    min_config_offset: int = 0
    """Answered once the worker has read the config topic so far."""
    to_end: bool = False
    """Answered once the worker has read the config topic and the status topic to their ends: what
    was acknowledged before is seen, whoever was asked for it."""


@dataclass(frozen=True, slots=True)
class ShowConnectors:
    """Rows in order of their names: ``{"rows", "more", "config_offset"}``."""

    names: tuple[str, ...] = ()
    """Only these; empty: all. Names that nobody knows are left out."""
    prefix: str = ""
    states: tuple[str, ...] = ()
    """Only where the connector or one of its tasks has one of them; empty: all."""
    after: str = ""
    """Only names behind this one."""
    limit: int | None = None
    """Most rows in the answer; "more" tells whether there would have been others."""
    parts: tuple[str, ...] = ()
    """As in `ShowConnector`."""
    min_config_offset: int = 0
    """As in `ShowConnector`."""


@dataclass(frozen=True, slots=True)
class ForeseeMoves:
    """Where work would move if connectors were changed so: ``{"moves": [{"connector", "task",
    "from", "to"}], "count"}``, by urls of workers; "task" is None for the connector itself.
    Answered by the leader. Nothing is changed."""

    task_counts: Mapping[str, int | None]
    """How many tasks each would have; None: it would be deleted. Others stay as they are."""


@dataclass(frozen=True, slots=True)
class DescribeGroup:
    """The members of the group, by the leader's last round: ``{"leader", "generation", "members":
    [{"url", "connectors", "tasks"}]}``, with counts. Answered by the leader."""


# -- offsets. Source: KIP-875 --


@dataclass(frozen=True, slots=True)
class ReadOffsets:
    """``{"offsets": [{"partition", "offset"}]}``"""

    name: str


@dataclass(frozen=True, slots=True)
class AlterOffsets:
    """Alters offsets of a STOPPED connector, by the leader. Partitions not named keep theirs."""

    name: str
    offsets: tuple[OffsetChange, ...]
    etag: int | None = None
    dry_run: bool = False
    """Tell what would be changed, and change nothing. Any worker."""


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """Forget all offsets of a STOPPED connector; the leader."""

    name: str
    etag: int | None = None
    dry_run: bool = False
    """As in `AlterOffsets`."""


@dataclass(frozen=True, slots=True)
class ReadDeletedOffsets:
    """Offsets that a deleted connector has left, as `ReadOffsets` tells them. NOT_FOUND: there are
    none; ALREADY_EXISTS: a connector has the name.

    Those of a source in the workers' topic, those of a sink in the group ``connect-<name>``: what
    its config said of others is gone. Source: an earlier text of KIP-875.
    """

    name: str
    kind: TaskKind


@dataclass(frozen=True, slots=True)
class ResetDeletedOffsets:
    """Forget the offsets that `ReadDeletedOffsets` tells; the leader."""

    name: str
    kind: TaskKind
    dry_run: bool = False
    """As in `AlterOffsets`."""


# -- others --


@dataclass(frozen=True, slots=True)
class ResetTopics:
    """Forget which topics the connector has used. Any worker."""

    name: str


@dataclass(frozen=True, slots=True)
class SetLoggerLevel:
    """On all workers of the cluster; any worker. Source: KIP-976."""

    logger: str
    level: str
    """As typed; the logger's owner understands it."""


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
    """Kinds of refusal, with the HTTP status that Connect gives them."""

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
    """Who has read the config topic so far sees what the answer tells. None: not known."""
    etag: int | None = field(default=None, compare=False)
    """Etag of the connector that the call is about, as the answer tells of it."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: ErrorKind
    message: str


Result: TypeAlias = Success | Failure
