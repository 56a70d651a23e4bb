"""Which partition a record goes to, as Kafka's default partitioner decides.

Source: `org.apache.kafka.common.utils.Utils.murmur2`, `BuiltInPartitioner`.
"""

from typing import Final

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_CACHED: Final = 10_000


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 of `data`, as an unsigned 32-bit number."""
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
    """Of one producer: by key, or without key all records of one call to one partition, the next
    call to the next."""

    def __init__(self) -> None:
        self._hashes: dict[bytes, int] = {}
        self._turn: dict[str, int] = {}

    def of_key(self, key: bytes, partitions: int) -> int:
        found = self._hashes.get(key)
        if found is None:
            if len(self._hashes) >= _CACHED:
                self._hashes.clear()
            found = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return found % partitions

    def turn(self, topic: str, partitions: int) -> int:
        """The partition for the records without key of one call."""
        turn = self._turn.get(topic, -1) + 1
        self._turn[topic] = turn
        return turn % partitions
