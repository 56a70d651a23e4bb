"""Calls between workers by gRPC while the caller, or one of its connections, ends."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from support.grpc.peers_world import KEY, NOBODY, GrpcWorld

from headgate.herder.messages import DeleteConnector
from headgate.herder.session_keys import KeyRing
from headgate.ports import TransportError
from headgate_grpc.internal import channels, peers
from headgate_grpc.internal.channels import Channels, Connection
from headgate_grpc.internal.peers import GrpcPeers

CALL = DeleteConnector("a")


def made() -> GrpcPeers:
    inner: Any = None
    return GrpcPeers(inner, lambda url: NOBODY, lambda: KeyRing(KEY, ()))


@pytest.fixture
def caller() -> Iterator[GrpcPeers]:
    found = made()
    yield found
    found.close()


class Asking(threading.Thread):
    """One call on a thread of its own, which a test need not join."""

    def __init__(self, caller: GrpcPeers, timeout_ms: int) -> None:
        super().__init__(daemon=True)
        self.said: object = None
        self._caller, self._timeout_ms = caller, timeout_ms
        self.start()

    def run(self) -> None:
        try:
            self.said = self._caller.call("two", CALL, 1, self._timeout_ms)
        except BaseException as error:
            self.said = error

    def over(self) -> object:
        self.join(10)
        assert not self.is_alive(), "the call hangs"
        return self.said


def test_a_call_under_way_ends_with_the_caller(tmp_path: Path) -> None:
    world = GrpcWorld(tmp_path)
    caller, callee = world.connect("one"), world.connect("two")
    asking = Asking(caller.peers, 60_000)
    until = time.monotonic() + 10
    while not callee.peers.incoming():
        assert time.monotonic() < until
        time.sleep(0.002)
    caller.peers.close()
    said = asking.over()
    assert isinstance(said, TransportError) and "when this worker ended" in str(said)
    with pytest.raises(TransportError, match="two was not called: this worker ends"):
        caller.peers.call("two", CALL, 1, 60_000)
    world.close()


def test_a_call_that_waits_for_a_connection_ends_with_the_caller() -> None:
    caller = made()
    asking = Asking(caller, 60_000)
    time.sleep(0.1)
    caller.close()
    assert isinstance(asking.over(), TransportError)


def test_calls_that_race_with_the_end_neither_hang_nor_fail_otherwise() -> None:
    for _ in range(15):
        caller = made()
        askings = [Asking(caller, 60_000) for _ in range(4)]
        closing = threading.Thread(target=caller.close, daemon=True)
        closing.start()
        askings += [Asking(caller, 60_000) for _ in range(4)]
        closing.join(10)
        assert not closing.is_alive(), "close hangs"
        assert {type(each.over()) for each in askings} == {TransportError}


@pytest.mark.parametrize(
    "error", [grpc.aio.UsageError("Channel is closed."), RuntimeError("Event loop is closed")]
)
def test_what_grpc_says_of_a_closed_channel_is_a_transport_error(
    caller: GrpcPeers, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer_of(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(caller, "_answer_of", answer_of)
    with pytest.raises(TransportError, match=r"two may have been called: .* is closed"):
        caller.call("two", CALL, 1, 60_000)


def test_a_call_that_grpc_does_not_end_is_not_waited_for(
    caller: GrpcPeers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer_of(*_: object) -> bytes:
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(caller, "_answer_of", answer_of)
    monkeypatch.setattr(peers, "SLACK_S", 0.1)
    said = Asking(caller, 50).over()
    assert isinstance(said, TransportError) and "two did not answer within 50 ms" in str(said)


# -- connections --


class Opened:
    """Channels that a test makes: which are open, in the order in which they were made."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def made(self, address: str) -> Any:
        self.open.append(address)
        return _Channel(self, address)


class _Channel:
    def __init__(self, opened: Opened, address: str) -> None:
        self._opened, self._address = opened, address

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._opened.open.remove(self._address)


def test_the_connection_that_was_idle_for_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channels, "CHANNELS_MAX", 3)

    async def run() -> None:
        opened = Opened()
        connections = Channels(opened.made)

        async def call(address: str) -> None:
            async with connections.use(address):
                pass

        for address in ("a", "b", "c", "a"):
            await call(address)
        assert opened.open == ["a", "b", "c"]
        async with connections.use("b"):
            await call("d")
            assert opened.open == ["a", "b", "d"], "c was not used for longest"
            await call("e")
            assert opened.open == ["b", "d", "e"], "b is in use"
            async with connections.use("d"), connections.use("e"):
                await call("f")
                assert opened.open == ["b", "d", "e", "f"], "none is idle"
        await call("g")
        assert len(opened.open) == 3
        await connections.close()
        assert not opened.open

    asyncio.run(run())


def test_calls_at_once_to_one_worker_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "CHANNELS_MAX", 1)

    async def run() -> None:
        opened = Opened()
        connections = Channels(opened.made)
        async with connections.use("gone"):
            pass

        async def call() -> Connection:
            async with connections.use("a") as found:
                await asyncio.sleep(0.01)
                return found

        first, second = await asyncio.gather(call(), call())
        assert first is second and opened.open == ["a"]

    asyncio.run(run())
