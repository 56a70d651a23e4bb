"""`java_hash` gives the order of Java's real hash tables.

Names and tasks are chosen to crowd into few buckets, so that tables grow early, or grow trees. A
failure names its seed: ``HEADGATE_SEED=<seed> pytest tests/differential`` runs it alone.
"""

import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import pytest
from support.depth import tries
from support.java.assignors import JavaAssignors

from headgate.ids import TaskId
from headgate.java import hash as java_hash
from headgate.java.hash import STRINGS, TASKS, Hashed, in_map_order, in_set_order

ONE = os.environ.get("HEADGATE_SEED")
FIRST = int(ONE) if ONE else random.SystemRandom().randrange(10**9)
TABLES = 1 if ONE else tries(250, 1_000)
NAMES = (12, 60, 1_000)

T = TypeVar("T", str, TaskId)

pytestmark = pytest.mark.slow


def name(chance: random.Random) -> str:
    """Names of one hash are among them: of the same beginning, and of as many blocks."""
    blocks = "".join(chance.choice(("Aa", "BB")) for _ in range(chance.choice((0, 2, 5, 8))))
    return chance.choice(("", "c-", "\ue000", "🐀", str(chance.randrange(3_000)))) + blocks


def crowded(items: Sequence[T], kind: Hashed[T], chance: random.Random) -> list[T]:
    """Choose from `items`, each once: all items of a few buckets, and a few of all."""
    mask = chance.choice((15, 63, 255, 4_095))

    def bucket(item: T) -> int:
        found = kind.hash_of(item)
        return (found ^ found >> 16) & mask

    often = [found for found, _ in Counter(map(bucket, items)).most_common(20)]
    few = set(chance.sample(often, min(len(often), chance.choice((1, 2, 5)))))
    rarely = chance.choice((0.0, 0.01, 0.2))
    each = dict.fromkeys(items)
    return [item for item in each if bucket(item) in few or chance.random() < rarely]


def told(items: Sequence[T]) -> list[object]:
    return [item if isinstance(item, str) else [item.connector, item.task] for item in items]


def walked(
    java: JavaAssignors, given: Sequence[T], kind: Hashed[T], chance: random.Random
) -> tuple[list[T], list[T]]:
    """A set of some of `given` as both walk it, and as it would be walked without trees."""
    items = crowded(given, kind, chance)
    twice = [*items, *chance.sample(items, len(items) // 10)]
    share = chance.choice((0.1, 0.5))
    kept = [item for item in items if chance.random() < share]
    javas = java.ask("walk", tasks=kind is TASKS, items=told(twice), kept=told(kept))
    ours = in_set_order(twice, kind)
    assert told(ours) == javas["set"]
    assert told(in_set_order(twice, kind, kept)) == javas["kept"]
    if kind is STRINGS:
        assert in_map_order([str(item) for item in items]) == javas["map"]
    return ours, java_hash._sorted(items, kind, java_hash._capacity_made(len(twice)))


def test_crowded_tables_are_walked_as_by_java(java: JavaAssignors) -> None:
    of_lists = 0
    for seed in range(FIRST, FIRST + TABLES):
        chance = random.Random(seed)
        names = [name(chance) for _ in range(chance.choice(NAMES))]
        tasks = [TaskId(name, chance.randrange(300)) for name in names]
        try:
            for ours, lists in (
                walked(java, names, STRINGS, chance),
                walked(java, tasks, TASKS, chance),
            ):
                of_lists += ours == lists
        except AssertionError as error:
            raise AssertionError(f"HEADGATE_SEED={seed}: {error}") from None
    turned = 2 * TABLES - of_lists
    print(f"{turned} tables with trees, or that grew early, from HEADGATE_SEED={FIRST} on")
    assert ONE or turned > TABLES / 5


def test_the_key_that_makes_a_table_grow_was_in_it_before(java: JavaAssignors) -> None:
    """The ninth of a bucket makes a tree, though it is the 49th of a table of 64, which is one of
    128 then."""

    def bucket(name: str) -> int:
        found = java_hash.string_hash(name)
        return (found ^ found >> 16) & 63

    names = [f"n{number * 7_919}" for number in range(3_000)]
    nine = [name for name in names if bucket(name) == 5][:9]
    others = [name for name in names if bucket(name) not in (5, 37)][:40]
    items = [*nine[:8], *others, nine[8]]
    javas = java.ask("walk", tasks=False, items=items, kept=[])["map"]
    assert in_map_order(items) == javas
    assert javas != java_hash._sorted(items, STRINGS, 128)
