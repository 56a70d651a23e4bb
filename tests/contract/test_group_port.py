"""What `Group` promises. (How the coordinator decides is tested where its machine is.)"""

from support.group_member import SESSION_MS, HandMember, join_all
from support.worlds import World

from headgate.membership.messages import GroupError, JoinedGroup


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
    one.send_join()
    assert two.receive() == []
    assert len(one.receive()) == 1
    assert one.receive() == []


def test_silent_member_is_removed_and_told_when_it_comes_back(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    for _ in range(4):
        world.advance(SESSION_MS // 3)
        one.heartbeat()
    assert one.heartbeat() is GroupError.REBALANCE_IN_PROGRESS
    assert two.heartbeat() is GroupError.UNKNOWN_MEMBER_ID


def test_waiting_members_let_time_pass_by_looking_for_responses(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    world.advance(SESSION_MS // 2)
    one.send_join()
    assert not [r for r in one.receive() if isinstance(r, JoinedGroup)]
    # `two` is silent: its session ends while `one` does nothing but look.
    world.advance(SESSION_MS // 2 + 1)
    [answer] = [r for r in one.receive() if isinstance(r, JoinedGroup)]
    assert [m.member_id for m in answer.members] == [one.member_id]


def test_leaver_is_gone_at_once(world: World) -> None:
    one = HandMember(world, world.connect(), "one")
    two = HandMember(world, world.connect(), "two")
    join_all(world, one, two)
    two.leave()
    assert one.heartbeat() is GroupError.REBALANCE_IN_PROGRESS
