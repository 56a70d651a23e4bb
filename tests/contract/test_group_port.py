"""The contract of `Group`. (The decisions of the coordinator are tested with its machine.)"""

import pytest
from support.embedded.worlds import World
from support.group.member import SESSION_MS, HandMember, join_all

from headgate.membership.messages import GroupError


def test_members_of_several_workers_meet_in_one_generation(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    assert one.generation == two.generation
    assert one.member_id != two.member_id
    assert one.heartbeat() is None


def test_responses_come_once_and_to_their_member_only(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    one.ask_id()
    assert two.receive() == []
    assert len(one.responses) == 1
    assert one.receive() == []


@pytest.mark.exhaustive_on_kafka
def test_silent_member_is_removed_and_told_when_it_comes_back(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    for _ in range(4):
        world.advance(SESSION_MS // 3)
        one.heartbeat()
    assert one.heartbeat() is GroupError.REBALANCE_IN_PROGRESS
    assert two.heartbeat() is GroupError.UNKNOWN_MEMBER_ID


@pytest.mark.exhaustive_on_kafka
def test_waiting_members_let_time_pass_by_looking_for_responses(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    world.advance(SESSION_MS // 2)
    one.send_join()
    assert one.receive() == []
    # `two` is silent: its session ends while `one` does nothing but look.
    world.advance(SESSION_MS // 2 + 1)
    assert [m.member_id for m in one.joined().members] == [one.member_id]


def test_leaver_is_gone_at_once(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    two.leave()
    one.await_rebalance()


def test_who_waits_for_a_round_can_say_that_it_is_alive(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    one.send_join()
    one.await_rebalance()
    assert one.heartbeat() is GroupError.REBALANCE_IN_PROGRESS
    two.send_join()
    assert one.joined().generation == two.joined().generation


def test_a_repeated_join_is_no_second_round(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    join_all(world, one)
    one.sequence -= 1
    one.send_join()
    assert one.receive() == []
    assert one.heartbeat() is None


def test_a_later_join_takes_the_place_of_one_that_waits(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    one.send_join()
    assert one.receive() == []
    one.client_id = "changed"
    one.send_join()
    world.await_answers()
    two.send_join()
    answers = [one.joined(), two.joined()]
    assert answers[0].sequence == one.sequence
    [roll] = [answer.members for answer in answers if answer.members]
    assert {member.metadata for member in roll} == {b"changed", b"two"}
