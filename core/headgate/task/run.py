"""Machine of one run of a task, as its runner sees it: when the run counts as ended and as
released, and when the body is killed.

The runner may report `TaskReleased` only when nothing of the run can act any more, because another
worker may then start the task at once. These facts decide:

- A body acts only after it was welcomed (it gets its spec over the lifeline), and never after
`TaskEnded`, its last report, which it sends when everything is closed.
- When the launched job is over, the body may still live: a cancelled Spark job leaves its Python
worker behind. A closed connection proves nothing either, since a living process can close it.
- A dead process is known to be dead by its pid, if the body runs on this machine.
- A body on another machine ends itself after `limit_ms` without a message. If it cannot, its
process ends after the same time again.
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
"""Time within which the launched job must be over after the body's last report."""


# -- inputs --


@dataclass(frozen=True, slots=True)
class HelloReceived:
    """A body asks to be welcomed. `killable`: it runs on this machine, and its pid is known."""

    killable: bool


@dataclass(frozen=True, slots=True)
class Heard:
    """A heartbeat or another message came from the body."""


@dataclass(frozen=True, slots=True)
class BodyReported:
    report: BodyReport


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    pass


@dataclass(frozen=True, slots=True)
class LaunchOver:
    """The launched job is over; `error` says what went wrong with it."""

    error: str | None = None
    final: bool = False
    """Whether another try would end the same way."""


@dataclass(frozen=True, slots=True)
class BodyDead:
    """The process with the body's pid has ended."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    grace_ms: int


@dataclass(frozen=True, slots=True)
class KillRequested:
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. It must be given several times within `limit_ms`."""


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
    """Close the connection without an answer: this body must not run."""


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass a report on to the worker."""

    report: TaskReport


@dataclass(frozen=True, slots=True)
class KillLaunched:
    """Ask the launcher to kill what it launched."""


@dataclass(frozen=True, slots=True)
class KillBody:
    """Send SIGKILL to the body's pid; `BodyDead` follows when the process has ended."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the worker's end of the connection; `ConnectionClosed` follows."""


RunOutput: TypeAlias = Welcome | Refuse | Forward | KillLaunched | KillBody | Disconnect


def graceful_ms(spec: TaskSpec) -> int:
    """Return the time that the task may take to close what it opened."""
    return int(spec.worker_settings.get("task.shutdown.graceful.timeout.ms", "5000"))


def cut_short(ending: TaskEnded, reason: str) -> TaskEnded:
    """Return the end that a body was about to report, with `reason` added to its text. The body was
    given up for `reason` before it could report."""
    reason_told = f"{ending.reason}; then {reason}" if ending.reason else reason
    return TaskEnded(ending.outcome, reason_told, ending.trace)


class RunMachine:
    """Life of one run. It reports `TaskEnded` once, then `TaskReleased` once, and nothing after it.

    Args:
        limit_ms: Silence after which the body is given up (and after which it gives itself up).
        start_limit_ms: Time for the body to connect.
        stop_limit_ms: Time for a task that ends without being asked to close what it opened.
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
        """Time at which a body on another machine has ended itself if it receives nothing more."""
        self._welcomed = False
        self._killable = False
        self._connected = False
        self._ending: TaskEnded | None = None
        """Ending that the body has announced."""
        self._last_word = False
        self._dead = False
        self._over = False
        self._over_by = ""
        """Error of the launched job, in one line."""
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
        # A body that was killed, given up or over before it connected must not begin now. A second
        # body of the same run (Spark's own retry) would fence the first.
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
        # From now on the body receives nothing.
        self._lease_end_ms = now_ms + 2 * self._limit_ms
        if self._last_word:
            return []
        by = f"; {self._over_by}" if self._over_by else ""
        return self._kill(f"the connection to it closed without a last word{by}")

    def _launch_over(self, error: str | None, outcome: TaskOutcome) -> list[RunOutput]:
        self._over = True
        self._over_by = (error or "").strip().rpartition("\n")[2]
        if self._welcomed:
            return []  # its last report may still arrive; if not, the closed connection shows it
        return self._end(outcome, error or "it ended before it began")

    def _stop_by(self, now_ms: int, grace_ms: int) -> None:
        deadline_ms = now_ms + grace_ms
        if self._stop_deadline_ms is None or deadline_ms < self._stop_deadline_ms:
            self._stop_deadline_ms, self._grace_ms = deadline_ms, grace_ms

    def _tick(self, now_ms: int) -> list[RunOutput]:
        # While the worker itself was frozen it did not listen, so that time is no silence of the
        # body.
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
        # After its last report the process may already work for another task.
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
        """Return whether the body can no longer act."""
        if not self._welcomed or self._dead:
            return True
        if self._connected:
            return False
        if self._last_word:
            return True
        return not self._killable and now_ms >= self._lease_end_ms
