"""Partitions of sink tasks are assigned to an owner each, evenly, with few moves. The assignment
has bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.assignment.partitions import (
    Subscription,
    assign_partitions,
    decode_partitions,
    decode_subscription,
    encode_partitions,
    encode_subscription,
)
from headgate.errors import NoMembersError
from headgate.wire import WireError

TOPICS = ["t", "u", "v"]
subscriptions = st.builds(
    Subscription,
    st.sets(st.sampled_from(TOPICS)).map(lambda topics: tuple(sorted(topics))),
    st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 6)), max_size=6).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcde"), subscriptions, min_size=1),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7)),
)
def test_every_partition_has_one_owner_evenly_and_then_stays(
    members: dict[str, Subscription], partitions: dict[str, int]
) -> None:
    shares = assign_partitions(members, partitions)
    for topic in TOPICS:
        readers = [name for name, who in members.items() if topic in who.topics]
        numbers = sorted(n for share in shares.values() for name, n in share if name == topic)
        assert numbers == list(range(partitions.get(topic, 0) if readers else 0))
        counts = [sum(name == topic for name, _ in shares[reader]) for reader in readers]
        assert not counts or max(counts) - min(counts) <= 1
    kept = {name: Subscription(who.topics, shares[name]) for name, who in members.items()}
    assert assign_partitions(kept, partitions) == shares


def test_who_leaves_takes_nothing_from_the_others() -> None:
    who = {name: Subscription(("t",)) for name in "abc"}
    before = assign_partitions(who, {"t": 9})
    left = {name: Subscription(("t",), before[name]) for name in "ab"}
    after = assign_partitions(left, {"t": 9})
    assert all(set(before[name]) <= set(after[name]) for name in "ab")


def test_a_group_without_members_is_refused() -> None:
    with pytest.raises(NoMembersError):
        assign_partitions({}, {"t": 1})


@given(subscriptions)
def test_bytes_and_back(subscription: Subscription) -> None:
    again = decode_subscription(encode_subscription(subscription))
    assert again.topics == subscription.topics
    assert sorted(again.owned) == sorted(subscription.owned)
    assert sorted(decode_partitions(encode_partitions(again.owned))) == sorted(again.owned)
    assert decode_partitions(b"") == ()


@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b"{}", b'{"topics":[],"owned":[]}', b'{"topics":[],"owned":{"t":[-1]}}'],
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_subscription(data)
