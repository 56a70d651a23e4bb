"""Reads and writes of data topics and consumer offsets, inside the caller's transaction."""

from collections.abc import Mapping

import apsw

from headgate.ports import TopicPartition
from headgate_embedded.batches import is_batch


def read_batches(
    connection: apsw.Connection,
    topic: int,
    partition: int,
    start: int,
    end: int,
    limit: int,
    *,
    of_a_kind: bool = False,
) -> list[tuple[int, bytes]]:
    """Return (first offset, data) of the batches with records in start <= offset < end, up to the
    batch that reaches `limit` records.

    Args:
        of_a_kind: return either a single batch of Arrow rows, or batches of records up to the next
            batch of Arrow rows.
    """
    found: list[tuple[int, bytes]] = []
    taken = 0
    rows = connection.execute(
        "select base, count, data from batches where topic = ? and part = ? and base < ? "
        "and base >= coalesce((select max(base) from batches where topic = ? and part = ? "
        "and base <= ?), 0) order by base",
        (topic, partition, end, topic, partition, start),
    )
    for base, count, data in rows:
        if base + count <= start:
            continue
        is_arrow = of_a_kind and is_batch(data)
        if is_arrow and found:
            break
        found.append((base, data))
        if is_arrow:
            break
        taken += base + count - max(base, start)
        if taken >= limit:
            break
    return found


def read_committed(connection: apsw.Connection, group: str) -> dict[TopicPartition, int]:
    rows = connection.execute(
        "select topic, part, position from committed where grp = ? order by topic, part", (group,)
    )
    return {(topic, part): position for topic, part, position in rows}


def write_committed(
    connection: apsw.Connection, group: str, offsets: Mapping[TopicPartition, int | None]
) -> None:
    """Set consumer offsets, or delete those that are None."""
    for (topic, part), position in offsets.items():
        if position is None:
            connection.execute(
                "delete from committed where grp = ? and topic = ? and part = ?",
                (group, topic, part),
            )
        else:
            connection.execute(
                "replace into committed(grp, topic, part, position) values(?, ?, ?, ?)",
                (group, topic, part, position),
            )
