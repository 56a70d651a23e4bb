"""What `Peers` promises."""

import pytest
from support.worlds import World

from headgate.ports import IncomingCall, TransportError


def test_call_is_answered(world: World) -> None:
    caller, callee = world.connect("one").peers, world.connect("two").peers
    seen: list[IncomingCall] = []

    def serve() -> None:
        for call in callee.incoming():
            seen.append(call)
            callee.answer(call.call_id, b"answer to " + call.payload)

    with world.serving(serve):
        assert caller.call("two", b"question", 1, 5_000) == b"answer to question"
    [call] = seen
    assert (call.payload, call.hops) == (b"question", 1)
    assert 0 < call.deadline_ms_left <= 5_000


def test_call_is_given_out_once_and_to_its_worker_only(world: World) -> None:
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
                callee.answer(call.call_id, b"first")
                callee.answer(call.call_id, b"second")

    with world.serving(serve):
        assert caller.call("two", b"q", 0, 5_000) == b"first"
    assert len(seen) == 1
    assert strange == []


def test_nobody_answers_in_time(world: World) -> None:
    caller = world.connect("one").peers
    with pytest.raises(TransportError, match="two did not answer within 50 ms"):
        caller.call("two", b"q", 0, 50)
    # Whose caller has given up is not given out, and an answer to it is nothing.
    late = world.connect("two").peers
    assert late.incoming() == []


def test_answer_after_the_caller_gave_up_is_nothing(world: World) -> None:
    caller, callee = world.connect("one").peers, world.connect("two").peers
    taken: list[IncomingCall] = []
    with world.serving(lambda: taken.extend(callee.incoming())), pytest.raises(TransportError):
        caller.call("two", b"q", 0, 50)
    [call] = taken
    callee.answer(call.call_id, b"late")
    assert callee.incoming() == []
