"""The worker's side of the front process, which accepts the REST server's connections
(`headgate_rest.front_process`).

For each listener there is a socket pair over which the process passes connections, each with one
byte. Over one more socket the process sends "h" (how is the worker?) and "l" (the limit of
connections is reached), and gets the answer of `/health`.
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
    """The source of the answers of `/health`."""

    ask: Callable[[], Coroutine[Any, Any, HttpResponse]]
    """Returns the current answer. It raises nothing."""
    hung: HttpResponse
    """The answer if `ask` does not return in time."""
    fresh_s: float = 10.0
    """How long a healthy answer may be used again. The herder may take as long to answer."""
    hung_s: float = 12.0
    """How long `ask` is waited for. After 11 s it says itself that the herder is late."""


class PassedConnections(ListeningSocket):
    """A socket in place of a listening one, which accepts connections that the process passes."""

    def listen(self, backlog: int = 0, /) -> None:
        """Do nothing, because the process listens."""

    def plain_accept(self) -> tuple[socket.socket, Any]:
        """Return the next passed connection and its client's address.

        Raises:
            BlockingIOError: there is none.
            ConnectionAbortedError: its client has gone.
            OSError: this process has no descriptor left for it, with `errno.EMFILE`.
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
    """The front process and the sockets to it. The process is started again when it has ended."""

    def __init__(
        self,
        listeners: Sequence[tuple[socket.socket, bool, bool]],
        connections: Connections,
        rules: Sequence[HeaderRule],
        health: Health,
    ) -> None:
        """Start the process.

        Args:
            listeners: each listening socket, with whether it is plain HTTP, and whether it answers
                `/health`.

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
        """Sockets from which passed connections are accepted, one for each of `listeners`."""
        self._channels: list[socket.socket] = []
        for _ in listeners:
            near, far = socket.socketpair()
            self.sockets.append(PassedConnections(fileno=near.detach()))
            self._channels.append(far)
        # The far ends stay open in this process too, for the next front process.
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
        """End the process. No further connections come."""
        self._closing = True
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)
        self._thread.join(STOP_S)

    def close(self) -> None:
        """Close all sockets. The server must accept no more from them."""
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

    # -- the thread that answers `/health` --

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
