"""The worker's end of the lifelines: one listener for all tasks that run outside its process."""

import contextlib
import hmac
import logging
import socket
import threading
from typing import Any, Protocol

from headgate import wire
from headgate_runtime.tasks.protocol import FromBody, Hello, encode

_log = logging.getLogger("headgate.task")

HELLO_TIMEOUT_S = 10.0
ACCEPT_AGAIN_S = 0.2


class Connection:
    """One body's connection. Beats fit into the system's buffers, so `say` does not wait."""

    def __init__(self, connected: socket.socket, limit_ms: int) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.settimeout(HELLO_TIMEOUT_S)
        self._socket = connected
        self._limit_ms = limit_ms
        self._sending = threading.Lock()
        self.lines = connected.makefile("rb")

    def greeted(self) -> None:
        # Silence is judged by the runner; this only keeps a thread from waiting for ever.
        self._socket.settimeout(4 * self._limit_ms / 1000)

    def say(self, message: object) -> bool:
        """Whether it could be said; else the connection is of no use any more."""
        try:
            with self._sending:
                self._socket.sendall(encode(message))
        except OSError:
            return False
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Guests(Protocol):
    """Who runs the tasks: told of what bodies say, from one thread per connection."""

    def token(self, run: str) -> str | None: ...

    def arrived(self, hello: Hello, connection: Connection) -> bool:
        """Whether the body may stay; it has been welcomed then."""
        ...

    def reported(self, run: str, message: Any) -> None: ...

    def left(self, run: str) -> None: ...


class LifelineServer:
    def __init__(self, limit_ms: int, host: str = "127.0.0.1") -> None:
        self._limit_ms = limit_ms
        self._listener = socket.create_server((host, 0), backlog=256)
        self.host, self.port = self._listener.getsockname()[:2]
        self._guests: list[Guests] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="lifelines", daemon=True)
        self._thread.start()

    def add(self, guests: Guests) -> None:
        self._guests.append(guests)

    def close(self) -> None:
        self._closed.set()
        # A thread in accept() would keep the port open: shutdown wakes it.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError as error:
                if self._closed.wait(ACCEPT_AGAIN_S):
                    return
                # Out of descriptors, perhaps: that passes, and without us no task would come up.
                _log.warning("lifelines: a caller was not accepted: %s", error)
                continue
            threading.Thread(
                target=self._serve, args=(connected,), name="lifeline", daemon=True
            ).start()

    def _serve(self, connected: socket.socket) -> None:
        connection = Connection(connected, self._limit_ms)
        try:
            hello: Hello = wire.loads(Hello, connection.lines.readline())
        except (OSError, wire.WireError) as error:
            _log.warning("lifeline: a caller that does not say who it is: %s", error)
            connection.close()
            return
        guests = self._host_of(hello)
        if guests is None or not guests.arrived(hello, connection):
            connection.close()
            return
        try:
            self._listen(hello.run, guests, connection)
        finally:
            connection.close()
            guests.left(hello.run)

    def _host_of(self, hello: Hello) -> Guests | None:
        for guests in self._guests:
            token = guests.token(hello.run)
            if token is not None:
                return guests if hmac.compare_digest(token, hello.token) else None
        return None

    def _listen(self, run: str, guests: Guests, connection: Connection) -> None:
        connection.greeted()
        while True:
            try:
                line = connection.lines.readline()
            except (OSError, ValueError):
                return
            if not line.endswith(b"\n"):
                return
            try:
                guests.reported(run, wire.loads(FromBody, line))
            except wire.WireError:
                _log.exception("lifeline of %s: what is this?", run)
                return
