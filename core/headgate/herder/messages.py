"""Commands in, effects out: all that a herder and the world around it say to each other.

Commands say what happened or what was asked. Effects say what the host (the runtime, a simulation,
a service that embeds a herder) must do. An effect that is answered later carries a `token` or a
`run` that its answer brings back. An answer that nobody awaits any more is stale, and normal.

The host performs every effect of a decision: one that fails stops none of the others. Its failure
is its answer, where it has one. Only these effects must keep the order in which they were given:

1. `ClaimLeadership` and `AppendConfig`, among themselves, one after the other. A write that slips
   behind a later claim would be accepted in its name.
2. `WriteStatus`, for one key. An older value that is not written yet may be left out. All others
   are tried until they are written, since they are not given twice. `AwaitStatuses` follows those
   of its decision, too.
3. `SendGroup`, so that the coordinator hears a request no later than the one that follows it.
4. `StartTask`, `SendTask` and `StopTaskBy`, for one run.
5. `StartConnector`, `GenerateTaskConfigs` and `StopConnector`, for one run of a connector.
6. `AlterConnectorOffsets` before the `GiveUpAlteration` of its token.

`ReadConfigToEnd` asks for an end that is looked up after the effect was given. Nothing else is
ordered: statuses may be written before or after what precedes them in the list, and commands may be
given while effects of earlier ones are under way. No decision relies on more: a leader reads its
write back only when the answer to the append has come.

Calls, one kind of command, are in `headgate.herder.calls`, and given on from here. So are views,
what a worker shows of itself, from `headgate.herder.views`.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from headgate.herder.calls import AlterOffsets as AlterOffsets
from headgate.herder.calls import Call as Call
from headgate.herder.calls import CreateConnector as CreateConnector
from headgate.herder.calls import DeleteConnector as DeleteConnector
from headgate.herder.calls import DescribeConnector as DescribeConnector
from headgate.herder.calls import DescribeGroup as DescribeGroup
from headgate.herder.calls import DescribeStatus as DescribeStatus
from headgate.herder.calls import DescribeTasks as DescribeTasks
from headgate.herder.calls import DescribeTaskStatus as DescribeTaskStatus
from headgate.herder.calls import DescribeTopics as DescribeTopics
from headgate.herder.calls import DescribeWorker as DescribeWorker
from headgate.herder.calls import ErrorKind as ErrorKind
from headgate.herder.calls import Failure as Failure
from headgate.herder.calls import FenceConnector as FenceConnector
from headgate.herder.calls import ForeseeMoves as ForeseeMoves
from headgate.herder.calls import ListConnectors as ListConnectors
from headgate.herder.calls import OffsetChange as OffsetChange
from headgate.herder.calls import PatchConnectorConfig as PatchConnectorConfig
from headgate.herder.calls import PutConnectorConfig as PutConnectorConfig
from headgate.herder.calls import PutTaskConfigs as PutTaskConfigs
from headgate.herder.calls import ReadDeletedOffsets as ReadDeletedOffsets
from headgate.herder.calls import ReadOffsets as ReadOffsets
from headgate.herder.calls import ResetDeletedOffsets as ResetDeletedOffsets
from headgate.herder.calls import ResetOffsets as ResetOffsets
from headgate.herder.calls import ResetTopics as ResetTopics
from headgate.herder.calls import RestartConnector as RestartConnector
from headgate.herder.calls import RestartTask as RestartTask
from headgate.herder.calls import Result as Result
from headgate.herder.calls import SetLoggerLevel as SetLoggerLevel
from headgate.herder.calls import SetTargetState as SetTargetState
from headgate.herder.calls import ShowConnector as ShowConnector
from headgate.herder.calls import ShowConnectors as ShowConnectors
from headgate.herder.calls import Success as Success
from headgate.herder.views import ConnectorCall as ConnectorCall
from headgate.herder.views import LoopBusy as LoopBusy
from headgate.herder.views import Rebalances as Rebalances
from headgate.herder.views import Startups as Startups
from headgate.herder.views import TaskView as TaskView
from headgate.herder.views import ViewOfWorker as ViewOfWorker
from headgate.herder.views import WorkerView as WorkerView
from headgate.membership.messages import GroupRequest, GroupResponse
from headgate.task.messages import TaskCommand, TaskKind, TaskReport, TaskSpec
from headgate.topics.config_events import Config, ConfigEvent
from headgate.topics.status import StatusEvent

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
    """Answers `ReadConfigToEnd`, after the records. `error`: the end was not reached in time."""

    token: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigAppended:
    """Answers `AppendConfig`. `end`: config offset of a reader that has read these records."""

    token: int
    end: int


@dataclass(frozen=True, slots=True)
class ConfigAppendFailed:
    token: int
    reason: str
    fenced: bool
    """A later leader has claimed the log."""
    too_large: bool = False
    """A record is larger than the topic takes: nothing was written."""


@dataclass(frozen=True, slots=True)
class LeadershipClaimed:
    generation: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StatusRead:
    """Records of the status topic, in order: the key of each, and what it says."""

    records: tuple[tuple[str, StatusEvent], ...]


@dataclass(frozen=True, slots=True)
class StatusesWritten:
    """Answers `AwaitStatuses`."""

    token: int


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
    """Answers `ValidateConfig`: what the user is told, in Connect's words; nothing when valid."""

    token: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectorStarted:
    """`start()` of the connector instance returned."""

    connector: str
    run: int
    version: str | None = None
    """`VERSION` of its class; None where the class sets none."""


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
class ResolvedConnector:
    """What a connector's config comes to now, where it refers to config providers (KIP-297)."""

    digest: str
    """Tells two resolutions apart. It means nothing outside of the process that made it."""
    tasks_max: int
    tasks_max_enforced: bool


@dataclass(frozen=True, slots=True)
class TaskConfigsGenerated:
    """Answers `GenerateTaskConfigs`. `error` is set instead when `task_configs` raised."""

    token: int
    connector: str
    configs: tuple[Config, ...] = ()
    """As they are to be logged: with references where the connector's config has them."""
    error: str | None = None
    trace: str = ""
    """What is shown of `error` in the status; empty: `error` itself."""
    resolved: ResolvedConnector | None = None
    """None: the connector's config holds all its values itself."""


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
class ConnectorOffsetsRead:
    """Answers `ReadConnectorOffsets`: (partition, offset) as plain data, in the order to be shown.
    `failure` is set instead when they could not be read."""

    token: int
    offsets: tuple[OffsetChange, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ConnectorOffsetsAltered:
    """Answers `AlterConnectorOffsets`: all is written, or `failure` says what the user is told."""

    token: int
    handled: bool = False
    """What the connector's `alter_offsets` returned: True when nothing else is left to alter."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SessionKeyMade:
    """Answers `MakeSessionKey`."""

    token: int
    key: bytes = field(repr=False)
    created_ms: int
    """Wall time, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop all work, leave the group cleanly, answer what is open; then `Herder.done` is True."""


Command: TypeAlias = (
    Tick
    | ConfigRead
    | ConfigEndRead
    | ConfigAppended
    | ConfigAppendFailed
    | LeadershipClaimed
    | StatusRead
    | StatusesWritten
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
    | ConnectorOffsetsRead
    | ConnectorOffsetsAltered
    | SessionKeyMade
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
    `ConfigEndRead`. With `statuses` the same of the status topic (`StatusRead`), before that."""

    token: int
    statuses: bool = False


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Append to the status topic; value None is a tombstone. The safe-write rule has been applied
    already."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class AwaitStatuses:
    """Answer `StatusesWritten` once all statuses given so far, or later ones, are written."""

    token: int


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
    """As the config in the log has it; where that refers elsewhere, what it stands for counts."""


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
class ReadConnectorOffsets:
    """Read a connector's offsets, each topic to its end first. Source connectors: the view of its
    own topic over the global one. Sink connectors: the consumer offsets of its group, as
    ``{"kafka_topic", "kafka_partition"}`` and ``{"kafka_offset"}``. On a thread: an open
    transaction makes it wait."""

    token: int
    connector: str
    config: Config
    kind: TaskKind
    offsets: tuple[OffsetChange, ...] = ()
    """What a dry run would set: a sink's topic partitions among them have to be there,
    as for `AlterConnectorOffsets`."""


@dataclass(frozen=True, slots=True)
class AlterConnectorOffsets:
    """Have the connector's class look at the change (`alter_offsets`), then write it. The herder
    has seen to it that no task of the connector is alive. On a thread.

    A reset is `offsets` None: every offset that is known is forgotten, and the class is given those
    partitions with None. Nothing known: nothing is written, and it is a success.
    """

    token: int
    connector: str
    config: Config
    kind: TaskKind
    offsets: tuple[OffsetChange, ...] | None
    """Offsets to write. A sink's partitions have exactly the keys of `ReadConnectorOffsets`, with
    integers."""
    transactional_id: str | None
    """Write in one transaction of this id; None: without. It is that of the connector's task 0, and
    shuts out what might still be left of it. Source: KIP-875."""
    member_id: str
    generation: int
    """Membership that it is done under, as in `TaskSpec`."""
    commit_offset: int | None = None
    """Offset of the commit that left no tasks. Offsets of a source are written only if,
    right before (once the producer is initialised, where there is a transaction), the config topic
    has no later one and this worker still leads."""
    deleted: bool = False
    """No connector has the name: `config` is empty and no class is asked. In place of
    `commit_offset`, there must still be none, nor may one have had tasks meanwhile."""
    task_generation: int | None = None
    """`deleted`: that of the entry which the connector has left."""


@dataclass(frozen=True, slots=True)
class GiveUpAlteration:
    """Nobody waits for the `AlterConnectorOffsets` of this token any more. Unless its writing has
    begun, it is answered at once (with a failure that nobody is told), and nothing is written when
    the connector's class comes back from `alter_offsets` after all. What is being written is
    written to its end, and answered then."""

    token: int


@dataclass(frozen=True, slots=True)
class MakeSessionKey:
    """A random key for signatures between workers. Source: KIP-507."""

    token: int
    algorithm: str
    """As Java names it, such as ``HmacSHA256``."""
    key_size: int
    """In bits."""


@dataclass(frozen=True, slots=True)
class ApplyLoggerLevel:
    """Set the level of this worker's logger and of those below it. A level that this worker does
    not know is ignored."""

    logger: str
    level: str


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
    | AwaitStatuses
    | ValidateConfig
    | StartConnector
    | StopConnector
    | GenerateTaskConfigs
    | StartTask
    | SendTask
    | StopTaskBy
    | FenceProducers
    | ReadConnectorOffsets
    | AlterConnectorOffsets
    | GiveUpAlteration
    | MakeSessionKey
    | ApplyLoggerLevel
    | CallPeer
    | Answer
)
