"""What the parts of a herder share: the config state, the time, the effects and the timers.

A `Context` is the local state of one worker. A `ConfigState`, in contrast, is the same for every
reader of the log. A part calls only parts below it. To tell something to another part, it leaves a
*note*, which the herder delivers within the same command.
"""

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headgate.herder.messages import Call, Effect, ReadConfigToEnd, Result
from headgate.herder.news import News
from headgate.herder.settings import HerderSettings
from headgate.ids import TaskId
from headgate.topics.config_events import Config
from headgate.topics.config_state import ConfigState

RETRY_DELAY_MS: Final = 250
RETRY_DELAY_MS_MAX: Final = 60_000
NO_CONFIG: Final[Config] = {}


def retry_delay_ms(failures: int) -> int:
    """Return the delay before the next try: 250 ms after the first failure, doubling up to a
    minute. Source: Connect's reconfigureConnectorTasksWithExponentialBackoffRetries."""
    return min(RETRY_DELAY_MS << min(max(failures - 1, 0), 10), RETRY_DELAY_MS_MAX)


# -- who asked: where the result of a call goes --


@dataclass(frozen=True, slots=True)
class FromOutside:
    """A user or another worker has asked. The result goes out as an `Answer`."""

    call_id: str


@dataclass(frozen=True, slots=True)
class FromConnector:
    """A connector instance of this worker publishes its task configs."""

    connector: str
    token: int


@dataclass(frozen=True, slots=True)
class FromTasks:
    """Runs of one task generation on this worker need older producers to be fenced."""

    connector: str
    commit_offset: int | None


@dataclass(frozen=True, slots=True)
class FromOffsets:
    """A change of offsets needs older producers to be fenced."""

    ticket: int
    token: int


Origin: TypeAlias = FromOutside | FromConnector | FromTasks | FromOffsets


# -- notes from part to part --


@dataclass(frozen=True, slots=True)
class Ask:
    """Note to `Requests`: handle this call like one from outside."""

    origin: Origin
    call: Call


@dataclass(frozen=True, slots=True)
class Resolved:
    """Note to `Requests`: the result of the call with this ticket."""

    ticket: int
    result: Result


@dataclass(frozen=True, slots=True)
class Restarted:
    """Note to `RestartAnswers`: the result of a restart of one connector or task. The call with
    this ticket is answered once the restart's status is in the status topic."""

    ticket: int
    result: Result


@dataclass(frozen=True, slots=True)
class Unplaced:
    """Note to `Requests`: this worker cannot execute the call any more, because it is not the
    leader or owner any more. Route the call again."""

    ticket: int


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Note to `Requests`: the state that the call was prepared on has changed. Prepare it again."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Note from `Requests` to the part that asked: the result of its call."""

    origin: FromConnector | FromTasks | FromOffsets
    result: Result


@dataclass(frozen=True, slots=True)
class ConnectorReleased:
    """Note to `GroupWork`: nothing of the connector's instance is alive on this worker."""

    connector: str


@dataclass(frozen=True, slots=True)
class TaskGone:
    """Note to `GroupWork`: nothing of the task's run is alive on this worker."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class RoundDone:
    """Note from `FencingRounds` to `Leadership`: write the task count record of the connector."""

    connector: str
    commit_offset: int


@dataclass(frozen=True, slots=True)
class CountRecorded:
    """Note from `Leadership` to `FencingRounds`: the task count record was written, or why not."""

    connector: str
    commit_offset: int
    """Commit offset of the `RoundDone` that this answers. Its round may have been given up
    since."""
    error: str | None
    overtaken: bool = False
    """Another commit is in force, or the connector is gone."""


@dataclass(frozen=True, slots=True)
class SessionKeyWritten:
    """Note from `Leadership` to `SessionKeys`: whether the key was written."""

    written: bool


@dataclass(frozen=True, slots=True)
class LaneHeld:
    """Note from `Leadership` to `OffsetChanges`: the lane is held. Nothing else is written about
    the subject until the lane is released."""

    ticket: int
    subject: str


Note: TypeAlias = (
    Ask
    | Resolved
    | Restarted
    | Unplaced
    | LookAgain
    | Finished
    | ConnectorReleased
    | TaskGone
    | RoundDone
    | CountRecorded
    | SessionKeyWritten
    | LaneHeld
)


# -- why the log is read to its end --


@dataclass(frozen=True, slots=True)
class AtStart:
    """The worker reads the log before it joins the group for the first time."""


@dataclass(frozen=True, slots=True)
class ForMember:
    """The assignment was computed at a later config offset than this worker has read."""

    number: int
    """Number of the read. The end of an earlier read says nothing about a later assignment."""


@dataclass(frozen=True, slots=True)
class ForClaim:
    """The leader has claimed the log, and reads it before it decides on writes."""

    generation: int


@dataclass(frozen=True, slots=True)
class ForRecheck:
    """A source task's producer is initialised, and the log may have a newer commit (KIP-618)."""

    run: str


@dataclass(frozen=True, slots=True)
class ForFenced:
    """A run was fenced, and the log may have a newer commit."""

    task: TaskId
    run: str


@dataclass(frozen=True, slots=True)
class ForCall:
    """A call must see what other workers have acknowledged."""

    ticket: int


@dataclass(frozen=True, slots=True)
class ForRound:
    """A fencing round reads the log before it fences, and again after that."""

    connector: str
    token: int


@dataclass(frozen=True, slots=True)
class ForOffsets:
    """A change of offsets must see whether the connector has tasks."""

    ticket: int
    token: int


@dataclass(frozen=True, slots=True)
class ForReadBack:
    """The leader waits for its own reader to pass the records that it appended."""


@dataclass(frozen=True, slots=True)
class ForUnchanged:
    """The leader is about to answer without a write, or to compare an etag. Before that it looks
    whether another worker has written about the subject."""

    subject: str


Purpose: TypeAlias = (
    AtStart
    | ForMember
    | ForClaim
    | ForRecheck
    | ForFenced
    | ForCall
    | ForRound
    | ForOffsets
    | ForReadBack
    | ForUnchanged
)


# -- timers --


@dataclass(frozen=True, slots=True)
class CallDue:
    ticket: int


@dataclass(frozen=True, slots=True)
class RouteAgain:
    ticket: int


@dataclass(frozen=True, slots=True)
class ClaimAgain:
    generation: int


@dataclass(frozen=True, slots=True)
class ReadAgain:
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class GenerateAgain:
    connector: str
    token: int


@dataclass(frozen=True, slots=True)
class FenceAgain:
    origin: FromTasks


@dataclass(frozen=True, slots=True)
class WakeTask:
    task: TaskId
    run: str


@dataclass(frozen=True, slots=True)
class RestartFailedTask:
    """The restart policy's delay is over: start the FAILED task again."""

    task: TaskId
    run: str


@dataclass(frozen=True, slots=True)
class RestartFailedConnector:
    """The restart policy's delay is over: start the FAILED connector again."""

    connector: str
    run: int


@dataclass(frozen=True, slots=True)
class LookAtKey:
    """The session key may have expired, or the last one could not be written."""


@dataclass(frozen=True, slots=True)
class ForgetKey:
    """A session key besides the current one may not be accepted any more."""


@dataclass(frozen=True, slots=True)
class StartMore:
    """More tasks are to be started than one command may start."""


@dataclass(frozen=True, slots=True)
class StatusUnheard:
    """The status that this worker wrote under this key should have been read back by now."""

    key: str


@dataclass(frozen=True, slots=True)
class StatusesDue:
    """The time to wait for the answer to this `AwaitStatuses` is over."""

    token: int


Timer: TypeAlias = (
    CallDue
    | RouteAgain
    | ClaimAgain
    | ReadAgain
    | GenerateAgain
    | FenceAgain
    | WakeTask
    | RestartFailedTask
    | RestartFailedConnector
    | LookAtKey
    | ForgetKey
    | StartMore
    | StatusUnheard
    | StatusesDue
)


@dataclass(slots=True)
class Membership:
    """This worker's membership of its group."""

    member_id: str = ""
    generation: int = -1
    protocol: str = ""
    """Protocol of the last round that was completed; see `headgate.membership.protocols`."""
    leader: str = ""
    """Member id of the leader; empty while none is known."""
    leader_url: str = ""
    stable: bool = False
    """Whether work may be started. The worker is in a completed generation, has read the log as far
    as its assignment requires, and was not asked to join again."""
    alive: bool = False
    """Whether the worker is a member of a group, as far as it knows. Also True during a
    rebalance."""

    @property
    def is_leader(self) -> bool:
        return self.alive and bool(self.member_id) and self.leader == self.member_id


@dataclass(slots=True)
class Context:
    """The shared state of a herder's parts. The herder owns it, and each part has a reference to
    it."""

    settings: HerderSettings
    now_ms: int
    wall_ahead_ms: int = 0
    """Wall time minus `now_ms`."""
    news: News = field(default_factory=lambda: News(0))
    """Connectors and tasks held here that have changed, for callers that ask again and again."""
    state: ConfigState = field(default_factory=ConfigState)
    membership: Membership = field(default_factory=Membership)
    ready: bool = False
    """The log was read to its end for the first time. Nothing was done about the records before."""
    stopping: bool = False
    """`Shutdown` was given."""
    effects: list[Effect] = field(default_factory=lambda: list[Effect]())
    notes: deque[Note] = field(default_factory=lambda: deque[Note]())
    _tokens: int = 0
    _reads: dict[int, Purpose] = field(default_factory=lambda: dict[int, Purpose]())
    _timers: list[tuple[int, int, Timer]] = field(
        default_factory=lambda: list[tuple[int, int, Timer]]()
    )

    @property
    def wall_ms(self) -> int:
        """Wall time in milliseconds since 1970, which other workers can compare with theirs. It
        advances with `now_ms`, so it misses changes of the machine's clock since the start."""
        return self.now_ms + self.wall_ahead_ms

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def token(self) -> int:
        """Return a number that this herder has not used for any other question."""
        self._tokens += 1
        return self._tokens

    # -- reading to the end --

    def read_to_end(self, purpose: Purpose, *, statuses: bool = False) -> None:
        token = self.token()
        self._reads[token] = purpose
        self.emit(ReadConfigToEnd(token, statuses))

    def end_read(self, token: int) -> Purpose | None:
        """Return what the read was for, and forget it. None: nothing waits for the answer."""
        return self._reads.pop(token, None)

    def is_read(self, purpose: Purpose) -> bool:
        """Return whether the log is being read to its end for `purpose`, or will be."""
        again = ReadAgain(purpose)
        return purpose in self._reads.values() or any(each[2] == again for each in self._timers)

    # -- timers --

    def after(self, delay_ms: int, timer: Timer) -> None:
        """Set `timer` to fire in `delay_ms` at the earliest. A timer cannot be cancelled: its
        handler checks whether it still applies."""
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self.token(), timer))

    def due(self) -> Timer | None:
        """Remove and return the first timer whose time has come; None: there is none."""
        if self._timers and self._timers[0][0] <= self.now_ms:
            return heapq.heappop(self._timers)[2]
        return None

    @property
    def next_timer_ms(self) -> int | None:
        return self._timers[0][0] if self._timers else None
