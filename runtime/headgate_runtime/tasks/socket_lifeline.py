"""The body's or host's end of a lifeline over a connection, and its watchdog."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from headgate import wire
from headgate.task.messages import BodyReport, LongCall, TaskCommand, TaskEnded, TaskSpec
from headgate_runtime.tasks.lifeline import (
    BodyLifeline,
    Command,
    Lifeline,
    LifelineGone,
    Silence,
    monotonic_ms,
)
from headgate_runtime.tasks.log_lines import Outbox
from headgate_runtime.tasks.protocol import (
    Beat,
    FromTask,
    FromWorker,
    HostCommand,
    HostWelcome,
    Invitation,
    ToHost,
    Welcome,
    encode,
    this_process,
)

_log = logging.getLogger("headgate.task")

CONNECT_TIMEOUT_S = 10.0
LOG_ROOM = 131_072
"""Characters of log records that may be sent before the worker is heard again. The system's buffers
hold them. So reports and beats need not wait behind them for a worker that hangs."""
EXIT_STATUS = 70
"""Exit status of a process that lost its lifeline before its task ended (EX_SOFTWARE)."""


class SocketLine(Lifeline[Command]):
    """A lifeline that connects, says hello and is welcomed, or raises `LifelineGone`.

    Once welcomed, the process is watched. If the lifeline is lost and `close` is not called within
    another `limit_ms`, the process is ended, whatever connector code is doing.
    """

    WELCOME: ClassVar[Any]
    WORDS: ClassVar[Any]
    """Union of all that the worker sends after its welcome."""

    def __init__(self, invitation: Invitation, leave: Callable[[int], object] = os._exit) -> None:
        self._leave = leave
        self._sending = threading.Lock()
        try:
            self._socket = socket.create_connection(
                (invitation.host, invitation.port), CONNECT_TIMEOUT_S
            )
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._lines = self._socket.makefile("rb")
            self._write(this_process(invitation.run, invitation.token))
            welcome = self._lines.readline()
        except OSError as error:
            raise LifelineGone(
                f"no worker at {invitation.host}:{invitation.port}: {error}"
            ) from error
        if not welcome:
            raise LifelineGone("the worker does not want this body: it was given up, or is running")
        try:
            greeting: Any = wire.loads(self.WELCOME, welcome)
        except wire.WireError as error:
            self._socket.close()
            where = f"{invitation.host}:{invitation.port}"
            raise LifelineGone(f"{where} answers, but is no worker of ours: {error}") from error
        super().__init__(greeting.limit_ms)
        self._name = invitation.task
        self._welcomed_with(greeting)
        self.outbox = Outbox() if greeting.logs else None
        """Log records for the worker's log. None: the worker does not take them."""
        self._takes_calls: bool = greeting.calls
        self._telling = threading.Lock()
        self._room = LOG_ROOM
        # A peer that stops reading must not hold up the body longer than the body's own limit.
        self._socket.settimeout(greeting.limit_ms / 1000)
        self._parent = os.getppid()
        self._over = threading.Event()
        for work in (self._read, self._watch):
            threading.Thread(target=work, name=f"lifeline-{work.__name__}", daemon=True).start()

    def _welcomed_with(self, greeting: Any) -> None:
        """Take the welcome, before anything else is read."""

    def tell(self, message: object) -> None:
        if isinstance(message, TaskEnded):
            self._tell_logs()  # after the last report nobody listens
        self._say(message)

    def close(self) -> None:
        super().close()
        self._over.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _say(self, message: object) -> None:
        try:
            self._write(message)
        except OSError as error:
            if not self.closed:
                self.lose(f"the connection to the worker broke: {error}")

    def _tell_logs(self) -> None:
        """Send waiting log records, as many as `LOG_ROOM` allows since the worker was last
        heard."""
        if self.outbox is None:
            return
        with self._telling:
            while self._room > 0 and not self.closed and self._lost is None:
                if (logged := self.outbox.next()) is None:
                    return
                self._room -= len(logged.text)
                self._say(logged)

    def _write(self, message: object) -> None:
        with self._sending:
            self._socket.sendall(encode(message))

    def _read(self) -> None:
        reason = "the worker closed the connection"
        while not self.closed:
            try:
                line = self._lines.readline()
            except TimeoutError:
                reason = f"nothing heard for {self._silence.limit_ms} ms"
                break
            except (OSError, ValueError) as error:
                reason = f"the connection to the worker broke: {error}"
                break
            if not line.endswith(b"\n"):
                break
            try:
                message: Any = wire.loads(self.WORDS, line)
            except wire.WireError as error:
                reason = f"the worker said what cannot be read: {error}"
                break
            self.heard()
            self._room = LOG_ROOM
            if not isinstance(message, Beat | self.WELCOME):
                self.deliver(message)
        if not self.closed:
            self.lose(reason)

    def _watch(self) -> None:
        """Send beats. End the process if the lifeline is lost and the body does not end."""
        limit_ms = self._silence.limit_ms
        lost_ms: int | None = None
        while not self._over.wait(limit_ms / 10_000):
            if os.getppid() != self._parent:
                self.lose("the parent process is gone")
            if self.lost is None:
                self._say(Beat())
                self._tell_logs()
                continue
            if lost_ms is None:
                lost_ms = monotonic_ms()
            elif monotonic_ms() - lost_ms >= limit_ms:
                _log.error("%s: lifeline lost, task did not end: %s", self._name, self._lost)
                self._leave(EXIT_STATUS)
                return


class SocketLifeline(SocketLine[TaskCommand], BodyLifeline):
    """Lifeline of one task's body. Its welcome has the task's spec."""

    WELCOME = Welcome
    WORDS = FromWorker

    @property
    def spec(self) -> TaskSpec:
        return self._spec

    def report(self, report: BodyReport) -> None:
        if self._takes_calls or not isinstance(report, LongCall):
            self.tell(report)

    def _welcomed_with(self, greeting: Welcome) -> None:
        self._spec = greeting.spec


class HostLifeline(SocketLine[HostCommand]):
    """Lifeline of a host, shared by all of its tasks."""

    WELCOME = HostWelcome
    WORDS = ToHost

    @property
    def silence(self) -> Silence:
        return self._silence

    def report(self, run: str, report: BodyReport) -> None:
        """Send the report of one task."""
        if self._takes_calls or not isinstance(report, LongCall):
            self.tell(FromTask(run, report))
