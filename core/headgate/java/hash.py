"""The order in which Java's hash tables walk strings and task ids. Connect lets it decide who keeps
the odd piece of work, and writes some lists, and the names of source partitions, in it.

Source: `java.util.HashMap`, `String.hashCode`; `ConnectorTaskId`.
"""

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from headgate.ids import TaskId, utf16_key
from headgate.java.tree_bins import LIST_MAX, TREES_FROM, HashTable

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


@dataclass(frozen=True, slots=True)
class Hashed(Generic[T]):
    """A kind of keys."""

    hash_of: Callable[[T], int]
    """`hashCode` of a key, unsigned."""
    rank_of: Callable[[T], Any]
    """Sorts them as their `compareTo` does."""


STRINGS: Final = Hashed(string_hash, utf16_key)
TASKS: Final = Hashed(task_hash, lambda task: (utf16_key(task.connector), task.task))


def in_map_order(keys: Collection[str]) -> list[str]:
    """`keys`, each once, as a `HashMap` or `HashSet` walks them that they were put into one by one,
    in their order."""
    if len(keys) < 2:
        return list(keys)
    if _has_a_full_bucket(keys, STRINGS, _CAPACITY_MIN):
        return _walked(keys, STRINGS, _CAPACITY_MIN)
    return _sorted(keys, STRINGS, _capacity_grown(len(keys)))


def in_set_order(
    collection: Sequence[T], kind: Hashed[T], kept: Collection[T] | None = None
) -> list[T]:
    """The items of `collection`, each once, as a `HashSet` walks them that was made of it.

    Args:
        kept: those of them that were left in the set, each once and in the order of `collection`;
            None for all.
    """
    capacity = _capacity_made(len(collection))
    left = list(dict.fromkeys(collection)) if kept is None else kept
    ordered = _sorted(left, kind, capacity)
    # Others in a bucket matter to those who share it; in a small table they may have made it grow.
    taken = {_spread(kind.hash_of(item)) & capacity - 1 for item in left}
    if capacity >= TREES_FROM and len(taken) == len(left):
        return ordered
    whole = left if kept is None else list(dict.fromkeys(collection))
    if not _has_a_full_bucket(whole, kind, capacity):
        return ordered
    chosen = set(left)
    return [item for item in _walked(whole, kind, capacity) if item in chosen]


def _spread(found: int) -> int:
    return found ^ found >> 16


def _sorted(items: Iterable[T], kind: Hashed[T], capacity: int) -> list[T]:
    """As a table of lists walks them."""
    hash_of = kind.hash_of
    return sorted(items, key=lambda item: _spread(hash_of(item)) & capacity - 1)


def _walked(items: Iterable[T], kind: Hashed[T], capacity: int) -> list[T]:
    """As any table walks them, which began with `capacity` buckets."""
    table: HashTable[T] = HashTable(capacity)
    for item in items:
        table.put(item, _spread(kind.hash_of(item)), kind.rank_of(item))
    return list(table.walk())


def _has_a_full_bucket(items: Collection[T], kind: Hashed[T], capacity: int) -> bool:
    """Whether a table that began with `capacity` buckets has, or had while it grew, one with more
    of `items`, which came in this order, than a list may have."""
    if len(items) <= LIST_MAX:
        return False
    spread = [_spread(kind.hash_of(item)) for item in items]
    while True:
        limit = capacity * 3 // 4
        in_buckets = Counter(found & capacity - 1 for found in spread[: limit + 1])
        if max(in_buckets.values(), default=0) > LIST_MAX:
            return True
        if len(spread) <= limit:
            return False
        capacity *= 2


def _capacity_grown(size: int) -> int:
    """Capacity of a table into which `size` keys were put."""
    capacity = _CAPACITY_MIN
    while capacity * 3 // 4 < size:
        capacity *= 2
    return capacity


def _capacity_made(size: int) -> int:
    """Capacity of a table made for `size` keys, by Java 17 and 18. From 19 on it is half of that
    when `size` is exactly 12, 24, 48, …, as if it had grown."""
    capacity = _CAPACITY_MIN
    while capacity < size * 4 // 3 + 1:
        capacity *= 2
    return capacity
