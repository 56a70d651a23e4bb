"""The contract of `Peers`, which carries calls and results. Over HTTP they become requests of
Connect's API and come out unchanged."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pytest
from support.embedded.worlds import EmbeddedWorld, MemoryWorld
from support.grpc.peers_world import GrpcWorld
from support.rest.world import RestWorld

from headgate.herder.messages import (
    Call,
    ErrorKind,
    Failure,
    PutTaskConfigs,
    RestartConnector,
    Result,
    Success,
)
from headgate.ports import IncomingCall, Peers, TransportError

QUESTION = RestartConnector("orders", include_tasks=True)


class Connected(Protocol):
    @property
    def peers(self) -> Peers: ...


class PeersWorld(Protocol):
    def connect(self, url: str = "") -> Connected: ...

    def serving(self, serve: Callable[[], None]) -> AbstractContextManager[None]: ...

    def close(self) -> None: ...


WORLDS: dict[str, Callable[[Path], PeersWorld]] = {
    "memory": MemoryWorld,
    "embedded": EmbeddedWorld,
    "grpc": GrpcWorld,
    "rest": RestWorld,
}


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PeersWorld]:
    made = WORLDS[request.param](tmp_path)
    yield made
    made.close()


def answer(text: str) -> Result:
    return Success({"name": text})


def test_call_is_answered(world: PeersWorld) -> None:
    caller, callee = world.connect("one").peers, world.connect("two").peers
    seen: list[IncomingCall] = []

    def serve() -> None:
        for call in callee.incoming():
            seen.append(call)
            callee.answer(call.call_id, answer("first"))

    with world.serving(serve):
        assert caller.call("two", QUESTION, 1, 5_000) == answer("first")
    [call] = seen
    assert (call.call, call.hops) == (QUESTION, 1)
    assert 0 < call.deadline_ms_left <= 5_000


@pytest.mark.parametrize(
    "call",
    [
        PutTaskConfigs("a b/c-1", ({"file": "é\u0000", "null": None},), "0123"),
        RestartConnector("\U0001f30a"),
    ],
    ids=lambda call: type(call).__name__,
)
@pytest.mark.parametrize(
    "result",
    [
        Success(),
        Failure(ErrorKind.CONFLICT, "another connector config is in force"),
        Failure(ErrorKind.NOT_READY, "not the leader"),
        Failure(ErrorKind.ALREADY_EXISTS, "é"),
    ],
    ids=lambda result: getattr(result, "kind", "success"),
)
def test_calls_and_results_come_as_they_were(world: PeersWorld, call: Call, result: Result) -> None:
    caller, callee = world.connect("one").peers, world.connect("two").peers
    seen: list[object] = []

    def serve() -> None:
        for incoming in callee.incoming():
            seen.append(incoming.call)
            callee.answer(incoming.call_id, result)

    with world.serving(serve):
        assert caller.call("two", call, 1, 5_000) == result
    assert seen == [call]


def test_call_is_given_out_once_and_to_its_worker_only(world: PeersWorld) -> None:
    caller = world.connect("one").peers
    callee, twin, stranger = (world.connect(url).peers for url in ("two", "two", "three"))
    seen: list[str] = []
    strange: list[IncomingCall] = []

    def serve() -> None:
        strange.extend(stranger.incoming())
        for peers in (callee, twin):
            for call in peers.incoming():
                seen.append(call.call_id)
                # The second answer is nothing.
                callee.answer(call.call_id, answer("first"))
                callee.answer(call.call_id, answer("second"))

    with world.serving(serve):
        assert caller.call("two", QUESTION, 1, 5_000) == answer("first")
    assert len(seen) == 1
    assert strange == []


def test_nobody_is_there_in_time(world: PeersWorld) -> None:
    """Where an unreachable worker can be told from a lost answer, the result says so. The call may
    then be repeated."""
    caller = world.connect("one").peers
    try:
        said = caller.call("two", QUESTION, 1, 50)
    except TransportError as error:
        assert "two did not answer within 50 ms" in str(error)
    else:
        assert isinstance(said, Failure)
        assert said.kind is ErrorKind.UNREACHABLE
        assert "could not be reached" in said.message
    # Whose caller has given up is not given out, and an answer to it is nothing.
    late = world.connect("two").peers
    assert list(late.incoming()) == []


def test_whose_caller_gave_up_is_not_given_out(world: PeersWorld) -> None:
    caller, callee = world.connect("one").peers, world.connect("two").peers
    with pytest.raises(TransportError, match="did not answer within 50 ms"):
        caller.call("two", QUESTION, 1, 50)
    time.sleep(0.05)  # it may have been on its way for a part of the caller's time
    assert list(callee.incoming()) == []


def test_answer_after_the_caller_gave_up_is_nothing(world: PeersWorld) -> None:
    caller, callee = world.connect("one").peers, world.connect("two").peers
    taken: list[IncomingCall] = []
    with world.serving(lambda: taken.extend(callee.incoming())), pytest.raises(TransportError):
        caller.call("two", QUESTION, 1, 500)
    [call] = taken
    callee.answer(call.call_id, answer("late"))
    assert list(callee.incoming()) == []
