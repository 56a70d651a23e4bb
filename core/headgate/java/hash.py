"""The order in which Java's hash tables walk strings and task ids. In Connect that order decides
which worker keeps the odd piece of work. It is also the order of some lists on the wire and of the
names in source partitions.

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
"""Number of hashes cached. Names and ids come again in every round of a group; a Java string caches
its hash as well."""


@lru_cache(maxsize=_HASHES_CACHED)
def string_hash(text: str) -> int:
    """Return `String.hashCode` as an unsigned 32-bit number."""
    found = 0
    for unit in _utf16_units(text):
        found = 31 * found + unit & _MASK
    return found


def _utf16_units(text: str) -> Iterable[int]:
    if text.isascii():  # nearly all are ASCII, and this is three times as fast
        return text.encode()
    data = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(data) // 2}H", data)


def task_hash(task: TaskId) -> int:
    """Return `ConnectorTaskId.hashCode` as an unsigned 32-bit number."""
    return 31 * string_hash(task.connector) + task.task & _MASK


@dataclass(frozen=True, slots=True)
class Hashed(Generic[T]):
    """A type of keys: how they are hashed and compared."""

    hash_of: Callable[[T], int]
    """Returns the `hashCode` of a key, unsigned."""
    rank_of: Callable[[T], Any]
    """Returns a sort key that orders keys as their `compareTo` does."""


STRINGS: Final = Hashed(string_hash, utf16_key)
TASKS: Final = Hashed(task_hash, lambda task: (utf16_key(task.connector), task.task))


def in_map_order(keys: Collection[str]) -> list[str]:
    """Return `keys` without duplicates, in the order in which a `HashMap` or `HashSet` walks them
    after they were put in one by one."""
    if len(keys) < 2:
        return list(keys)
    if _has_a_full_bucket(keys, STRINGS, _CAPACITY_MIN):
        return _walked(keys, STRINGS, _CAPACITY_MIN)
    return _sorted(keys, STRINGS, _capacity_grown(len(keys)))


def in_set_order(
    collection: Sequence[T], kind: Hashed[T], kept: Collection[T] | None = None
) -> list[T]:
    """Return the items of `collection` without duplicates, in the order in which a `HashSet` made
    of it walks them.

    Args:
        kept: Items that are still in the set, without duplicates and in the order of `collection`;
            None for all.
    """
    capacity = _capacity_made(len(collection))
    left = list(dict.fromkeys(collection)) if kept is None else kept
    ordered = _sorted(left, kind, capacity)
    # Other items in a bucket matter to the items that share it; in a small table they may have made
    # it grow.
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
    """Return the items in the order of a table whose buckets are lists."""
    hash_of = kind.hash_of
    return sorted(items, key=lambda item: _spread(hash_of(item)) & capacity - 1)


def _walked(items: Iterable[T], kind: Hashed[T], capacity: int) -> list[T]:
    """Return the items in the order of any table that began with `capacity` buckets."""
    table: HashTable[T] = HashTable(capacity)
    for item in items:
        table.put(item, _spread(kind.hash_of(item)), kind.rank_of(item))
    return list(table.walk())


def _has_a_full_bucket(items: Collection[T], kind: Hashed[T], capacity: int) -> bool:
    """Return whether a table that began with `capacity` buckets has, or had while it grew, a bucket
    with more items than a list may have. `items` were put in in this order."""
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
    """Return the capacity of a table into which `size` keys were put one by one."""
    capacity = _CAPACITY_MIN
    while capacity * 3 // 4 < size:
        capacity *= 2
    return capacity


def _capacity_made(size: int) -> int:
    """Return the capacity of a table made for `size` keys by Java 17 and 18. From Java 19 on it is
    half of that if `size` is exactly 12, 24, 48, …, as if the table had grown."""
    capacity = _CAPACITY_MIN
    while capacity < size * 4 // 3 + 1:
        capacity *= 2
    return capacity
