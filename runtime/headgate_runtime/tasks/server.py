"""The worker's end of the lifelines: one listener for all tasks that run outside its process."""

import contextlib
import hmac
import logging
import socket
import threading
import time
from typing import Any, Protocol

from headgate import wire
from headgate_runtime.tasks.protocol import FromBody, Hello, encode

_log = logging.getLogger("headgate.task")

LOOPBACK = "127.0.0.1"
HELLO_TIMEOUT_S = 10.0
"""Time in which a caller must have sent its hello, in seconds, however it spreads the bytes."""
HELLO_BYTES_MAX = 16_384
ACCEPT_AGAIN_S = 0.2


class Connection:
    """One body's connection. Beats fit into the system's buffers, so `say` does not wait."""

    def __init__(self, connected: socket.socket, limit_ms: int) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self._limit_ms = limit_ms
        self._sending = threading.Lock()

    def hello(self) -> Hello:
        """Return the first line, from a caller that may be anybody.

        Raises:
            OSError, WireError: it does not come, or is not a hello.
        """
        line, until = bytearray(), time.monotonic() + HELLO_TIMEOUT_S
        while not line.endswith(b"\n"):
            if len(line) == HELLO_BYTES_MAX:
                raise wire.WireError(f"a first line of more than {HELLO_BYTES_MAX} bytes")
            # Byte by byte, because `line` reads what follows.
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            byte = self._socket.recv(1)
            if not byte:
                raise wire.WireError(f"the end after {bytes(line[:80])!r}")
            line += byte
        hello: Hello = wire.loads(Hello, bytes(line))
        return hello

    def greeted(self) -> None:
        # The runner judges silence. This only keeps a thread from waiting for ever.
        self._socket.settimeout(4 * self._limit_ms / 1000)
        self._lines = self._socket.makefile("rb")

    def line(self) -> bytes:
        """Return the next line after the hello, from a known body."""
        return self._lines.readline()

    def say(self, message: object) -> bool:
        """Send a message. Return whether it was sent; if not, the connection is of no further
        use."""
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
    """A runner, which is told what bodies report, by one thread per connection."""

    def token(self, run: str) -> str | None: ...

    def arrived(self, hello: Hello, connection: Connection) -> bool:
        """Return whether the body may stay. If so, it has been welcomed."""
        ...

    def reported(self, run: str, message: Any) -> None: ...

    def left(self, run: str) -> None: ...


class LifelineServer:
    def __init__(self, limit_ms: int, host: str = LOOPBACK) -> None:
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
        # A thread in accept() would keep the port open. A shutdown wakes it.
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
                # Perhaps we are out of descriptors. That passes, and without the listener no task
                # would start.
                _log.warning("lifelines: a caller was not accepted: %s", error)
                continue
            threading.Thread(
                target=self._serve, args=(connected,), name="lifeline", daemon=True
            ).start()

    def _serve(self, connected: socket.socket) -> None:
        with connected:  # in any case it is closed
            try:
                connection = Connection(connected, self._limit_ms)
                hello = connection.hello()
            except (OSError, wire.WireError) as error:
                _log.warning("lifeline: a caller that does not say who it is: %s", error)
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
                # As bytes: with texts, it takes ASCII only.
                same = hmac.compare_digest(token.encode(), hello.token.encode(errors="replace"))
                return guests if same else None
        return None

    def _listen(self, run: str, guests: Guests, connection: Connection) -> None:
        try:
            connection.greeted()
        except OSError:  # it was closed while it was welcomed
            return
        while True:
            try:
                line = connection.line()
            except (OSError, ValueError):
                return
            if not line.endswith(b"\n"):
                return
            try:
                guests.reported(run, wire.loads(FromBody, line))
            except wire.WireError:
                _log.exception("lifeline of %s: what is this?", run)
                return
