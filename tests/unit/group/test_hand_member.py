"""The member that contract tests drive by hand: the errors that it waits out, and the others."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.embedded.worlds import MemoryWorld, Transport
from support.group import member as hand
from support.group.member import HandMember, join_all

from headgate.membership.messages import GroupRequest, GroupResponse
from headgate.ports import RefusedError, TransportError


def hand_member(world: MemoryWorld, troubles: list[TransportError]) -> HandMember:
    """Return a member whose group port raises each of `troubles` before it answers."""
    transport: Transport = world.connect()
    group = transport.group
    send: Callable[[GroupRequest], None] = group.send

    def receive() -> Any:
        if troubles:
            raise troubles.pop(0)
        answers: list[GroupResponse] = list(group.receive())
        return answers

    transport.group = SimpleNamespace(send=send, receive=receive)
    return HandMember(world, transport, "one")


@pytest.fixture
def world(tmp_path: Any) -> MemoryWorld:
    return MemoryWorld(tmp_path)


def test_a_coordinator_that_is_not_ready_is_waited_for(world: MemoryWorld) -> None:
    passing = TransportError("JoinGroup is not answered: NOT_COORDINATOR")
    one = hand_member(world, [passing, passing])
    join_all(world, one)
    assert one.generation > 0


def test_the_wait_has_an_end_and_tells_the_reason(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand, "ANSWER_S", 0.0)
    one = hand_member(world, [TransportError("NOT_COORDINATOR")])
    with pytest.raises(AssertionError, match="NOT_COORDINATOR"):
        one.ask_id()


def test_a_refusal_is_not_waited_out(world: MemoryWorld) -> None:
    one = hand_member(world, [RefusedError("may not read the group")])
    with pytest.raises(RefusedError, match="may not read"):
        one.ask_id()
