"""Partition assignment in the consumer groups of sink tasks.

The leader of a consumer group calls `assign_partitions` with every member's subscription. The
messages are JSON of our own, since all members of such a group are our sink tasks. (On Kafka the
client library brings its own assignors.)
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from headgate.errors import NoMembersError
from headgate.ids import utf16_key
from headgate.wire import WireError

TopicPartition: TypeAlias = tuple[str, int]

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
CONSUMER_PROTOCOL: Final = "headgate-sticky"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Topics that one member wants to read, and the partitions that it has owned until now."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()


def assign_partitions(
    members: Mapping[str, Subscription], partitions: Mapping[str, int]
) -> dict[str, tuple[TopicPartition, ...]]:
    """Assign the partitions to the members, evenly within each topic, moving as few as possible.

    Args:
        members: Subscriptions by member id.
        partitions: Number of partitions of each topic. A missing topic counts as one without
            partitions.

    Returns:
        The partitions of each member, sorted. Every partition of a subscribed topic has exactly one
        owner. Within a topic the members differ by at most one partition; members with the
        fewest partitions in all get one more. A member keeps what it owned up to its share. If
        two members claim the same partition, the first one by member id keeps it.

    Raises:
        NoMembersError: There are no members.
    """
    if not members:
        raise NoMembersError("a consumer group without members has nobody to read partitions")
    shares: dict[str, list[TopicPartition]] = {
        member_id: [] for member_id in sorted(members, key=utf16_key)
    }
    topics = {topic for subscription in members.values() for topic in subscription.topics}
    for topic in sorted(topics, key=utf16_key):
        _share_topic(topic, partitions.get(topic, 0), members, shares)
    return {member_id: tuple(sorted(share, key=_order)) for member_id, share in shares.items()}


def _share_topic(
    topic: str,
    count: int,
    members: Mapping[str, Subscription],
    shares: dict[str, list[TopicPartition]],
) -> None:
    readers = [member_id for member_id in shares if topic in members[member_id].topics]
    free = set(range(count))
    owned: dict[str, list[int]] = {}
    for member_id in readers:
        mine = {n for name, n in members[member_id].owned if name == topic} & free
        owned[member_id] = sorted(mine)
        free -= mine
    share, extras = divmod(count, len(readers))
    # The extra partitions go to the members with the fewest partitions in all. Among equals, the
    # member that owns more of the topic comes first, so that it keeps them.
    by_need = sorted(readers, key=lambda reader: (len(shares[reader]), -len(owned[reader])))
    limit = {reader: share + (n < extras) for n, reader in enumerate(by_need)}
    for reader in readers:
        free.update(owned[reader][limit[reader] :])
        owned[reader] = owned[reader][: limit[reader]]
    left = iter(sorted(free))
    for reader in readers:
        room = limit[reader] - len(owned[reader])
        taken = owned[reader] + [next(left) for _ in range(room)]
        shares[reader] += [(topic, n) for n in taken]


def _order(partition: TopicPartition) -> tuple[bytes, int]:
    return utf16_key(partition[0]), partition[1]


# -- bytes --


def encode_subscription(subscription: Subscription) -> bytes:
    """Return a member's metadata for `JoinGroup`."""
    return _dump({"topics": list(subscription.topics), "owned": _grouped(subscription.owned)})


def decode_subscription(data: bytes) -> Subscription:
    """Decode a member's metadata. Raises `WireError` for anything that `encode_subscription` did
    not make."""
    raw = _object(data)
    topics = raw.get("topics")
    if not isinstance(topics, list):
        raise WireError(f"subscription without its list of topics: {data[:80]!r}")
    return Subscription(
        topics=tuple(str(topic) for topic in cast(list[object], topics)),
        owned=_ungrouped(raw.get("owned", {}), data),
    )


def encode_partitions(partitions: Sequence[TopicPartition]) -> bytes:
    """Return one member's assignment for `SyncGroup`."""
    return _dump({"partitions": _grouped(partitions)})


def decode_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """Decode one member's assignment. No bytes mean no partitions: the leader did not know this
    member. Raises `WireError`."""
    return _ungrouped(_object(data).get("partitions"), data) if data else ()


def _grouped(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, n in partitions:
        grouped.setdefault(topic, []).append(n)
    return grouped


def _ungrouped(raw: object, data: bytes) -> tuple[TopicPartition, ...]:
    if not isinstance(raw, dict):
        raise WireError(f"expected partitions by topic: {data[:80]!r}")
    found: list[TopicPartition] = []
    for topic, numbers in cast(dict[str, object], raw).items():
        if not isinstance(numbers, list):
            raise WireError(f"partitions of {topic!r} are no list: {data[:80]!r}")
        for n in cast(list[object], numbers):
            if not isinstance(n, int) or isinstance(n, bool) or n < 0:
                raise WireError(f"{n!r} is no partition of {topic!r}")
            found.append((topic, n))
    return tuple(found)


def _dump(raw: Mapping[str, object]) -> bytes:
    return json.dumps(raw, separators=(",", ":"), ensure_ascii=False).encode()


def _object(data: bytes) -> dict[str, Any]:
    try:
        raw = json.loads(data)
    except ValueError as error:
        raise WireError(f"not JSON: {data[:80]!r}") from error
    if not isinstance(raw, dict):
        raise WireError(f"expected a JSON object: {data[:80]!r}")
    return cast(dict[str, Any], raw)
