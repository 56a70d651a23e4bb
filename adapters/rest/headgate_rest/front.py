"""The worker's side of the process that accepts its connections, see `headgate_rest.front_process`.

Between the two: for each listener a stream of bytes, each with a connection; and one socket over
which the process says "h" (how is the worker) and "l" (the limit of connections is reached), and is
told what `/health` answers.
"""

import asyncio
import contextlib
import errno
import json
import logging
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from headgate_rest.answer_headers import answer_headers, last_answer, status_line
from headgate_rest.connections import ABOUT_LIMIT, Connections, ListeningSocket
from headgate_rest.http import HttpResponse, error_response
from headgate_rest.limits import SeldomLog
from headgate_rest.settings import HeaderRule
from headgate_rest.translate import RETRY_LATER

log = logging.getLogger(__name__)
log.addFilter(SeldomLog())

PROGRAM: Final = Path(__file__).with_name("front_process.py")
STOP_S: Final = 2
ABOUT_BUSY: Final = (
    "The worker has not taken {} requests yet, as many as it may have connections "
    "(headgate.rest.connections.max); ask again"
)


@dataclass(frozen=True, slots=True)
class Health:
    """Who knows what `/health` answers."""

    ask: Callable[[], Coroutine[Any, Any, HttpResponse]]
    """How the worker is now; it raises nothing."""
    hung: HttpResponse
    """The answer when the worker does not even say that."""
    fresh_s: float = 10.0
    """How long a worker that was healthy counts as such: as long as its herder may take."""
    hung_s: float = 12.0
    """How long its word is waited for. After 11 s it says itself that its herder is late."""


class PassedConnections(ListeningSocket):
    """Takes the place of a listening socket: accepts what the process passes on."""

    def listen(self, backlog: int = 0, /) -> None:
        """The process listens."""

    def plain_accept(self) -> tuple[socket.socket, Any]:
        """
        Raises:
            BlockingIOError: there is none.
            ConnectionAbortedError: its client has gone.
            OSError: there is no descriptor for it, with `errno.EMFILE`.
        """
        flags = socket.MSG_CMSG_CLOEXEC
        _, descriptors, seen, _ = socket.recv_fds(self, 1, 1, flags)
        if seen & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "Too many open files")
        if not descriptors:
            raise BlockingIOError
        passed = socket.socket(fileno=descriptors[0])
        try:
            return passed, passed.getpeername()
        except OSError:
            passed.close()
            raise ConnectionAbortedError from None


class Front:
    """The process and what it is spoken with. It is started again when it has ended."""

    def __init__(
        self,
        listeners: Sequence[tuple[socket.socket, bool, bool]],
        connections: Connections,
        rules: Sequence[HeaderRule],
        health: Health,
    ) -> None:
        """
        Args:
            listeners: each with whether it speaks plain HTTP, and whether it answers `/health`.
        Raises:
            OSError: the process could not be started.
        """
        if not hasattr(select, "epoll"):
            raise OSError(errno.ENOSYS, "this system has no epoll")
        self._listeners = listeners
        self._connections = connections
        self._rules = rules
        self._health = health
        self.sockets: list[PassedConnections] = []
        """One for each of `listeners`."""
        self._channels: list[socket.socket] = []
        for _ in listeners:
            near, far = socket.socketpair()
            self.sockets.append(PassedConnections(fileno=near.detach()))
            self._channels.append(far)
        # The far ends stay open here, for the next process.
        self._near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._closing = False
        self._thread = threading.Thread(target=self._listen, name="rest-health", daemon=True)
        try:
            self._process = self._started()
        except OSError:
            self.close()
            raise
        self._thread.start()

    def look(self) -> None:
        """Start the process again if it has ended."""
        code = self._process.poll()
        if code is None or self._closing:
            return
        log.warning(
            "the process that accepts REST connections ended with code %d; it is started again",
            code,
        )
        try:
            self._process = self._started()
        except OSError as error:
            log.warning("it cannot be started (%s); this is tried again each second", error)

    def stop(self) -> None:
        """No connection comes any more."""
        self._closing = True
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)
        self._thread.join(STOP_S)

    def close(self) -> None:
        """Once nobody accepts from `sockets` any more."""
        for each in (*self.sockets, *self._channels, self._near, self._far):
            each.close()

    def _started(self) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[
                self._far.fileno(),
                *(listener.fileno() for listener, _, _ in self._listeners),
                *(channel.fileno() for channel in self._channels),
            ],
        )
        assert process.stdin is not None
        with process.stdin as pipe, contextlib.suppress(BrokenPipeError):
            pipe.write(json.dumps(self._settings()).encode() + b"\n")
        return process

    def _settings(self) -> dict[str, Any]:
        limits = self._connections.limits
        return {
            "listeners": [
                {
                    "listener": listener.fileno(),
                    "channel": channel.fileno(),
                    "plain": plain,
                    "health": health,
                }
                for (listener, plain, health), channel in zip(
                    self._listeners, self._channels, strict=True
                )
            ],
            "control": self._far.fileno(),
            "connections": self._connections.max,
            "read_timeout_s": limits.read_timeout_s,
            "head_bytes": limits.header_bytes,
            "headers": limits.headers,
            "fresh_s": self._health.fresh_s,
            "hung_s": self._health.hung_s,
            "late": last_answer(error_response(408, limits.late_text)).decode("latin-1"),
            "busy": last_answer(self._busy()).decode("latin-1"),
            "hung": self._plain(self._health.hung),
        }

    def _busy(self) -> HttpResponse:
        return error_response(503, ABOUT_BUSY.format(self._connections.max), RETRY_LATER)

    # -- the thread that says how the worker is --

    def _listen(self) -> None:
        with asyncio.Runner() as runner:
            while True:
                try:
                    asked = self._near.recv(1)
                    if not asked:
                        return
                    if asked == b"l":
                        log.warning(ABOUT_LIMIT, self._connections.max)
                        continue
                    answer = runner.run(self._health.ask())
                    self._near.send(json.dumps(self._plain(answer)).encode())
                except OSError:
                    if self._closing:
                        return
                    raise

    def _plain(self, answer: HttpResponse) -> dict[str, Any]:
        return {
            "status": status_line(answer.status),
            "headers": [
                (
                    name.decode("latin-1"),
                    value if isinstance(value, int) else value.decode("latin-1"),
                )
                for name, value in answer_headers(answer, self._rules)
            ],
            "body": answer.body.decode("latin-1"),
            "keeps": answer.status == HTTPStatus.OK,
        }
