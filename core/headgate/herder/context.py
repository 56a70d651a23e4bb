"""What the parts of a herder share: the state of the log, the time, the effects they are making.

This is a worker's local state, in contrast to `ConfigState`, which every reader of the log holds
alike. The parts do not call each other upwards: what one has to tell another it leaves as a *note*,
which the herder carries over within the same command.
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
    """250 ms after the first failure, doubling up to a minute. Source: Connect's
    reconfigureConnectorTasksWithExponentialBackoffRetries."""
    return min(RETRY_DELAY_MS << min(max(failures - 1, 0), 10), RETRY_DELAY_MS_MAX)


# -- who asked: where the result of a call goes --


@dataclass(frozen=True, slots=True)
class FromOutside:
    """A user or another worker: `Answer`."""

    call_id: str


@dataclass(frozen=True, slots=True)
class FromConnector:
    """Our own connector instance publishes its task configs."""

    connector: str
    token: int


@dataclass(frozen=True, slots=True)
class FromTasks:
    """Our own runs of one task generation want older producers to be shut out."""

    connector: str
    commit_offset: int | None


@dataclass(frozen=True, slots=True)
class FromOffsets:
    """A change of offsets wants older producers to be shut out."""

    ticket: int
    token: int


Origin: TypeAlias = FromOutside | FromConnector | FromTasks | FromOffsets


# -- notes from part to part --


@dataclass(frozen=True, slots=True)
class Ask:
    """To the requests: handle this call like one from outside."""

    origin: Origin
    call: Call


@dataclass(frozen=True, slots=True)
class Resolved:
    """To the requests: what became of the call that has this ticket."""

    ticket: int
    result: Result


@dataclass(frozen=True, slots=True)
class Restarted:
    """What became of a restart of one connector or task. The call that has this ticket is answered
    once what was said of it is in the status topic."""

    ticket: int
    result: Result


@dataclass(frozen=True, slots=True)
class Unplaced:
    """To the requests: this worker is no longer the one to do it (not the leader, not the owner).
    Look for the place again."""

    ticket: int


@dataclass(frozen=True, slots=True)
class LookAgain:
    """To the requests: what the call was prepared for has changed since."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Finished:
    """From the requests, to the part that asked."""

    origin: FromConnector | FromTasks | FromOffsets
    result: Result


@dataclass(frozen=True, slots=True)
class ConnectorReleased:
    """Nothing of the connector's instance is alive here."""

    connector: str


@dataclass(frozen=True, slots=True)
class TaskGone:
    """Nothing of the task's run is alive here."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class RoundDone:
    """From the rounds of fencing, to the leader's lanes: record the task count of the connector."""

    connector: str
    commit_offset: int


@dataclass(frozen=True, slots=True)
class CountRecorded:
    """From the leader's lanes, to the rounds of fencing."""

    connector: str
    commit_offset: int
    """As in `RoundDone`: an answer may be that of a round which was given up."""
    error: str | None
    overtaken: bool = False


@dataclass(frozen=True, slots=True)
class SessionKeyWritten:
    """From the leader's lanes, to the session keys."""

    written: bool


@dataclass(frozen=True, slots=True)
class LaneHeld:
    """From the leader's lanes: nothing else is written about the subject until it is let go."""

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
    """Before the first join."""


@dataclass(frozen=True, slots=True)
class ForMember:
    """The assignment was made at a later config offset."""

    number: int
    """Number of the read: an earlier one says nothing about a later assignment."""


@dataclass(frozen=True, slots=True)
class ForClaim:
    generation: int


@dataclass(frozen=True, slots=True)
class ForRecheck:
    run: str


@dataclass(frozen=True, slots=True)
class ForFenced:
    task: TaskId
    run: str


@dataclass(frozen=True, slots=True)
class ForCall:
    ticket: int


@dataclass(frozen=True, slots=True)
class ForRound:
    connector: str
    token: int


@dataclass(frozen=True, slots=True)
class ForOffsets:
    ticket: int
    token: int


@dataclass(frozen=True, slots=True)
class ForReadBack:
    """What was appended is to be seen by our own reader."""


@dataclass(frozen=True, slots=True)
class ForUnchanged:
    """The leader finds that there is nothing to write about a subject, and looks whether a later
    leader has written."""

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
    """The restart policy's wait is over."""

    task: TaskId
    run: str


@dataclass(frozen=True, slots=True)
class RestartFailedConnector:
    """The restart policy's wait is over."""

    connector: str
    run: int


@dataclass(frozen=True, slots=True)
class LookAtKey:
    """A session key may have come of age, or could not be written."""


@dataclass(frozen=True, slots=True)
class ForgetKey:
    """A session key that is not the current one has been taken for long enough."""


@dataclass(frozen=True, slots=True)
class StartMore:
    """More tasks are to be started than one command may take."""


@dataclass(frozen=True, slots=True)
class StatusUnheard:
    """What this worker wrote of something under this key should have been read by now."""

    key: str


@dataclass(frozen=True, slots=True)
class StatusesDue:
    """The answer to `AwaitStatuses` with this token is waited for no longer."""

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
    """Where this worker stands in its group."""

    member_id: str = ""
    generation: int = -1
    protocol: str = ""
    """Protocol of the last round that was completed; see `headgate.membership.protocols`."""
    leader: str = ""
    """Member id of the leader; empty while none is known."""
    leader_url: str = ""
    stable: bool = False
    """In a completed generation, caught up with its assignment, and not asked to join again: work
    may be started."""
    alive: bool = False
    """Member of a group, as far as we know; also during a rebalance."""

    @property
    def is_leader(self) -> bool:
        return self.alive and bool(self.member_id) and self.leader == self.member_id


@dataclass(slots=True)
class Context:
    """Owned by one herder; all its parts hold it."""

    settings: HerderSettings
    now_ms: int
    wall_ahead_ms: int = 0
    news: News = field(default_factory=lambda: News(0))
    """What of the work that is held has changed, for those who look at it again and again."""
    state: ConfigState = field(default_factory=ConfigState)
    membership: Membership = field(default_factory=Membership)
    ready: bool = False
    """The log was read to its end once. What it had said before was not told to anyone."""
    stopping: bool = False
    """Shutdown was asked."""
    effects: list[Effect] = field(default_factory=lambda: list[Effect]())
    notes: deque[Note] = field(default_factory=lambda: deque[Note]())
    _tokens: int = 0
    _reads: dict[int, Purpose] = field(default_factory=lambda: dict[int, Purpose]())
    _timers: list[tuple[int, int, Timer]] = field(
        default_factory=lambda: list[tuple[int, int, Timer]]()
    )

    @property
    def wall_ms(self) -> int:
        """Wall time, milliseconds since 1970: what other workers can compare theirs with. It goes
        on with `now_ms`; that the clock was set meanwhile is not seen."""
        return self.now_ms + self.wall_ahead_ms

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def token(self) -> int:
        """A number that no other question of this herder has."""
        self._tokens += 1
        return self._tokens

    # -- reading to the end --

    def read_to_end(self, purpose: Purpose, *, statuses: bool = False) -> None:
        token = self.token()
        self._reads[token] = purpose
        self.emit(ReadConfigToEnd(token, statuses))

    def end_read(self, token: int) -> Purpose | None:
        """What the read was for, None for an answer that nobody waits for."""
        return self._reads.pop(token, None)

    def is_read(self, purpose: Purpose) -> bool:
        """Whether the log is being read to its end for this, or will be."""
        again = ReadAgain(purpose)
        return purpose in self._reads.values() or any(each[2] == again for each in self._timers)

    # -- timers --

    def after(self, delay_ms: int, timer: Timer) -> None:
        """Ask for `timer` no earlier than in `delay_ms`. There is no cancelling: who is called
        looks whether it still applies."""
        heapq.heappush(self._timers, (self.now_ms + delay_ms, self.token(), timer))

    def due(self) -> Timer | None:
        """The next timer whose time has come."""
        if self._timers and self._timers[0][0] <= self.now_ms:
            return heapq.heappop(self._timers)[2]
        return None

    @property
    def next_timer_ms(self) -> int | None:
        return self._timers[0][0] if self._timers else None
