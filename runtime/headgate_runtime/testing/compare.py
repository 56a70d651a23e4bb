"""Comparisons of records. They report lost, doubled, foreign and misplaced ones in words for the
author of a connector."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from headgate_runtime.testing.messages import Message

SHOWN = 5
"""Most records of each kind that a failure shows."""
AS_TEXT = (
    "hint: a value without a schema arrives as text; expect that text, or give records a "
    "value_schema"
)


class ConformanceError(AssertionError):
    """The connector does not do what a check expects."""


def fail(where: str, problems: Sequence[str]) -> None:
    """Fail the check if there are problems.

    Raises:
        ConformanceError: there are problems.
    """
    __tracebackhide__ = True
    if problems:
        raise ConformanceError("\n  ".join([f"{where}:", *problems]))


def same_messages(
    expected: Sequence[Message], got: Sequence[Message], folder: Path, *, may_double: bool = False
) -> list[str]:
    """Return problems of what a source wrote. Empty: it is what was expected.

    Records are compared by topic, key, value and headers, within each source partition in order.

    Args:
        folder: folder of the test. Names of folders in it are ignored, as each run has another.
        may_double: at least once: a record may come several times, and after later ones.
    """
    wanted = [_identity(each, folder) for each in expected]
    found = [_identity(each, folder) for each in got]
    shown = {one: each.shown for one, each in zip(found, got, strict=True)}
    shown |= {one: each.shown for one, each in zip(wanted, expected, strict=True)}
    problems = _counts(Counter(wanted), Counter(found), shown, may_double=may_double)
    if problems or may_double:
        return problems
    return _order(wanted, found, shown)


def same_values(
    expected: Iterable[tuple[object, str]], got: Iterable[object], *, may_double: bool = False
) -> list[str]:
    """Return problems of what a sink wrote. Empty: it is what was expected, in any order.

    Args:
        expected: the expected values, each with its record as it is shown.
    """
    wanted = list(expected)
    pairs = [(repr(value), shown) for value, shown in wanted]
    found = Counter(repr(value) for value in got)
    shown = {text: text for text in found} | dict(pairs)
    wanted_counts = Counter(text for text, _ in pairs)
    problems = _counts(wanted_counts, found, shown, may_double=may_double)
    lost = [value for value, _ in wanted if repr(value) not in found]
    if any(repr(_json(value)) in found for value in lost):
        problems.append(AS_TEXT)
    return problems


def _json(value: object) -> str | None:
    """Return `value` as the default converter writes it without a schema. None: it is a text."""
    if isinstance(value, str):
        return None
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError):
        return None


def missing_values(expected: Iterable[tuple[object, str]], got: Iterable[object]) -> list[str]:
    """Return problems as `same_values` does, if more values than expected are allowed."""
    pairs = [(repr(value), shown) for value, shown in expected]
    lost = Counter(text for text, _ in pairs) - Counter(repr(value) for value in got)
    return _listed("lost", lost, dict(pairs))


def _identity(message: Message, folder: Path) -> str:
    partition = sorted((message.source_partition or {}).items())
    parts = (partition, message.topic, message.key, message.value, message.headers)
    return re.sub(re.escape(str(folder)) + r"/[^/'\"]+", "", repr(parts))


def _counts(
    wanted: Counter[str], found: Counter[str], shown: dict[str, str], *, may_double: bool
) -> list[str]:
    foreign = Counter({one: count for one, count in found.items() if one not in wanted})
    doubled = Counter() if may_double else found - wanted - foreign
    problems = [
        *_listed("lost", wanted - found, shown),
        *_listed("doubled", doubled, shown),
        *_listed("not expected", foreign, shown),
    ]
    if problems:
        problems.append(f"expected {sum(wanted.values())} records, found {sum(found.values())}")
    return problems


def _listed(what: str, records: Counter[str], shown: dict[str, str]) -> list[str]:
    lines = [
        f"{what}: {shown[one]}" + (f", {count} times" if count > 1 else "")
        for one, count in list(records.items())[:SHOWN]
    ]
    more = len(records) - SHOWN
    return [*lines, f"{what}: {more} more"] if more > 0 else lines


def _order(wanted: list[str], found: list[str], shown: dict[str, str]) -> list[str]:
    """Return a problem for the first misplaced record of each source partition."""
    problems: list[str] = []
    for start in dict.fromkeys(_partition(one) for one in wanted):
        left = [one for one in wanted if _partition(one) == start]
        right = [one for one in found if _partition(one) == start]
        for expected, got in zip(left, right, strict=True):
            if expected != got:
                problems.append(f"out of order: {shown[got]}, expected {shown[expected]}")
                break
    return problems[:SHOWN]


def _partition(identity: str) -> str:
    return identity.partition("], ")[0]
