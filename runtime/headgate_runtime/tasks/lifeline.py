"""The body's end of the lifeline: commands come down, reports go up, and both ends beat.

A frozen worker keeps its connection open, so only silence tells. If a body hears nothing for
`limit_ms` (half of `session.timeout.ms`), it commits nothing more. Its worker may be out of the
group by then, and the task may be another worker's.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from headgate.task.messages import (
    BodyReport,
    PauseTask,
    ResumeTask,
    StopTask,
    TaskCommand,
    TaskSpec,
)

Command = TypeVar("Command")


class LifelineGone(Exception):
    """The worker is silent or gone. Nothing more may be committed."""


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Silence:
    """Watch for a silence of the other end longer than `limit_ms`. Once one is seen, it counts for
    good.

    It latches because a process that was frozen itself finds messages of the other end waiting when
    it wakes. They prove nothing about the time between.
    """

    def __init__(self, limit_ms: int, now_ms: int) -> None:
        self.limit_ms = limit_ms
        self._last_ms = now_ms
        self._longest_ms = 0

    def heard(self, now_ms: int) -> None:
        self.broken(now_ms)
        self._last_ms = max(self._last_ms, now_ms)

    def broken(self, now_ms: int) -> str | None:
        """Return why the other end must be taken for gone, or None."""
        self._longest_ms = max(self._longest_ms, now_ms - self._last_ms)
        if self._longest_ms < self.limit_ms:
            return None
        return f"nothing heard for {self._longest_ms} ms, the limit is {self.limit_ms} ms"


class Lifeline(Generic[Command]):
    """What all lifelines share. One thread takes commands; others may `deliver` them."""

    def __init__(self, limit_ms: int, silence: Silence | None = None) -> None:
        """Share `silence` with the line that this one is part of, if given."""
        self._silence = silence or Silence(limit_ms, monotonic_ms())
        self._commands: deque[Command] = deque()
        self._changed = threading.Condition()
        self._lost: str | None = None
        self.closed = False

    def close(self) -> None:
        """Mark the lifeline as closed: nothing more is sent."""
        self.closed = True

    # -- for the thread that takes --

    @property
    def lost(self) -> str | None:
        """Why the lifeline must be taken for gone, or None. Reading it looks at the clock."""
        if self._lost is None and (reason := self._silence.broken(monotonic_ms())):
            self.lose(reason)
        return self._lost

    def check(self) -> None:
        """Call right before a commit. Raises `LifelineGone` if nothing more may be committed."""
        if reason := self.lost:
            raise LifelineGone(reason)

    def take(self, timeout_s: float = 0.0) -> list[Command]:
        """Return the commands that have arrived. If there are none, wait for one up to `timeout_s`,
        or until the lifeline is lost."""
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(lambda: self._commands or self._lost, timeout_s)
            taken = list(self._commands)
            self._commands.clear()
            return taken

    # -- for the thread that reads messages of the other end --

    def heard(self) -> None:
        self._silence.heard(monotonic_ms())

    def deliver(self, command: Command) -> None:
        with self._changed:
            self._commands.append(command)
            self._arrived(command)
            self._changed.notify_all()

    def _arrived(self, command: Command) -> None:
        """Handle a new command, under the lock, before `take` returns it."""

    def lose(self, reason: str) -> None:
        with self._changed:
            if self._lost is None:
                self._lost = reason
            self._changed.notify_all()


class BodyLifeline(Lifeline[TaskCommand], ABC):
    """The lifeline of one task's body."""

    def __init__(self, limit_ms: int, silence: Silence | None = None) -> None:
        super().__init__(limit_ms, silence)
        self._attention = threading.Event()
        """Set while the task should return from a long `poll`: after a stop, a pause or a loss."""
        self._stopping = False

    @property
    @abstractmethod
    def spec(self) -> TaskSpec: ...

    @abstractmethod
    def report(self, report: BodyReport) -> None: ...

    @property
    def stopping(self) -> bool:
        return self._stopping or self._lost is not None

    def now_ms(self) -> int:
        """Return the body's clock in ms: the machine's, except in tests in virtual time."""
        return monotonic_ms()

    def wait(self, seconds: float) -> bool:
        return self._attention.wait(seconds)

    def lose(self, reason: str) -> None:
        super().lose(reason)
        self._attention.set()

    def _arrived(self, command: TaskCommand) -> None:
        match command:
            case StopTask():
                self._stopping = True
                self._attention.set()
            case PauseTask():
                self._attention.set()
            case ResumeTask() if not self._stopping and self._lost is None:
                self._attention.clear()
            case _:
                pass


class MemoryLifeline(BodyLifeline):
    """A lifeline between threads of one process. No connection can break, but the process may be
    frozen, so the worker's end beats here, too. In a host, the silence is that of the host's
    lifeline."""

    def __init__(
        self,
        spec: TaskSpec,
        limit_ms: int,
        report: Callable[[BodyReport], None],
        silence: Silence | None = None,
    ) -> None:
        super().__init__(limit_ms, silence)
        self._spec = spec
        self._report = report

    @property
    def spec(self) -> TaskSpec:
        return self._spec

    def report(self, report: BodyReport) -> None:
        if not self.closed:
            self._report(report)
