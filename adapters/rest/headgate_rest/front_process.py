"""The front process: a small program that accepts the REST server's connections.

It is run by its path, with the standard library only. `headgate_rest.front` starts it and describes
the protocol between the two.

It answers `/health` itself. It passes every other connection to the worker once the head of its
first request is complete. So a health check need not wait for a worker whose threads compute or
whose loop reads large bodies, and clients that send nothing never reach the worker.

Heads are only peeked at: the worker gets a connection with all its input unread.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections import OrderedDict, deque
from typing import Any, Final

REFRESH_S: Final = 1.0
"""Age of an answer after which the worker is asked again. Meanwhile clients get the old answer."""
LINGER_S: Final = 2.0
"""How long a client that was refused has to read the answer."""
RETRY_S: Final = 0.02
"""Pause before connections are passed again to a worker that was busy."""
TOLD_S: Final = 60.0
ACCEPTED_AT_ONCE: Final = 64
ANSWER_BYTES: Final = 1_048_576

PARTIAL, OTHER, HEALTH = "partial", "other", "health"

_HEAD_END: Final = re.compile(rb"\n\r?\n")
_HEADER: Final = re.compile(rb"([A-Za-z0-9-]+):([\t\x20-\x7e]*)")
_FOR_THE_WORKER: Final = frozenset(
    (b"content-length", b"expect", b"origin", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
"""A request with one of these headers is passed to the worker, also for `/health`."""
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
)


def kind_of(received: bytes, head_bytes: int, headers: int) -> tuple[str, int, bool]:
    """Return the kind of a request that begins with `received`: `PARTIAL`, `HEALTH` or `OTHER`. For
    `HEALTH`, also return the length of its head and whether the client wants the connection closed.

    A request that is unusual in any way is `OTHER`, so that the worker reads it and reports what is
    wrong.
    """
    if received[0] < 0x21 or len(received) > head_bytes:
        return OTHER, 0, False
    end = _HEAD_END.search(received)
    if end is None:
        return PARTIAL, 0, False
    head = received[: end.end()]
    line, *lines = head.split(b"\r\n")
    if line != b"GET /health HTTP/1.1" or lines[-2:] != [b"", b""] or len(lines) - 2 > headers:
        return OTHER, 0, False
    given: dict[bytes, bytes] = {}
    for each in lines[:-2]:
        found = _HEADER.fullmatch(each)
        if found is None or (name := found[1].lower()) in _FOR_THE_WORKER:
            return OTHER, 0, False
        if name in (b"host", b"connection") and name in given:
            return OTHER, 0, False
        given[name] = found[2].strip().lower()
    connection = given.get(b"connection", b"keep-alive")
    if b"host" not in given or connection not in (b"close", b"keep-alive"):
        return OTHER, 0, False
    return HEALTH, len(head), connection == b"close"


def date(seconds: float) -> str:
    """Return a Unix time as an HTTP date, independent of the locale."""
    t = time.gmtime(seconds)
    day, month = _DAYS[t.tm_wday], _MONTHS[t.tm_mon - 1]
    clock = f"{t.tm_hour:02}:{t.tm_min:02}:{t.tm_sec:02}"
    return f"{day}, {t.tm_mday:02} {month} {t.tm_year:04} {clock} GMT"


def rendered(answer: dict[str, Any], closes: bool) -> bytes:
    """Return the bytes of a worker's answer. Headers that are numbers become dates, that many
    milliseconds from now."""
    now = time.time()
    lines = [f"HTTP/1.1 {answer['status']}", f"date: {date(now)}"]
    for name, value in answer["headers"]:
        text = date(now + value / 1000) if isinstance(value, int) else value
        lines.append(f"{name}: {text}")
    if closes:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", answer["body"]]).encode("latin-1")


class Listener:
    """A listening socket, and the socket over which its connections are passed to the worker."""

    def __init__(self, listener: int, channel: int, plain: bool, health: bool) -> None:
        self.sock = socket.socket(fileno=listener)
        self.channel = socket.socket(fileno=channel)
        self.plain = plain
        """Whether it is plain HTTP. Otherwise it is TLS, which only the worker can read."""
        self.health = health
        self.ready: deque[Client] = deque()
        """Clients with a request that are not passed to the worker yet, in order of arrival."""
        self.sock.setblocking(False)
        self.channel.setblocking(False)


class Client:
    __slots__ = ("closes", "listener", "since", "sock", "waits")

    def __init__(self, sock: socket.socket, listener: Listener) -> None:
        self.sock = sock
        self.listener = listener
        self.since = 0.0
        """Monotonic time, in seconds, at which its present state began."""
        self.closes = False
        """The connection is to be closed after the answer."""
        self.waits = True
        """The head of the next request is not complete yet."""


Order = OrderedDict[Client, None]


class Front:
    def __init__(self, told: dict[str, Any]) -> None:
        self._listeners = {
            each["listener"]: Listener(
                each["listener"], each["channel"], each["plain"], each["health"]
            )
            for each in told["listeners"]
        }
        self._control = socket.socket(fileno=told["control"])
        self._control.setblocking(False)
        self._max: int = told["connections"]
        self._timeout: float = told["read_timeout_s"]
        self._head_bytes: int = told["head_bytes"]
        self._headers: int = told["headers"]
        self._fresh_s: float = told["fresh_s"]
        self._hung_s: float = told["hung_s"]
        self._late: bytes = told["late"].encode("latin-1")
        self._busy: bytes = told["busy"].encode("latin-1")
        self._hung: dict[str, Any] = told["hung"]
        self._clients: dict[int, Client] = {}
        # In each of these, the first client has been there longest.
        self._new: Order = OrderedDict()
        self._kept: Order = OrderedDict()
        self._asking: Order = OrderedDict()
        self._leaving: Order = OrderedDict()
        self._answer: dict[str, Any] | None = None
        self._answered_at = 0.0
        self._is_asked = False
        self._limit_told_at = -TOLD_S
        self._poll = select.epoll()
        self._poll.register(self._control, select.EPOLLIN)
        for listener in self._listeners:
            self._poll.register(listener, select.EPOLLIN)

    def run(self) -> None:
        """Serve until the worker has gone."""
        while self.turn(self._next_due_s()):
            pass

    def turn(self, wait_s: float | None) -> bool:
        """Wait for events, at most `wait_s`, and handle them. Return False if the worker has
        gone."""
        for number, _ in self._poll.poll(wait_s, 256):
            if number in self._listeners:
                self._accept(self._listeners[number])
            elif number in self._clients:
                self._look(self._clients[number])
            elif number == self._control.fileno() and not self._hear():
                return False
        for listener in self._listeners.values():
            self._pass_on(listener)
        self._expire(time.monotonic())
        return True

    def _next_due_s(self) -> float | None:
        if any(listener.ready for listener in self._listeners.values()):
            return RETRY_S
        dues = [
            next(iter(order)).since + limit
            for order, limit in (
                (self._new, self._timeout),
                (self._kept, self._timeout),
                (self._asking, self._hung_s),
                (self._leaving, LINGER_S),
            )
            if order
        ]
        return max(0.0, min(dues) - time.monotonic()) if dues else None

    # -- connections --

    def _accept(self, listener: Listener) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                sock, _address = listener.sock.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptors, no memory, or the client has gone
                self._make_room()
                time.sleep(RETRY_S / 10)
                return
            if len(self._clients) >= self._max:
                self._tell_limit()
                if not self._make_room():
                    sock.close()
                    continue
            sock.setblocking(False)
            client = Client(sock, listener)
            self._clients[sock.fileno()] = client
            self._wait(client, self._new)
            self._poll.register(sock, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
            self._look(client)

    def _wait(self, client: Client, order: Order) -> None:
        client.since = time.monotonic()
        order[client] = None

    def _make_room(self) -> bool:
        """Close a client, to make room for another.

        It is the one that has waited longest without a request. If all have requests, the last one
        gets the answer that the worker is busy. Return False if all clients wait for `/health`.
        """
        for order in (self._leaving, self._new, self._kept):
            if order:
                self._close(next(iter(order)))
                return True
        longest = max(self._listeners.values(), key=lambda listener: len(listener.ready))
        if not longest.ready:
            return False
        client = longest.ready.pop()
        if self._send(client, self._busy):
            self._close(client)
        return True

    def _tell_limit(self) -> None:
        now = time.monotonic()
        if now >= self._limit_told_at + TOLD_S:
            self._limit_told_at = now
            self._say(b"l")

    def _forget(self, client: Client) -> socket.socket:
        """Remove a client from all lists and return its socket."""
        for order in (self._new, self._kept, self._asking, self._leaving):
            order.pop(client, None)
        del self._clients[client.sock.fileno()]
        self._poll.unregister(client.sock)
        return client.sock

    def _close(self, client: Client) -> None:
        self._forget(client).close()

    def _expire(self, now: float) -> None:
        for order in (self._new, self._kept):
            while order and (client := next(iter(order))).since + self._timeout <= now:
                self._expire_one(client)
        while self._asking and (client := next(iter(self._asking))).since + self._hung_s <= now:
            if self._respond(client, self._hung):
                self._look(client)
        while self._leaving and (client := next(iter(self._leaving))).since + LINGER_S <= now:
            self._close(client)

    def _expire_one(self, client: Client) -> None:
        """End a client that has waited too long. If it has sent part of a head it gets an answer
        first, and is closed later. If a socket is closed with unread input, its client loses the
        answer."""
        if not self._peeked(client) or not client.listener.plain:
            self._close(client)
        elif self._send(client, self._late):
            with contextlib.suppress(OSError):
                client.sock.shutdown(socket.SHUT_WR)
            client.waits = False
            self._new.pop(client, None)
            self._kept.pop(client, None)
            self._wait(client, self._leaving)

    # -- requests --

    def _peeked(self, client: Client) -> bytes | None:
        """Return the unread input of a client. Empty: the client has gone. None: there is none."""
        try:
            return client.sock.recv(self._head_bytes + 1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _look(self, client: Client) -> None:
        while True:
            received = self._peeked(client)
            if received is None:
                return
            if not received:
                self._close(client)
                return
            if not client.waits:
                return
            kind, length, closes = OTHER, 0, False
            if client.listener.plain:
                kind, length, closes = kind_of(received, self._head_bytes, self._headers)
            if kind == PARTIAL:
                return
            self._new.pop(client, None)
            self._kept.pop(client, None)
            client.waits = False
            if kind == OTHER or not client.listener.health:
                client.listener.ready.append(client)
                return
            client.sock.recv(length)
            client.closes = closes
            if not self._health(client):
                return

    def _health(self, client: Client) -> bool:
        """Answer `/health`, or have the client wait for the worker. Return whether it was answered
        and its connection stays open."""
        age = time.monotonic() - self._answered_at
        if age > REFRESH_S or self._answer is None:
            self._ask()
        if self._answer is not None and age <= self._fresh_s:
            return self._respond(client, self._answer)
        self._wait(client, self._asking)
        return False

    def _respond(self, client: Client, answer: dict[str, Any]) -> bool:
        """Send an answer of the worker. Return whether the connection stays open."""
        self._asking.pop(client, None)
        if not self._send(client, rendered(answer, client.closes)):
            return False
        if client.closes:
            self._close(client)
            return False
        client.waits = True
        self._wait(client, self._kept)
        return True

    def _send(self, client: Client, answer: bytes) -> bool:
        """Send bytes. Return False, and close the client, if it does not read or has gone."""
        try:
            if client.sock.send(answer) == len(answer):
                return True
        except OSError:
            pass
        self._close(client)
        return False

    def _pass_on(self, listener: Listener) -> None:
        while listener.ready:
            client = listener.ready[0]
            try:
                socket.send_fds(listener.channel, [b"c"], [client.sock.fileno()])
            except OSError:  # the socket is full, as the worker has not taken the others yet
                return
            listener.ready.popleft()
            self._close(client)

    # -- the worker --

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            self._control.send(word)

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._say(b"h")

    def _hear(self) -> bool:
        """Receive an answer of the worker. Return False if the worker has gone."""
        try:
            told = self._control.recv(ANSWER_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not told:
            return False
        answer = json.loads(told)
        self._is_asked = False
        self._answered_at = time.monotonic()
        self._answer = answer if answer["keeps"] else None
        for client in list(self._asking):
            if self._respond(client, answer):
                self._look(client)
        return True


def main() -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # it ends only when its worker does
    Front(json.loads(sys.stdin.readline())).run()
    os._exit(0)


if __name__ == "__main__":
    main()
