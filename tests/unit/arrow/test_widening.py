"""Which Arrow types hold the values of which others. No value is changed by a widening."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_arrow.widening import LossError, may_widen, parts_that_hold, widened
from headgate_arrow.wider_columns import WiderColumns

UTC = pa.timestamp("us", "UTC")
UTC_MS = pa.timestamp("ms", "UTC")
WORDS = pa.dictionary(pa.int8(), pa.string())
LONG_WORDS = pa.dictionary(pa.int32(), pa.int64())
INT_LIST, LONG_LIST = pa.list_(pa.int32()), pa.large_list(pa.int64())
POINT = pa.struct([pa.field("x", pa.int32(), False)])
POINT3 = pa.struct([pa.field("x", pa.int64()), pa.field("z", pa.float64())])
HOLDS: list[tuple[Any, Any, list[Any]]] = [
    (pa.int8(), pa.int16(), [-128, None, 127]),
    (pa.int16(), pa.int32(), [-32768, 32767]),
    (pa.int32(), pa.int64(), [-(2**31), 2**31 - 1]),
    (pa.uint8(), pa.int16(), [0, 255]),
    (pa.uint8(), pa.float16(), [0, 255]),
    (pa.uint32(), pa.uint64(), [2**32 - 1]),
    (pa.uint32(), pa.int64(), [2**32 - 1]),
    (pa.int32(), pa.float64(), [-(2**31), 2**31 - 1]),
    (pa.int64(), pa.float64(), [2**53, -(2**53), 2**60, -(2**63), None]),
    (pa.int64(), pa.float32(), [2**24, 2**40]),
    (pa.int64(), pa.decimal128(21, 2), [-(2**63), 2**63 - 1]),
    (pa.int64(), pa.decimal128(5, 2), [999, -999, None]),
    (pa.uint64(), pa.decimal128(20, 0), [2**64 - 1]),
    (pa.float32(), pa.float64(), [0.1, float("inf"), None]),
    (pa.decimal128(5, 2), pa.decimal128(10, 4), [Decimal("999.99")]),
    (pa.decimal128(38, 2), pa.decimal256(40, 3), [Decimal("1.25")]),
    (pa.string(), pa.large_string(), ["é", None, ""]),
    (pa.string_view(), pa.string(), ["a" * 40, "b"]),
    (WORDS, pa.string(), ["a", "b", "a", None]),
    (pa.string(), WORDS, ["a", "b", "a", None]),
    (pa.binary(3), pa.binary(), [b"abc"]),
    (pa.date64(), pa.date32(), [datetime.date(2026, 11, 26)]),
    (pa.timestamp("s", "UTC"), UTC, [datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)]),
    (pa.timestamp("s", "UTC"), UTC_MS, [253_402_300_799, None, -62_135_596_800]),
    (pa.timestamp("ms"), pa.timestamp("ns"), [datetime.datetime(2262, 4, 11)]),
    (pa.time32("ms"), pa.time64("us"), [datetime.time(23, 59, 59, 999000)]),
    (pa.duration("s"), pa.duration("ms"), [datetime.timedelta(days=-1)]),
    (pa.null(), pa.int64(), [None, None]),
    (pa.null(), LONG_WORDS, [None, None]),
    (pa.dictionary(pa.int8(), pa.int32()), pa.int64(), [1, 2, None]),
    (pa.binary(), pa.dictionary(pa.int32(), pa.large_binary()), [b"a", None]),
    (INT_LIST, LONG_LIST, [[1, None], None, []]),
    (pa.list_(pa.int32(), 2), LONG_LIST, [[1, 2], None]),
    (POINT, POINT3, [{"x": 1}, None]),
    (pa.map_(pa.string(), pa.int8()), pa.map_(pa.string(), pa.int32()), [[("a", 1)], None, []]),
]
"""Type, wider type, values of both."""


@pytest.mark.parametrize(("narrow", "wide", "values"), HOLDS, ids=str)
def test_a_wider_type_holds_the_values(narrow: Any, wide: Any, values: list[Any]) -> None:
    assert may_widen(narrow, wide)
    made = pa.array(values, narrow)
    found = widened(made, wide)
    found.validate(full=True)
    assert found.type == wide
    want = made.to_pylist()
    if pa.types.is_struct(wide):
        want = [None if one is None else {**one, "z": None} for one in want]
    assert found.to_pylist() == want
    # Of a slice, too: what stands before it and behind it is not looked at.
    assert widened(made.slice(1), wide).to_pylist() == want[1:]
    assert len(widened(made.slice(0, 0), wide)) == 0


LOST: list[tuple[Any, Any, Any]] = [
    (pa.int64(), pa.float64(), 2**53 + 1),
    (pa.int64(), pa.float64(), 2**63 - 1),
    (pa.uint64(), pa.float64(), 2**64 - 1),
    (pa.int32(), pa.float32(), 2**24 + 1),
    (pa.int64(), pa.decimal128(5, 2), 1000),
    (pa.timestamp("s"), pa.timestamp("ns"), datetime.datetime(2263, 1, 1)),
    (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), datetime.datetime(1600, 1, 1)),
    (pa.timestamp("s", "UTC"), UTC_MS, 253_402_300_800),
    (pa.timestamp("s", "UTC"), UTC_MS, -62_135_596_801),
    (pa.list_(pa.timestamp("s", "UTC")), pa.list_(UTC_MS), [253_402_300_800]),
    (pa.struct([("at", pa.timestamp("s", "UTC"))]), pa.struct([("at", UTC_MS)]), {"at": 10**12}),
    (INT_LIST, pa.list_(pa.float32()), [2**24 + 1]),
    (POINT3, pa.struct([pa.field("x", pa.float64()), pa.field("z", pa.float64(), False)]), {}),
]
"""Type, wider type, a value that it does not hold."""


@pytest.mark.parametrize(("narrow", "wide", "value"), LOST, ids=str)
def test_a_value_that_does_not_hold_is_refused(narrow: Any, wide: Any, value: Any) -> None:
    assert may_widen(narrow, wide)
    with pytest.raises(LossError):
        widened(pa.array([None, value], narrow), wide)


NARROWER: list[tuple[Any, Any]] = [
    (pa.int64(), pa.int32()),
    (pa.int8(), pa.uint64()),
    (pa.uint64(), pa.int64()),
    (pa.float64(), pa.float32()),
    (pa.int32(), pa.float16()),
    (pa.float64(), pa.int64()),
    (pa.float64(), pa.decimal128(38, 10)),
    (pa.decimal128(10, 2), pa.float64()),
    (pa.decimal128(10, 2), pa.decimal128(10, 3)),
    (pa.decimal128(10, 2), pa.decimal128(11, 1)),
    (pa.int64(), pa.string()),
    (pa.bool_(), pa.int8()),
    (pa.string(), pa.binary()),
    (pa.binary(), pa.binary(3)),
    (pa.date32(), pa.timestamp("ms")),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")),
    (pa.time64("us"), pa.time32("ms")),
    (INT_LIST, pa.list_(pa.int16())),
    (INT_LIST, pa.int32()),
    (pa.int32(), LONG_WORDS),
    (pa.int64(), LONG_WORDS),
    (pa.dictionary(pa.int8(), pa.int64()), LONG_WORDS),
    (pa.string(), pa.dictionary(pa.int32(), pa.string_view())),
    (POINT3, POINT),
    (POINT, pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.int64(), False)])),
]


@pytest.mark.parametrize(("given", "wanted"), NARROWER, ids=str)
def test_a_narrower_type_or_one_of_another_kind_is_none(given: Any, wanted: Any) -> None:
    assert not may_widen(given, wanted)


def test_a_row_beyond_the_year_9999_is_refused_by_itself_as_in_a_batch() -> None:
    """Python has no datetime for it."""
    narrow, wide = (pa.schema([("at", kind)]) for kind in (pa.timestamp("s", "UTC"), UTC_MS))
    subject = WiderColumns(narrow, wide)
    rows = [{"at": 5}, {"at": 253_402_300_800}, {"at": 7}]
    first, wrong, last = subject.rows(rows)
    assert isinstance(first, dict) and isinstance(last, dict)
    assert [one["at"].second for one in (first, last)] == [5, 7]
    text = "column at of type timestamp[s, tz=UTC] has a value that is no timestamp[ms, tz=UTC]"
    assert isinstance(wrong, str) and text in wrong and "beyond the years 1 to 9999" in wrong
    assert subject.rows(rows[1:2]) == [wrong]
    with pytest.raises(LossError, match="beyond the years 1 to 9999"):
        subject.batch(pa.RecordBatch.from_pylist(rows, narrow))


def test_rows_that_python_cannot_hold_are_refused_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error may be any on which Arrow's conversion of the rows stumbles."""
    subject = WiderColumns(*(pa.schema([("n", kind)]) for kind in (pa.int8(), pa.int64())))
    monkeypatch.setattr(subject, "_rows", stumble)
    assert subject.rows([{"n": 1}, {"n": 2}, {"n": 3}]) == [{"n": 1}, "no such date", {"n": 3}]


def stumble(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if {"n": 2} in rows:
        raise OverflowError("no such date")
    return rows


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_as_floats_are_the_same_numbers_or_refused(numbers: list[int]) -> None:
    exact = all(int(float(one)) == one for one in numbers)
    try:
        found = widened(pa.array(numbers, pa.int64()), pa.float64()).to_pylist()
    except LossError:
        assert not exact
    else:
        assert exact
        assert [int(one) for one in found] == numbers


@given(st.integers(0, 70), st.sets(st.integers(0, 69)))
def test_parts_that_hold_leave_no_row_out(count: int, bad: set[int]) -> None:
    def holds(start: int, end: int) -> bool:
        return not bad.intersection(range(start, end))

    parts = list(parts_that_hold(count, holds))
    assert [row for start, end in parts for row in range(start, end)] == list(range(count))
    assert all(holds(start, end) or end - start == 1 for start, end in parts)
