"""Connections of all listeners together: how many there are, and how long each one may wait.

uvicorn's own limit (`limit_concurrency`) counts requests: a connection that says nothing passes it,
and each refusal is a line in the log. So connections are counted where they are accepted.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from headgate_rest.limits import SELDOM_S, Limits, SeldomLog
from headgate_rest.memory import give_back

log = logging.getLogger(__name__)
log.addFilter(SeldomLog())

NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
SLACK: Final = 8
"""Evicted connections end in the loop's next turn; so many more may be open until then. It bounds
how many are accepted in one turn, too."""
GIVE_BACK_BYTES: Final = 16_777_216
EMERGENCY_PAUSE_S: Final = 0.01
ABOUT_LIMIT: Final = (
    "the REST server has %d connections, its limit (headgate.rest.connections.max, or a quarter "
    "of the descriptors that ulimit -n allows): for each new one, the one that has waited longest "
    "for a request is closed"
)
ABOUT_DESCRIPTORS: Final = (
    "the worker is out of file descriptors (%s): the REST server refuses new connections. "
    "Raise ulimit -n, or lower headgate.rest.connections.max"
)


class Connection:
    """One that was accepted; it waits for a request, or its request is being answered."""

    __slots__ = ("end", "expire", "held", "served", "since", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.since = 0.0
        """Monotonic seconds at which the present wait began."""
        self.served = False
        """A request of it was answered."""
        self.held = 0
        """Bytes of its body that are in memory."""
        self.end: Callable[[], None] = self.hang_up
        """Ends it at once."""
        self.expire: Callable[[], None] = self.hang_up
        """Ends it because it has waited too long; it may be told."""

    def hang_up(self) -> None:
        """For the loop it is as if the client had gone; so a TLS handshake ends, too."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class _AcceptedSocket(socket.socket):
    """Says when it is closed."""

    closed: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        closed, self.closed = self.closed, None
        if closed is not None:
            closed()


class Connections:
    """Belongs to the server's loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.max = limits.connections_here()
        self.held = 0
        """Bytes of bodies in memory."""
        self._all: dict[int, Connection] = {}
        # The one that has waited longest is first. Those that never asked anything go first.
        self._new: OrderedDict[Connection, None] = OrderedDict()
        self._kept: OrderedDict[Connection, None] = OrderedDict()
        self._spare = _spare()
        self._told = -SELDOM_S
        self._passed_through = 0
        """Bytes of bodies since memory was last given back."""

    def __len__(self) -> int:
        return len(self._all)

    def close(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    # -- accepting --

    def accept(self, listener: "ListeningSocket") -> tuple[socket.socket, Any]:
        """The next connection, as `socket.accept` has it.

        Raises:
            BlockingIOError: there is none, or it has to wait for the loop's next turn.
        """
        if len(self._all) >= self.max + SLACK:
            raise BlockingIOError
        try:
            sock, address = listener.plain_accept()
        except OSError as error:
            if error.errno not in NO_DESCRIPTORS:
                raise
            self._refuse_one(listener, error)
            raise BlockingIOError from None
        if len(self._all) >= self.max:
            self._tell_limit()
            if not self.evict():
                sock.close()
                raise BlockingIOError
        return self._counted(sock), address

    def _tell_limit(self) -> None:
        """Once a minute: a record for each connection would cost more than the connection."""
        now = time.monotonic()
        if now >= self._told + SELDOM_S:
            self._told = now
            log.warning(ABOUT_LIMIT, self.max)

    def _counted(self, sock: socket.socket) -> socket.socket:
        counted = _AcceptedSocket(sock.family, sock.type, sock.proto, fileno=sock.detach())
        number, connection = counted.fileno(), Connection(counted)
        counted.closed = lambda: self._gone(number)
        self._all[number] = connection
        self.waits(connection)
        return counted

    def _refuse_one(self, listener: "ListeningSocket", error: OSError) -> None:
        """With no descriptor left, the spare one serves to accept and close: else the listener
        would stay readable, and the loop would do nothing but try."""
        log.warning(ABOUT_DESCRIPTORS, error.strerror)
        self.evict()
        if self._spare is None:
            time.sleep(EMERGENCY_PAUSE_S)
        else:
            os.close(self._spare)
            with contextlib.suppress(OSError):
                listener.plain_accept()[0].close()
        self._spare = _spare()

    def _gone(self, number: int) -> None:
        connection = self._all.pop(number)
        self._forget(connection)
        self.release(connection)

    # -- waiting --

    def of(self, number: int) -> Connection | None:
        """The connection whose socket has this descriptor."""
        return self._all.get(number)

    def waits(self, connection: Connection) -> None:
        """For a request, from now on."""
        self._forget(connection)
        connection.since = time.monotonic()
        (self._kept if connection.served else self._new)[connection] = None

    def works(self, connection: Connection) -> None:
        """The connection's request is complete and is being answered."""
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._new.pop(connection, None)
        self._kept.pop(connection, None)

    def evict(self) -> bool:
        """Close the one that has waited longest. False: all have requests that are answered."""
        for order in (self._new, self._kept):
            if order:
                connection, _ = order.popitem(last=False)
                connection.end()
                return True
        return False

    async def look(self, more: Callable[[], None] | None = None) -> None:
        """End those that wait too long, and do `more`, each second; never returns."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.read_timeout_s / 4))
            if more is not None:
                more()
            self.expire_overdue(time.monotonic() - self.limits.read_timeout_s)
            if self._passed_through >= GIVE_BACK_BYTES and not self.held:
                self._passed_through = 0
                await asyncio.to_thread(give_back)

    def expire_overdue(self, begun_before: float) -> None:
        """End connections that have waited since `begun_before`, in monotonic seconds."""
        for order in (self._new, self._kept):
            while order and (connection := next(iter(order))).since <= begun_before:
                self.waits(connection)  # for its end, which its client may delay
                connection.expire()

    # -- bodies --

    def hold(self, connection: Connection, count: int) -> bool:
        """`count` more bytes of a body are in memory. False: there is no room for them, though
        bodies that have been coming for longest were dropped."""
        while self.held + count > self.limits.held_bytes:
            oldest = self._oldest_body(connection)
            if oldest is None:
                return False
            self._forget(oldest)
            self.release(oldest)
            oldest.end()
        self.held += count
        self._passed_through += count
        connection.held += count
        return True

    def release(self, connection: Connection) -> None:
        """The body of the connection's request is not needed any more."""
        self.held -= connection.held
        connection.held = 0

    def _oldest_body(self, other: Connection) -> Connection | None:
        for order in (self._new, self._kept):
            for connection in order:
                if connection.held and connection is not other:
                    return connection
        return None


class ListeningSocket(socket.socket):
    """A listening socket whose connections are counted."""

    connections: Connections | None = None
    """None: nobody counts yet."""

    def accept(self) -> tuple[socket.socket, Any]:
        if self.connections is None:
            return super().accept()
        return self.connections.accept(self)

    def plain_accept(self) -> tuple[socket.socket, Any]:
        return super().accept()


def _spare() -> int | None:
    """A descriptor that does nothing but keep its place."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
