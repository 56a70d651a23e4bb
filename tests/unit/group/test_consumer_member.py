"""A sink task's member of its group joins again if it reads other topics than it told the group."""

from headgate.assignment.partitions import decode_subscription, encode_partitions
from headgate.membership.consumer import (
    ConsumerMember,
    ConsumerSettings,
    PartitionsAssigned,
    PartitionsRevoked,
    SendRequest,
)
from headgate.membership.messages import JoinedGroup, JoinGroup, SyncedGroup

TOPICS = {"a": 1, "b": 1}


def joined_for(output: object) -> tuple[str, ...]:
    assert isinstance(output, SendRequest) and isinstance(output.request, JoinGroup), output
    return decode_subscription(output.request.protocols[0][1]).topics


def follower() -> ConsumerMember:
    """A member of topic `a`, which is assigned to it, in a group that another member leads."""
    member = ConsumerMember("g", "c", ["a"], ConsumerSettings())
    (joins,) = member.advance(0, [], TOPICS)
    assert joined_for(joins) == ("a",)
    answer = JoinedGroup("g", "me", 1, "p", "leader", sequence=1)
    member.advance(0, [answer], TOPICS)
    share = encode_partitions([("a", 0)])
    (assigned,) = member.advance(0, [SyncedGroup("g", "me", 1, share)], TOPICS)
    assert assigned == PartitionsAssigned((("a", 0),))
    return member


def test_it_joins_again_when_it_reads_another_topic_though_it_does_not_lead() -> None:
    """The leader may have found the topic when this member's request was on its way: it would
    share it among the others for ever."""
    member = follower()
    member.subscribe(["a", "b"])
    revoked, joins = member.advance(1, [], TOPICS)
    assert revoked == PartitionsRevoked((("a", 0),))
    assert joined_for(joins) == ("a", "b")
    assert member.advance(2, [], TOPICS) == [], "once"


def test_it_stays_when_it_reads_the_same() -> None:
    member = follower()
    member.subscribe(["a"])
    assert member.advance(1, [], TOPICS) == []
