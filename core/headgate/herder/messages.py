"""Commands and effects: the messages between a herder and its host.

A command says what happened or what is asked for. An effect says what the host must do. The host is
the runtime, a simulation or a service that embeds a herder. An effect that is answered later
carries a `token` or a `run`, and its answer brings that back. A stale answer, which nothing waits
for any more, is a normal case.

The host performs every effect of a decision, even if another one fails. If an effect has an answer,
the answer reports its failure. Only these effects must keep the order in which they were given:

1. `ClaimLeadership` and `AppendConfig`, among themselves, one after the other. A write that slips
   behind a later claim would be accepted in the name of that claim.
2. `WriteStatus`, for one key. An older value that is not written yet may be left out. Every other
   value is retried until it is written, because the herder does not give it twice. An
   `AwaitStatuses` follows the `WriteStatus` effects of its own decision, too.
3. `SendGroup`, so that the coordinator receives the requests in the order of the effects.
4. `StartTask`, `SendTask` and `StopTaskBy`, for one run.
5. `StartConnector`, `GenerateTaskConfigs` and `StopConnector`, for one run of a connector.
6. `AlterConnectorOffsets` before the `GiveUpAlteration` of its token.

For `ReadConfigToEnd`, the host looks up the end after the effect was given. Nothing else is
ordered. Statuses may be written before or after the effects that precede them in the list. Commands
may be given while effects of earlier commands are under way. No decision relies on more order: a
leader reads its write back only after the append was answered.

`headgate.herder.calls` defines the calls, which the command `Called` carries.
`headgate.herder.views` defines what a worker shows of itself. This module exports the names of
both.
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
    """Time has passed. The host gives it by `Herder.next_deadline_ms` if there is no other
    command."""


@dataclass(frozen=True, slots=True)
class ConfigRead:
    """Records of the config topic, decoded, in order."""

    events: tuple[ConfigEvent, ...]


@dataclass(frozen=True, slots=True)
class ConfigEndRead:
    """Answer to `ReadConfigToEnd`, given after the records. `error` is set if the end was not
    reached."""

    token: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigAppended:
    """Answer to `AppendConfig`. `end`: config offset of a reader that has read all its records."""

    token: int
    end: int


@dataclass(frozen=True, slots=True)
class ConfigAppendFailed:
    """Answer to an `AppendConfig` that failed. With `fenced` or `too_large` nothing was written.
    Without them the records may be in the log."""

    token: int
    reason: str
    fenced: bool
    """A later leader has claimed the log: nothing was written."""
    too_large: bool = False
    """A record is larger than the topic takes: nothing was written."""


@dataclass(frozen=True, slots=True)
class LeadershipClaimed:
    """Answer to `ClaimLeadership`. `error`: why the claim failed; None: it succeeded."""

    generation: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StatusRead:
    """Records of the status topic, in order: the key of each, and its decoded event."""

    records: tuple[tuple[str, StatusEvent], ...]


@dataclass(frozen=True, slots=True)
class StatusesWritten:
    """Answer to `AwaitStatuses`."""

    token: int


@dataclass(frozen=True, slots=True)
class GroupAnswered:
    """The group coordinator has answered a `SendGroup`."""

    response: GroupResponse


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """The coordinator could not be reached for a heartbeat interval."""

    reason: str


@dataclass(frozen=True, slots=True)
class Called:
    """A user or another worker makes a call. Exactly one `Answer` answers it."""

    call_id: str
    call: Call
    hops: int = 0
    """How many workers have forwarded the call to this one, one after the other."""
    deadline_ms: int | None = None
    """Time limit on the herder's clock. None: `HerderSettings.request_timeout_ms` from now."""


@dataclass(frozen=True, slots=True)
class PeerAnswered:
    """Answer to `CallPeer`."""

    token: int
    result: Result


@dataclass(frozen=True, slots=True)
class ConfigValidated:
    """Answer to `ValidateConfig`. `errors`: what the user is told, in Connect's words; empty: the
    config is valid."""

    token: int
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectorStarted:
    """`start()` of the connector instance has returned."""

    connector: str
    run: int
    version: str | None = None
    """`VERSION` of its class; None where the class sets none."""


@dataclass(frozen=True, slots=True)
class ConnectorStopped:
    """The instance of `run` has stopped, or was abandoned at the deadline."""

    connector: str
    run: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorFailed:
    """The connector instance raised an exception in `start()`, or called `raise_error`."""

    connector: str
    run: int
    reason: str
    trace: str | None


@dataclass(frozen=True, slots=True)
class ResolvedConnector:
    """A connector's config after its references to config providers are resolved (KIP-297)."""

    digest: str
    """Digest of the resolved config. It is comparable only within the process that made it."""
    tasks_max: int
    tasks_max_enforced: bool


@dataclass(frozen=True, slots=True)
class TaskConfigsGenerated:
    """Answer to `GenerateTaskConfigs`. `error` is set instead if `task_configs` raised an
    exception."""

    token: int
    connector: str
    configs: tuple[Config, ...] = ()
    """Task configs as they are to be written to the config topic. They keep the references that the
    connector's config has."""
    error: str | None = None
    trace: str = ""
    """Stack trace that the status shows after `error`. Empty: it shows `error` alone."""
    resolved: ResolvedConnector | None = None
    """None: the connector's config has no references."""


@dataclass(frozen=True, slots=True)
class TaskReconfigurationRequested:
    """The connector called `request_task_reconfiguration`."""

    connector: str
    run: int


@dataclass(frozen=True, slots=True)
class TaskReported:
    """A task's body, or the runner on its behalf, has reported something about one run."""

    run: str
    report: TaskReport


@dataclass(frozen=True, slots=True)
class ProducersFenced:
    """Answer to `FenceProducers`. `error`: why it failed; None: all producers are fenced."""

    token: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectorOffsetsRead:
    """Answer to `ReadConnectorOffsets`. `offsets` has (partition, offset) pairs as plain data, in
    the order in which they are shown. If they could not be read, `failure` is set instead."""

    token: int
    offsets: tuple[OffsetChange, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class ConnectorOffsetsAltered:
    """Answer to `AlterConnectorOffsets`. `failure`: what the user is told; None: all offsets are
    written."""

    token: int
    handled: bool = False
    """What `alter_offsets` returned. True: no offsets that the connector manages itself are
    left."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class SessionKeyMade:
    """Answer to `MakeSessionKey`."""

    token: int
    key: bytes = field(repr=False)
    created_ms: int
    """Wall time, milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop all work, leave the group cleanly and answer all open calls. Then `Herder.done` is
    True."""


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
    """Send `request` to the group coordinator. Its response comes back as `GroupAnswered`."""

    request: GroupRequest


@dataclass(frozen=True, slots=True)
class ClaimLeadership:
    """Become the only writer of privileged records: writes of earlier leaders are refused from then
    on. Ends in `LeadershipClaimed`."""

    generation: int


@dataclass(frozen=True, slots=True)
class AppendConfig:
    """Append all `records` to the config topic in one transaction, or none of them. `privileged`:
    only while the claim of `ClaimLeadership` holds. Ends in `ConfigAppended` or
    `ConfigAppendFailed`."""

    token: int
    records: tuple[tuple[str, bytes | None], ...]
    privileged: bool


@dataclass(frozen=True, slots=True)
class ReadConfigToEnd:
    """Look up the end of the config topic, deliver every record before it (`ConfigRead`), then give
    `ConfigEndRead`. With `statuses`, the records of the status topic up to its end (`StatusRead`)
    are delivered before that, too."""

    token: int
    statuses: bool = False


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Append a record to the status topic. A `value` of None is a tombstone. The herder has already
    applied the safe-write rule."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class AwaitStatuses:
    """Give `StatusesWritten` once every status given so far is written, or a later one of its
    key."""

    token: int


@dataclass(frozen=True, slots=True)
class ValidateConfig:
    """Validate a connector config with the definitions of its plugin. No code of the plugin runs on
    the herder's thread."""

    token: int
    name: str
    config: Config


@dataclass(frozen=True, slots=True)
class StartConnector:
    """Create an instance and call its `start()`. Ends in `ConnectorStarted` or
    `ConnectorFailed`."""

    connector: str
    run: int
    config: Config


@dataclass(frozen=True, slots=True)
class StopConnector:
    """Call `stop()` of the instance and drop it. Always ends in `ConnectorStopped`: an instance
    that has not stopped by the deadline is abandoned."""

    connector: str
    run: int
    deadline_ms: int
    """How long the instance has to stop."""


@dataclass(frozen=True, slots=True)
class GenerateTaskConfigs:
    """Call `task_configs` of the connector instance. Ends in `TaskConfigsGenerated`."""

    token: int
    connector: str
    run: int
    tasks_max: int
    """`tasks.max` of the config in the log. Where that is a reference, the resolved value counts
    instead."""


@dataclass(frozen=True, slots=True)
class StartTask:
    """Hand the task to the runner. The run always ends in reports `TaskEnded` and
    `TaskReleased`."""

    spec: TaskSpec


@dataclass(frozen=True, slots=True)
class SendTask:
    """Send `command` to a run's body over its lifeline. Nothing happens if the run is gone."""

    run: str
    command: TaskCommand


@dataclass(frozen=True, slots=True)
class StopTaskBy:
    """Send `StopTask` to a run, and kill its body if it still lives after `grace_ms` (0: at
    once)."""

    run: str
    grace_ms: int


@dataclass(frozen=True, slots=True)
class FenceProducers:
    """Fence the producers of all these transactional ids. Ends in `ProducersFenced`."""

    token: int
    connector: str
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadConnectorOffsets:
    """Read a connector's offsets, after reading each topic that holds them to its end.

    The offsets of a source connector are the view of its own offsets topic over the global one.
    Those of a sink connector are the consumer offsets of its group, as ``{"kafka_topic",
    "kafka_partition"}`` and ``{"kafka_offset"}``. The host does it on a thread, because an open
    transaction makes it wait.
    """

    token: int
    connector: str
    config: Config
    kind: TaskKind
    offsets: tuple[OffsetChange, ...] = ()
    """Offsets that a dry run would set. The topic-partitions of a sink must exist, as for
    `AlterConnectorOffsets`."""


@dataclass(frozen=True, slots=True)
class AlterConnectorOffsets:
    """Call `alter_offsets` of the connector's class with the change, then write the offsets.

    The herder has made sure that no task of the connector is alive. The host does it on a thread.

    If `offsets` is None, it is a reset: every known offset is removed, and the class is given their
    partitions with None. If no offset is known, nothing is written, and that is a success.
    """

    token: int
    connector: str
    config: Config
    kind: TaskKind
    offsets: tuple[OffsetChange, ...] | None
    """Offsets to write; None: a reset. A sink's partitions and offsets have exactly the keys of
    `ReadConnectorOffsets`, with integers as numbers."""
    transactional_id: str | None
    """Transactional id of the one transaction to write in; None: write without a transaction. It is
    the id of the connector's task 0, so that a producer left over from that task is fenced. Source:
    KIP-875."""
    member_id: str
    generation: int
    """Member id and generation under which the change is made, as in `TaskSpec`."""
    commit_offset: int | None = None
    """Offset of the commit record that left the connector without tasks. Offsets of a source are
    written only if the config topic has no later commit and this worker still leads. That is
    checked right before the write, after the producer is initialised if there is a transaction."""
    deleted: bool = False
    """The offsets are those of a deleted connector: `config` is empty, and no class is called.
    Instead of `commit_offset`, it is checked that still no connector has the name, and that none
    has had tasks in between."""
    task_generation: int | None = None
    """With `deleted`: task generation of the entry that the connector has left."""


@dataclass(frozen=True, slots=True)
class GiveUpAlteration:
    """Give up the `AlterConnectorOffsets` of this token: nobody waits for it any more.

    If its writing has not begun, it is answered at once, with a failure that no user sees. Nothing
    is written then, even if the connector's class returns from `alter_offsets` later. If its
    writing has begun, it is completed and answered then.
    """

    token: int


@dataclass(frozen=True, slots=True)
class MakeSessionKey:
    """Make a random key for signatures between workers. Ends in `SessionKeyMade`. Source:
    KIP-507."""

    token: int
    algorithm: str
    """Java's name of the algorithm, such as ``HmacSHA256``."""
    key_size: int
    """In bits."""


@dataclass(frozen=True, slots=True)
class ApplyLoggerLevel:
    """Set the level of one of this worker's loggers and of those below it. A level that this worker
    does not know is ignored."""

    logger: str
    level: str


@dataclass(frozen=True, slots=True)
class CallPeer:
    """Make `call` to the worker with the advertised `url`. Ends in `PeerAnswered`, with TIMEOUT
    after `timeout_ms` at the latest."""

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
