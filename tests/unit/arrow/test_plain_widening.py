"""Rows that come one by one are widened as Arrow widens them, but faster."""

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate_arrow.plain_widening import plain_widening
from headgate_arrow.wider_columns import WiderColumns

UTC_MS, UTC_US = pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")
PAIRS: list[tuple[Any, Any]] = [
    (pa.int8(), pa.int64()),
    (pa.int32(), pa.float64()),
    (pa.int64(), pa.float64()),
    (pa.int64(), pa.decimal128(10, 2)),
    (pa.float32(), pa.float64()),
    (pa.decimal128(8, 2), pa.decimal128(12, 4)),
    (pa.string(), pa.large_string()),
    (UTC_MS, UTC_US),
    (UTC_MS, pa.timestamp("ns", "UTC")),
    (pa.timestamp("s"), pa.timestamp("ns")),
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**66), 2**66),
    st.integers(-200, 200),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False),
    st.decimals(allow_nan=False, places=2, min_value=-(10**7), max_value=10**7),
    st.sampled_from([Decimal("-0.00"), Decimal("1E+3"), Decimal("NaN"), Decimal("0.005")]),
    st.text(max_size=3),
    st.datetimes(timezones=st.just(datetime.UTC)),
    st.datetimes(timezones=st.just(datetime.UTC)).map(lambda at: at.replace(microsecond=5000)),
)


def wider(pair: tuple[Any, Any]) -> WiderColumns:
    narrow, wide = (pa.schema([("c", kind)]) for kind in pair)
    return WiderColumns(narrow, wide)


@given(st.sampled_from(PAIRS), VALUES)
@example((pa.float32(), pa.float64()), 2**24 + 1)
def test_a_value_alone_is_what_arrow_makes_of_it(pair: tuple[Any, Any], value: Any) -> None:
    subject = wider(pair)
    (alone,) = subject.rows([{"c": value}])
    # Two rows go through Arrow.
    first, second = subject.rows([{"c": value}, {"c": value}])
    assert alone == first == second
    assert repr(alone) == repr(first)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_these_types_are_plain(pair: tuple[Any, Any]) -> None:
    assert plain_widening(*pair) is not None
