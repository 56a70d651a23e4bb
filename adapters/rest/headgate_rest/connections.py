"""The connections of all listeners together: limits of their number, and of how long each waits.

uvicorn's own limit (`limit_concurrency`) counts requests. A connection that sends nothing is not
counted, and each refusal is a line in the log. So connections are counted when they are accepted.
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
"""How many connections more than the limit may be open. Evicted connections end only in the loop's
next turn. It also limits how many are accepted in one turn."""
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
    """An accepted connection. It either waits for a request, or its request is being answered."""

    __slots__ = ("end", "expire", "held", "served", "since", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.since = 0.0
        """Monotonic time, in seconds, at which the present wait began."""
        self.served = False
        """A request of it was answered."""
        self.held = 0
        """Bytes of its request's body that are in memory."""
        self.end: Callable[[], None] = self.hang_up
        """Ends the connection at once."""
        self.expire: Callable[[], None] = self.hang_up
        """Ends the connection because it has waited too long. The client may get an answer."""

    def hang_up(self) -> None:
        """Shut the socket down. To the loop it looks as if the client had gone, so that a TLS
        handshake ends too."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


class _AcceptedSocket(socket.socket):
    """A socket with a callback for when it is closed."""

    closed: Callable[[], None] | None = None

    def close(self) -> None:
        super().close()
        closed, self.closed = self.closed, None
        if closed is not None:
            closed()


class Connections:
    """All connections of the server. It belongs to the server's loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.max = limits.connections_here()
        self.held = 0
        """Bytes of all bodies in memory."""
        self._all: dict[int, Connection] = {}
        # In both, the connection that has waited longest is first. Those that never sent a request
        # (`_new`) are evicted first.
        self._new: OrderedDict[Connection, None] = OrderedDict()
        self._kept: OrderedDict[Connection, None] = OrderedDict()
        self._spare = _spare()
        self._told = -SELDOM_S
        self._passed_through = 0
        """Bytes of bodies since memory was last returned to the system."""

    def __len__(self) -> int:
        return len(self._all)

    def close(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    # -- accepting --

    def accept(self, listener: "ListeningSocket") -> tuple[socket.socket, Any]:
        """Accept a connection and return it as `socket.accept` does.

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
        """Log that the limit is reached, at most once a minute. A log record for each connection
        would cost more than the connection."""
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
        """Accept and close a connection, with the spare descriptor, because no other is left.
        Otherwise the listener would stay readable, and the loop would do nothing but try."""
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
        """Return the connection whose socket has this descriptor. None: it was closed."""
        return self._all.get(number)

    def waits(self, connection: Connection) -> None:
        """Note that a connection waits for a request from now on."""
        self._forget(connection)
        connection.since = time.monotonic()
        (self._kept if connection.served else self._new)[connection] = None

    def works(self, connection: Connection) -> None:
        """Note that a connection's request is complete and is being answered."""
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self._new.pop(connection, None)
        self._kept.pop(connection, None)

    def evict(self) -> bool:
        """Close the connection that has waited longest. Return False if the requests of all are
        being answered."""
        for order in (self._new, self._kept):
            if order:
                connection, _ = order.popitem(last=False)
                connection.end()
                return True
        return False

    async def look(self, more: Callable[[], None] | None = None) -> None:
        """End connections that wait too long, and call `more`, about once a second. It never
        returns."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.read_timeout_s / 4))
            if more is not None:
                more()
            self.expire_overdue(time.monotonic() - self.limits.read_timeout_s)
            if self._passed_through >= GIVE_BACK_BYTES and not self.held:
                self._passed_through = 0
                await asyncio.to_thread(give_back)

    def expire_overdue(self, begun_before: float) -> None:
        """End connections that have waited since `begun_before`, a monotonic time in seconds, or
        longer."""
        for order in (self._new, self._kept):
            while order and (connection := next(iter(order))).since <= begun_before:
                self.waits(connection)  # its client may delay its end, which is limited too
                connection.expire()

    # -- bodies --

    def hold(self, connection: Connection, count: int) -> bool:
        """Note `count` more bytes of a body in memory.

        If there is too little room, connections whose bodies have been coming for longest are
        ended. Return False if there is still too little.
        """
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
        """Note that the body of a connection's request is no longer needed."""
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
    """Where connections are counted. None: they are not counted yet."""

    def accept(self) -> tuple[socket.socket, Any]:
        if self.connections is None:
            return super().accept()
        return self.connections.accept(self)

    def plain_accept(self) -> tuple[socket.socket, Any]:
        return super().accept()


def _spare() -> int | None:
    """Return a descriptor that is only kept to be closed when no other is left."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
