"""One run of a task as its runner sees it: when it counts as ended, as released, and when to kill.

The runner may say `TaskReleased` only when nothing of the run can act any more, for another worker
may start the task the moment it is said. What is known from where:

- A body acts only after it was welcomed (its spec comes over the lifeline), and never after its
  last word, `TaskEnded`, which it says when everything is closed.
- What was launched being over does not mean that the body is: Spark's cancelled job leaves its
  Python worker behind. The connection being closed does not either: a process that lives can close.
- A process that is dead is dead: known by pid where the body runs on this machine.
- A body on another machine ends itself when it hears nothing for `limit_ms`, and its process when
  that cannot be done within as long again.
"""

from dataclasses import dataclass
from typing import TypeAlias

from headgate.task.messages import (
    BodyReport,
    TaskClosing,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskReport,
    TaskSpec,
)

LINGER_MS = 10_000
"""How long what was launched may take to be over after the body's last word."""


# -- inputs --


@dataclass(frozen=True, slots=True)
class HelloReceived:
    """A body asks to be welcomed. `killable`: it runs on this machine, its pid is known."""

    killable: bool


@dataclass(frozen=True, slots=True)
class Heard:
    """A beat, or anything else, came from the body."""


@dataclass(frozen=True, slots=True)
class BodyReported:
    report: BodyReport


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    pass


@dataclass(frozen=True, slots=True)
class LaunchOver:
    """What was launched is over; `error`: what went wrong with it."""

    error: str | None = None
    final: bool = False
    """Another try would end the same."""


@dataclass(frozen=True, slots=True)
class BodyDead:
    """The process with the body's pid is gone."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    grace_ms: int


@dataclass(frozen=True, slots=True)
class KillRequested:
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. To be given several times within `limit_ms`."""


RunInput: TypeAlias = (
    HelloReceived
    | Heard
    | BodyReported
    | ConnectionClosed
    | LaunchOver
    | BodyDead
    | StopRequested
    | KillRequested
    | Tick
)


# -- outputs --


@dataclass(frozen=True, slots=True)
class Welcome:
    """Give the body its spec."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Close the connection without a word: this body must not run."""


@dataclass(frozen=True, slots=True)
class Forward:
    """To the worker."""

    report: TaskReport


@dataclass(frozen=True, slots=True)
class KillLaunched:
    """Ask the launcher to end what it launched."""


@dataclass(frozen=True, slots=True)
class KillBody:
    """SIGKILL to the body's pid; `BodyDead` when it is gone."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the worker's end of the connection; `ConnectionClosed` follows."""


RunOutput: TypeAlias = Welcome | Refuse | Forward | KillLaunched | KillBody | Disconnect


def graceful_ms(spec: TaskSpec) -> int:
    """How long the task may take to close what it opened."""
    return int(spec.worker_settings.get("task.shutdown.graceful.timeout.ms", "5000"))


def cut_short(ending: TaskEnded, reason: str) -> TaskEnded:
    """`ending`, which a body was about to say when it had to be given up for `reason`."""
    reason_told = f"{ending.reason}; then {reason}" if ending.reason else reason
    return TaskEnded(ending.outcome, reason_told, ending.trace)


class RunMachine:
    """Reports `TaskEnded` once, then `TaskReleased` once, and nothing after it.

    Args:
        limit_ms: silence after which the body is given up (and after which it gives itself up).
        start_limit_ms: time for the body to connect.
        stop_limit_ms: time for a task that ends unasked to close what it opened.
    """

    def __init__(self, now_ms: int, limit_ms: int, start_limit_ms: int, stop_limit_ms: int) -> None:
        self._limit_ms = limit_ms
        self._stop_limit_ms = stop_limit_ms
        self._start_deadline_ms = now_ms + start_limit_ms
        self._tick_ms = now_ms
        self._silent_ms = 0
        self._stop_deadline_ms: int | None = None
        self._grace_ms = 0
        self._linger_deadline_ms: int | None = None
        self._lease_end_ms = now_ms
        """When a body on another machine that hears nothing more has ended itself."""
        self._welcomed = False
        self._killable = False
        self._connected = False
        self._ending: TaskEnded | None = None
        """How the body says that it is about to end."""
        self._last_word = False
        self._dead = False
        self._over = False
        self._over_by = ""
        """What went wrong with what was launched, in a line."""
        self._killed = False
        self._ended = False
        self.released = False

    @property
    def watching_pid(self) -> bool:
        """Whether the end of the body's process is awaited."""
        return self._killed and self._killable and not self._dead and not self.released

    def handle(self, now_ms: int, given: RunInput) -> list[RunOutput]:
        if self.released:
            return [Refuse()] if isinstance(given, HelloReceived) else []
        match given:
            case HelloReceived(killable):
                return self._hello(now_ms, killable)
            case Heard():
                self._hear()
                return []
            case BodyReported(report):
                self._hear()
                out = self._on_report(now_ms, report)
            case ConnectionClosed():
                out = self._closed(now_ms)
            case LaunchOver(error, final):
                out = self._launch_over(error, TaskOutcome.FAILED if final else TaskOutcome.LOST)
            case BodyDead():
                self._dead = True
                self._connected = False
                out = self._end(TaskOutcome.LOST, "its process is gone")
            case StopRequested(grace_ms):
                self._stop_by(now_ms, grace_ms)
                out = self._tick(now_ms)
            case KillRequested(reason):
                out = self._kill(reason)
            case Tick():
                out = self._tick(now_ms)
        return out + self._release(now_ms)

    def _hello(self, now_ms: int, killable: bool) -> list[RunOutput]:
        # Who was killed, given up or over before it came must not begin now; and a second body of
        # one run (Spark's own retry) would shut out the first.
        if self._welcomed or self._killed or self._over or self._ended:
            return [Refuse()]
        self._welcomed = self._connected = True
        self._killable = killable
        self._hear()
        return [Welcome()]

    def _hear(self) -> None:
        self._silent_ms = 0

    def _on_report(self, now_ms: int, report: BodyReport) -> list[RunOutput]:
        if isinstance(report, TaskClosing):
            self._ending = report.ending
            self._stop_by(now_ms, self._stop_limit_ms)
            return []
        if isinstance(report, TaskEnded):
            self._last_word = True
            self._linger_deadline_ms = now_ms + LINGER_MS
        if self._ended or isinstance(report, TaskReleased):
            return []
        self._ended = isinstance(report, TaskEnded)
        return [Forward(report)]

    def _closed(self, now_ms: int) -> list[RunOutput]:
        self._connected = False
        # From now on it hears nothing.
        self._lease_end_ms = now_ms + 2 * self._limit_ms
        if self._last_word:
            return []
        by = f"; {self._over_by}" if self._over_by else ""
        return self._kill(f"the connection to it closed without a last word{by}")

    def _launch_over(self, error: str | None, outcome: TaskOutcome) -> list[RunOutput]:
        self._over = True
        self._over_by = (error or "").strip().rpartition("\n")[2]
        if self._welcomed:
            return []  # its last word may still be on the way; else the connection tells
        return self._end(outcome, error or "it ended before it began")

    def _stop_by(self, now_ms: int, grace_ms: int) -> None:
        deadline_ms = now_ms + grace_ms
        if self._stop_deadline_ms is None or deadline_ms < self._stop_deadline_ms:
            self._stop_deadline_ms, self._grace_ms = deadline_ms, grace_ms

    def _tick(self, now_ms: int) -> list[RunOutput]:
        # A worker that was frozen itself has not listened: that is no silence of the body.
        self._silent_ms += min(now_ms - self._tick_ms, self._limit_ms // 4)
        self._tick_ms = now_ms
        if self._connected and not self._last_word and self._silent_ms >= self._limit_ms:
            return self._kill(f"nothing heard of it for {self._limit_ms} ms")
        if not self._welcomed and now_ms >= self._start_deadline_ms:
            return self._kill("it did not come up in time")
        if self._stop_deadline_ms is not None and now_ms >= self._stop_deadline_ms:
            return self._kill(f"it did not stop within {self._grace_ms} ms")
        if self._linger_deadline_ms is not None and now_ms >= self._linger_deadline_ms:
            return self._kill("it did not go after its last word")
        return []

    def _kill(self, reason: str) -> list[RunOutput]:
        if self._killed:
            return []
        self._killed = True
        out: list[RunOutput] = self._end(TaskOutcome.LOST, f"{reason}: killed")
        if not self._over:
            out.append(KillLaunched())
        # After its last word the process may be at work for another task already.
        if self._welcomed and self._killable and not self._last_word:
            out.append(KillBody())
        if self._connected:
            out.append(Disconnect())
        return out

    def _end(self, outcome: TaskOutcome, reason: str) -> list[RunOutput]:
        if self._ended:
            return []
        self._ended = True
        if self._ending is None:
            return [Forward(TaskEnded(outcome, reason))]
        return [Forward(cut_short(self._ending, reason))]

    def _release(self, now_ms: int) -> list[RunOutput]:
        if not (self._ended and self._over and self._is_quiet(now_ms)):
            return []
        self.released = True
        return [Forward(TaskReleased())]

    def _is_quiet(self, now_ms: int) -> bool:
        """Whether the body has acted for the last time."""
        if not self._welcomed or self._dead:
            return True
        if self._connected:
            return False
        if self._last_word:
            return True
        return not self._killable and now_ms >= self._lease_end_ms
