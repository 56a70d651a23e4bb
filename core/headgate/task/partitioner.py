"""Kafka's default partitioner: chooses the partition of a record."""

from collections.abc import Callable, Sequence
from typing import Final

from headgate.ports import LogBatch, ProducerRecord, TopicPartition

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_CACHED: Final = 10_000


def murmur2(data: bytes) -> int:
    """Return Kafka's murmur2 hash of `data` as an unsigned 32-bit number."""
    length = len(data)
    found = 0x9747B28C ^ length
    for at in range(0, length - length % 4, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        found = found * _M & _MASK ^ k
    if tail := data[length - length % 4 :]:
        found = (found ^ int.from_bytes(tail, "little")) * _M & _MASK
    found = (found ^ found >> 13) * _M & _MASK
    return found ^ found >> 15


class Partitioner:
    """Partitioner of one producer. Records with a key are partitioned by its hash. Records without
    one go to a single partition per call, and to the next partition in the next call."""

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}
        self._turn: dict[str, int] = {}

    def places(
        self, records: Sequence[ProducerRecord], partitions: Callable[[str], int]
    ) -> list[tuple[TopicPartition, ProducerRecord]]:
        """Return each record with its topic partition; `partitions` returns a topic's partition
        count.

        Raises:
            ValueError: A record names a partition that its topic does not have.
        """
        counts = {topic: partitions(topic) for topic in {record.topic for record in records}}
        turns: dict[str, int] = {}
        found: list[tuple[TopicPartition, ProducerRecord]] = []
        for record in records:
            topic, partition = record.topic, record.partition
            if partition is None:
                if record.key is not None:
                    partition = self._of_key(record.key, counts[topic])
                elif topic in turns:
                    partition = turns[topic]
                else:
                    partition = turns[topic] = self._turn_of(topic, counts[topic])
            elif not 0 <= partition < counts[topic]:
                raise ValueError(
                    f"partition {partition} of {topic}, expected 0 to {counts[topic] - 1}"
                )
            found.append(((topic, partition), record))
        return found

    def place(self, batch: LogBatch, partitions: Callable[[str], int]) -> TopicPartition:
        """Return the topic partition of all rows of `batch`, chosen as in `places`."""
        record = ProducerRecord(batch.topic, batch.partition, batch.key, None)
        return self.places([record], partitions)[0][0]

    def _of_key(self, key: bytes, partitions: int) -> int:
        found = self._hashes.get(key)
        if found is None:
            if len(self._hashes) >= _CACHED:
                self._hashes.clear()
            found = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return found % partitions

    def _turn_of(self, topic: str, partitions: int) -> int:
        turn = self._turn.get(topic, -1) + 1
        self._turn[topic] = turn
        return turn % partitions
