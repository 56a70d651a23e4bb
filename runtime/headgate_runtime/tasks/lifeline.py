"""The body's end of the lifeline: commands come down, reports go up, both ends beat.

A worker that is frozen keeps its connection open, so only silence tells. The body's rule: nothing
heard for `limit_ms` (half of `session.timeout.ms`) and it commits nothing more, because its worker
may be out of the group and the task another's by now.
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
    """Whether the other end was silent for longer than `limit_ms`, once: for good.

    It latches, because who was frozen itself finds, on waking, words of the other end waiting to be
    read: they prove nothing about the time between.
    """

    def __init__(self, limit_ms: int, now_ms: int) -> None:
        self.limit_ms = limit_ms
        self._last_ms = now_ms
        self._longest_ms = 0

    def heard(self, now_ms: int) -> None:
        self.broken(now_ms)
        self._last_ms = max(self._last_ms, now_ms)

    def broken(self, now_ms: int) -> str | None:
        """Why the other end must be taken for gone, or None."""
        self._longest_ms = max(self._longest_ms, now_ms - self._last_ms)
        if self._longest_ms < self.limit_ms:
            return None
        return f"nothing heard for {self._longest_ms} ms, the limit is {self.limit_ms} ms"


class Lifeline(Generic[Command]):
    """What all lifelines share; one thread takes, others may `deliver`."""

    def __init__(self, limit_ms: int, silence: Silence | None = None) -> None:
        """`silence`: of the line that this one is part of."""
        self._silence = silence or Silence(limit_ms, monotonic_ms())
        self._commands: deque[Command] = deque()
        self._changed = threading.Condition()
        self._lost: str | None = None
        self.closed = False

    def close(self) -> None:
        """Nothing more will be said."""
        self.closed = True

    # -- for who takes --

    @property
    def lost(self) -> str | None:
        """Why the lifeline must be taken for gone; looks at the clock itself."""
        if self._lost is None and (reason := self._silence.broken(monotonic_ms())):
            self.lose(reason)
        return self._lost

    def check(self) -> None:
        """Raises `LifelineGone` when nothing more may be committed. To be called right before."""
        if reason := self.lost:
            raise LifelineGone(reason)

    def take(self, timeout_s: float = 0.0) -> list[Command]:
        """Commands that have arrived; waits for one at most `timeout_s`, or until the loss."""
        with self._changed:
            if timeout_s > 0:
                self._changed.wait_for(lambda: self._commands or self._lost, timeout_s)
            taken = list(self._commands)
            self._commands.clear()
            return taken

    # -- for who reads the other end's words --

    def heard(self) -> None:
        self._silence.heard(monotonic_ms())

    def deliver(self, command: Command) -> None:
        with self._changed:
            self._commands.append(command)
            self._arrived(command)
            self._changed.notify_all()

    def _arrived(self, command: Command) -> None:
        """Under the lock, before `take` gives it out."""

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
        """Set while the task should return from a long `poll`: stop, pause or loss."""
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
        """Clock of the body: the machine's, but for tests in virtual time."""
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
    """Between threads of one process. There is no connection that could break, but the process may
    be frozen; so the worker's end beats here as well. In a host the silence is that of the host's
    own lifeline."""

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
