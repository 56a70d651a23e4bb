"""The order in which Java's hash tables walk strings and task ids. Connect lets it decide who keeps
the odd piece of work, and writes some lists in it.

Source: `java.util.HashMap`, `String.hashCode`; the record `ConnectorTaskId`. Not followed: in a
table of 64 buckets or more Java turns a bucket of more than eight into a tree, and in a smaller one
it grows the table for it. That takes nine keys whose hashes agree in their last bits. In the first
case their order among each other may differ, in the second the order of all.
"""

import struct
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, TypeVar

from headgate.ids import TaskId

T = TypeVar("T")

_MASK: Final = 0xFFFFFFFF
_CAPACITY_MIN: Final = 16
_HASHES_CACHED: Final = 2**15
"""A Java string keeps its hash as well: names and ids come again in every round of a group."""


@lru_cache(maxsize=_HASHES_CACHED)
def string_hash(text: str) -> int:
    """`String.hashCode` as an unsigned number of 32 bits."""
    found = 0
    for unit in _utf16_units(text):
        found = 31 * found + unit & _MASK
    return found


def _utf16_units(text: str) -> Iterable[int]:
    if text.isascii():  # nearly all are, and this is three times as fast
        return text.encode()
    data = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(data) // 2}H", data)


def task_hash(task: TaskId) -> int:
    """`ConnectorTaskId.hashCode` as an unsigned number of 32 bits."""
    return 31 * string_hash(task.connector) + task.task & _MASK


def in_map_order(keys: Collection[str]) -> list[str]:
    """`keys`, each once, as a `HashMap` or `HashSet` walks them that they were put into one by one,
    in their order."""
    return _in_order(keys, string_hash, _capacity_grown(len(keys)))


def in_set_order(items: Iterable[T], hash_of: Callable[[T], int], size: int) -> list[T]:
    """`items`, each once, as a `HashSet` walks them that was made of a collection of `size`, of
    which they are a part, in its order."""
    return _in_order(items, hash_of, _capacity_made(size))


def _in_order(items: Iterable[T], hash_of: Callable[[T], int], capacity: int) -> list[T]:
    def bucket(item: T) -> int:
        found = hash_of(item)
        return (found ^ found >> 16) & capacity - 1

    return sorted(items, key=bucket)


def _capacity_grown(size: int) -> int:
    """Of a table into which `size` keys were put."""
    capacity = _CAPACITY_MIN
    while capacity * 3 // 4 < size:
        capacity *= 2
    return capacity


def _capacity_made(size: int) -> int:
    """Of a table made for `size` keys, by Java 17 and 18. From 19 on it is half of that when `size`
    is exactly 12, 24, 48, …, as if it had grown."""
    capacity = _CAPACITY_MIN
    while capacity < size * 4 // 3 + 1:
        capacity *= 2
    return capacity
