"""The process that accepts connections, in random orders of what clients, worker and clock do.

It runs here turn by turn, with real sockets and a clock of its own. In every order, each `/health`
is answered once and in turn. Each other request reaches the worker once, with every byte that its
client has sent.
"""

import json
import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from support.rest.http import head

from headgate_rest import front_process
from headgate_rest.front_process import Client, Front

HEALTH = head("GET /health")
OTHER = head("GET /connectors") + b"and what follows"
READ_TIMEOUT_S, FRESH_S, HUNG_S = 5.0, 10.0, 12.0
LATE, BUSY = "HTTP/1.1 408 late\r\n\r\n", "HTTP/1.1 503 busy\r\n\r\n"
WELL = {"status": "200 well", "headers": [], "body": "", "keeps": True}
ILL = {**WELL, "status": "503 ill", "keeps": False}
HUNG = {**WELL, "status": "500 hung", "keeps": False}


class Visitor:
    """A client, and the answers that must come to what it has sent so far."""

    def __init__(self, address: Any, requests: list[bytes]) -> None:
        self.sock = socket.create_connection(address)
        self.sock.setblocking(False)
        self.port = self.sock.getsockname()[1]
        self.left = b"".join(requests)
        self.asks_health = requests.count(HEALTH)
        self.sent = b""
        self.got = b""
        self.is_closed = self.has_left = False

    def send(self, count: int) -> None:
        piece, self.left = self.left[:count], self.left[count:]
        self.sent += piece
        with suppress(ConnectionError):
            self.sock.sendall(piece)

    def read(self) -> None:
        try:
            while received := self.sock.recv(65_536):
                self.got += received
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        self.is_closed = True

    @property
    def answers(self) -> list[str]:
        return [line[9:12] for line in self.got.decode().splitlines() if line.startswith("HTTP/")]


class Scene:
    def __init__(self, choose: random.Random, most: int, now: list[float]) -> None:
        self.choose, self.most, self.now = choose, most, now
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        self.near, far = socket.socketpair()
        self.near.setblocking(False)
        self.control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        numbers = {"listener": listener.detach(), "channel": far.detach()}
        self.front = Front(
            {
                "listeners": [{**numbers, "plain": True, "health": True}],
                "control": control.detach(),
                "connections": most,
                "read_timeout_s": READ_TIMEOUT_S,
                "head_bytes": 1_000,
                "headers": 10,
                "fresh_s": FRESH_S,
                "hung_s": HUNG_S,
                "late": LATE,
                "busy": BUSY,
                "hung": HUNG,
            }
        )
        self.visitors: list[Visitor] = []
        self.passed: dict[int, bytes] = {}
        """Port of each client that the worker was given -> what it found there."""

    def come(self) -> None:
        requests = self.choose.choices((HEALTH, OTHER), (3, 1), k=self.choose.randint(1, 3))
        if OTHER in requests:  # the worker has the connection from there on
            requests = requests[: requests.index(OTHER) + 1]
        self.visitors.append(Visitor(self.address, requests))

    def send(self) -> None:
        if self.visitors:
            self.choose.choice(self.visitors).send(self.choose.randint(1, 80))

    def leave(self) -> None:
        if self.visitors:
            gone = self.choose.choice(self.visitors)
            gone.has_left = True
            gone.sock.close()
            self.visitors.remove(gone)

    def turn(self) -> None:
        assert self.front.turn(0)
        self.check()

    def take(self) -> None:
        """The worker takes the connections that were passed on."""
        with suppress(BlockingIOError):
            while True:
                _, given, _, _ = socket.recv_fds(self.near, 1, 1)
                with socket.socket(fileno=given[0]) as sock:
                    sock.setblocking(False)
                    try:
                        port = sock.getpeername()[1]
                        found = sock.recv(65_536, socket.MSG_PEEK)
                    except OSError:
                        continue
                    assert port not in self.passed
                    self.passed[port] = found

    def answer(self) -> None:
        """The worker says how it is, if it was asked."""
        with suppress(BlockingIOError):
            if self.control.recv(1) == b"h":
                answer = self.choose.choice((WELL, WELL, ILL))
                self.control.send(json.dumps(answer).encode())

    def wait(self) -> None:
        self.now[0] += self.choose.choice((0.1, 1.5, 6.0))

    def check(self) -> None:
        """Each client is in one place, so that its next word or its time-out is seen."""
        front = self.front
        places: list[Any] = [front._new, front._kept, front._asking, front._leaving]
        places += [listener.ready for listener in front._listeners.values()]
        clients: list[Client] = [client for place in places for client in place]
        assert len(clients) == len(set(clients)) == len(front._clients) <= self.most
        for order in places[:4]:
            since = [client.since for client in order]
            assert since == sorted(since)

    def settle(self) -> None:
        """Wait until every client has its answers, up to a second: what a client sends, and its
        end, arrive a moment later."""
        for visitor in self.visitors:
            visitor.send(len(visitor.left))
        until = time.monotonic() + 1.0
        while time.monotonic() < until and not all(map(self.is_served, self.visitors)):
            self.turn()
            self.take()
            self.answer()
            for visitor in self.visitors:
                visitor.read()

    def is_served(self, visitor: Visitor) -> bool:
        if visitor.is_closed:
            return True
        has_other = visitor.sent.endswith(OTHER)
        return len(visitor.answers) >= visitor.asks_health and (
            not has_other or visitor.port in self.passed
        )

    def end(self) -> None:
        for visitor in self.visitors:
            visitor.sock.close()
        front = self.front
        for client in list(front._clients.values()):
            front._close(client)
        front._poll.close()
        for listener in front._listeners.values():
            listener.sock.close()
            listener.channel.close()
        for each in (front._control, self.control, self.near):
            each.close()


def told(scene: Scene, visitor: Visitor) -> str:
    return f"sent {visitor.sent!r} got {visitor.got!r} passed {scene.passed.get(visitor.port)!r}"


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [1_000.0]
    clock = SimpleNamespace(
        monotonic=lambda: moment[0], time=time.time, gmtime=time.gmtime, sleep=lambda _: None
    )
    monkeypatch.setattr(front_process, "time", clock)
    return moment


def played(seed: int, most: int, now: list[float], steps: list[str]) -> Scene:
    choose = random.Random(seed)
    scene = Scene(choose, most, now)
    for _ in range(choose.randint(5, 60)):
        step: Callable[[], None] = getattr(scene, choose.choice(steps))
        step()
    scene.settle()
    return scene


STEPS = ["come", "send", "send", "send", "turn", "turn", "take", "answer"]


@pytest.mark.parametrize("seed", range(100))
def test_each_request_has_one_answer_or_reaches_the_worker(seed: int, now: list[float]) -> None:
    scene = played(seed, 1_000, now, STEPS)
    try:
        for visitor in scene.visitors:
            assert len(visitor.answers) == visitor.asks_health, told(scene, visitor)
            assert set(visitor.answers) <= {"200", "503"}
            if visitor.sent.endswith(OTHER):
                assert OTHER.startswith(scene.passed[visitor.port]), told(scene, visitor)
                assert scene.passed[visitor.port].startswith(OTHER[:-20])
            else:
                assert visitor.port not in scene.passed
                assert not visitor.is_closed
    finally:
        scene.end()


@pytest.mark.parametrize("seed", range(100))
def test_late_clients_and_too_many_are_told_or_closed(seed: int, now: list[float]) -> None:
    """Nobody is forgotten: a client without an answer is closed, or its request is with the
    worker."""
    scene = played(seed, 4, now, [*STEPS, "come", "leave", "wait"])
    try:
        for visitor in scene.visitors:
            ended = visitor.is_closed or visitor.port in scene.passed
            assert ended or len(visitor.answers) == visitor.asks_health, told(scene, visitor)
            assert len(visitor.answers) <= visitor.asks_health + 1, told(scene, visitor)
        for _ in range(3):  # one that came last is accepted first
            now[0] += 100
            scene.turn()
        assert not scene.front._new
        assert not scene.front._kept
    finally:
        scene.end()
