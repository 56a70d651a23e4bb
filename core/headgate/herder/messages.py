"""Commands in, effects out: all that a herder and the world around it say to each other.

Commands are what happened or was asked; effects are what the runtime must do, in list order,
stopping at the first
that fails. An effect that is answered later carries a `token` that its answer brings back; an
answer whose token
is no longer awaited is stale, and normal.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from headgate.events import Config, ConfigEvent
from headgate.ids import State, TargetState, TaskId
from headgate.membership.messages import GroupRequest, GroupResponse
from headgate.task.messages import TaskCommand, TaskReport, TaskSpec

# -- what a user, another worker or `headgate up` may ask: the calls --


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


@dataclass(frozen=True, slots=True)
class DeleteConnector:
    name: str


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Pause and resume are taken by any worker, stop by the leader."""

    name: str
    target_state: TargetState


@dataclass(frozen=True, slots=True)
class RestartConnector:
    name: str


@dataclass(frozen=True, slots=True)
class RestartTask:
    task: TaskId


@dataclass(frozen=True, slots=True)
class PutTaskConfigs:
    """Owner of a connector to the leader: the task configs it generated."""

    connector: str
    configs: tuple[Config, ...]
    made_of: Config | None = None
    """The connector config that they were generated from. The leader refuses them when another one
    is in force by now; None (a Java worker) is not checked."""


@dataclass(frozen=True, slots=True)
class FenceConnector:
    """Worker of a source task to the leader: shut out producers of older task generations. Source:
    KIP-618."""

    connector: str


@dataclass(frozen=True, slots=True)
class DescribeWorker:
    """Answered at once by the worker that is asked, with `WorkerView` as JSON-able data."""


Call: TypeAlias = (
    CreateConnector
    | PutConnectorConfig
    | DeleteConnector
    | SetTargetState
    | RestartConnector
    | RestartTask
    | PutTaskConfigs
    | FenceConnector
    | DescribeWorker
)


class ErrorKind(StrEnum):
    """Kinds of refusal, with the HTTP status that Connect gives them."""

    BAD_REQUEST = "bad request"  # 400
    NOT_FOUND = "not found"  # 404
    ALREADY_EXISTS = "already exists"  # 409
    CONFLICT = "conflict"  # 409: rebalance, stale configuration, fencing overtaken
    INTERNAL = "internal"  # 500
    TIMEOUT = "timeout"  # 500
    NOT_READY = "not ready"  # 503


@dataclass(frozen=True, slots=True)
class Success:
    value: object = None
    """Plain data: what JSON can carry."""


@dataclass(frozen=True, slots=True)
class Failure:
    kind: ErrorKind
    message: str


Result: TypeAlias = Success | Failure


# -- commands --


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Give it no later than `Herder.next_deadline_ms`."""


@dataclass(frozen=True, slots=True)
class ConfigRead:
    """Records of the config topic, decoded, in order."""

    events: tuple[ConfigEvent, ...]


@dataclass(frozen=True, slots=True)
class ConfigEndRead:
    """Answers `ReadConfigToEnd`, after the records were given. `error`: the end could not be
    reached in time."""

    token: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigAppended:
    """Answers `AppendConfig`. `end` is the config offset that a reader has once it has read these
    records."""

    token: int
    end: int


@dataclass(frozen=True, slots=True)
class ConfigAppendFailed:
    token: int
    reason: str
    fenced: bool
    """A later leader has claimed the log."""


@dataclass(frozen=True, slots=True)
class LeadershipClaimed:
    generation: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StatusRead:
    """Records of the status topic, in order; value None is a tombstone."""

    records: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class GroupAnswered:
    response: GroupResponse


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The coordinator could not be reached for a heartbeat interval."""

    reason: str


@dataclass(frozen=True, slots=True)
class Called:
    """A user, or another worker (`hops` > 0 when it passed the call on), asks something. Answered
    once by `Answer`."""

    call_id: str
    call: Call
    hops: int = 0
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PeerAnswered:
    """Answers `CallPeer`."""

    token: int
    result: Result


@dataclass(frozen=True, slots=True)
class ConfigValidated:
    """Answers `ValidateConfig`: error texts as Connect words them, none when valid. `kind` is None
    when unknown."""

    token: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectorStarted:
    """`start()` of the connector instance returned."""

    connector: str
    run: int


@dataclass(frozen=True, slots=True)
class ConnectorStopped:
    """The instance of `run` is stopped, or abandoned at the deadline."""

    connector: str
    run: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorFailed:
    """The instance raised in start, or called `raise_error`."""

    connector: str
    run: int
    reason: str
    trace: str | None


@dataclass(frozen=True, slots=True)
class TaskConfigsGenerated:
    """Answers `GenerateTaskConfigs`. `error` is set instead when `task_configs` raised."""

    token: int
    connector: str
    configs: tuple[Config, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TaskReconfigurationRequested:
    """The connector called `request_task_reconfiguration`."""

    connector: str
    run: int


@dataclass(frozen=True, slots=True)
class TaskReported:
    """Something that the body, or the runner for it, says of one run."""

    run: str
    report: TaskReport


@dataclass(frozen=True, slots=True)
class ProducersFenced:
    """Answers `FenceProducers`."""

    token: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop all work, leave the group cleanly, answer what is open. Done when `Herder.done` is
    True."""


Command: TypeAlias = (
    Tick
    | ConfigRead
    | ConfigEndRead
    | ConfigAppended
    | ConfigAppendFailed
    | LeadershipClaimed
    | StatusRead
    | GroupAnswered
    | CoordinatorLost
    | Called
    | PeerAnswered
    | ConfigValidated
    | ConnectorStarted
    | ConnectorStopped
    | ConnectorFailed
    | TaskConfigsGenerated
    | TaskReconfigurationRequested
    | TaskReported
    | ProducersFenced
    | Shutdown
)


# -- effects --


@dataclass(frozen=True, slots=True)
class SendGroup:
    """Say this to the group coordinator; the response comes back as `GroupAnswered`."""

    request: GroupRequest


@dataclass(frozen=True, slots=True)
class ClaimLeadership:
    """Become the only writer of privileged records; earlier leaders are refused from now on."""

    generation: int


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """Append all records or none (one transaction). `privileged`: only while the claim of
    `ClaimLeadership` holds."""

    token: int
    records: tuple[tuple[str, bytes | None], ...]
    privileged: bool


@dataclass(frozen=True, slots=True)
class ReadConfigToEnd:
    """Take the end of the config topic, deliver every record before it (`ConfigRead`), then
    `ConfigEndRead`."""

    token: int


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Append to the status topic; value None is a tombstone. The safe-write rule has been applied
    already."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ValidateConfig:
    """Validate a connector config with its plugin's definitions; nothing of the plugin's runs on
    the herder's thread."""

    token: int
    name: str
    config: Config


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Make an instance and call `start()`; ends in `ConnectorStarted` or `ConnectorFailed`."""

    connector: str
    run: int
    config: Config


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Call `stop()` and drop the instance; always ends in `ConnectorStopped`, at the deadline by
    abandonment."""

    connector: str
    run: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class GenerateTaskConfigs:
    token: int
    connector: str
    run: int
    tasks_max: int


@dataclass(frozen=True, slots=True)
class StartTask:
    """Hand the task to the runner. Ends, whatever happens, in reports `TaskEnded` and
    `TaskReleased`."""

    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class SendTask:
    """Down the lifeline of a run. To a run that is gone it is nothing."""

    run: str
    command: TaskCommand


@dataclass(frozen=True, slots=True)
class StopTaskBy:
    """Send `StopTask`; kill what still lives when `grace_ms` have passed (0: at once)."""

    run: str
    grace_ms: int


@dataclass(frozen=True, slots=True)
class FenceProducers:
    """Shut out the producers of these transactional ids, all of them, before `ProducersFenced`."""

    token: int
    connector: str
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallPeer:
    """Ask another worker, named by its advertised url; ends in `PeerAnswered`, by TIMEOUT at the
    latest."""

    token: int
    url: str
    call: Call
    hops: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The one answer to a `Called`."""

    call_id: str
    result: Result


Effect: TypeAlias = (
    SendGroup
    | ClaimLeadership
    | AppendConfig
    | ReadConfigToEnd
    | WriteStatus
    | ValidateConfig
    | StartConnector
    | StopConnector
    | GenerateTaskConfigs
    | StartTask
    | SendTask
    | StopTaskBy
    | FenceProducers
    | CallPeer
    | Answer
)


# -- what a worker shows of itself --


@dataclass(frozen=True, slots=True)
class TaskView:
    task: TaskId
    state: State
    records: int
    skipped: int
    idle: bool
    attempts: int
    """How often it was started anew after being fenced or lost."""
    detail: str


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What `DescribeWorker` answers; travels as JSON (see `headgate.herder.wire`)."""

    worker_id: str
    url: str
    member_id: str
    leader: str
    """Member id of the leader; empty while there is none."""
    generation: int
    config_offset: int
    settled: bool
    """No rebalance, delay, reconfiguration, start, stop or fencing is under way here."""
    pending: tuple[str, ...]
    """What is under way, in words."""
    connectors: Mapping[str, State]
    tasks: tuple[TaskView, ...]
    rebalances: int
