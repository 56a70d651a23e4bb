"""Connect's data model: the values that a schema accepts and refuses, and errors that name the
place."""

import datetime
import decimal
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.connector import DataError, Field, Schema, SchemaType, validate
from headgate.connector import schema as s

UTC = datetime.UTC
ROW = s.struct(
    {
        "id": s.INT32,
        "tags": s.array(s.STRING.as_optional()),
        "sizes": s.map_of(s.STRING, s.FLOAT64),
        "price": s.decimal_of(2).as_optional(),
        "inner": s.struct({"at": s.TIMESTAMP_SCHEMA}, optional=True),
    }
)
GOOD: dict[str, Any] = {"id": 1, "tags": ["a", None], "sizes": {"x": 1.5}, "inner": None}


def test_a_row_of_every_kind_is_taken() -> None:
    at = datetime.datetime(2024, 1, 1, 2, 3, 4, 5000, tzinfo=UTC)
    validate(ROW, {**GOOD, "price": decimal.Decimal("1.5"), "inner": {"at": at}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "value.id is null, expected INT32, which is required"),
        ({"id": True}, "value.id is of type bool, expected int for INT32"),
        ({"id": 2**31}, "value.id is 2147483648, expected -2147483648 to 2147483647 for INT32"),
        ({"tags": ["a", 1]}, "value.tags[1] is of type int, expected str for STRING"),
        ({"tags": "ab"}, "value.tags is of type str, expected list for ARRAY"),
        ({"sizes": {"x": "1"}}, "value.sizes['x'] is of type str, expected float for FLOAT64"),
        ({"sizes": {1: 1.0}}, "a key of value.sizes is of type int, expected str for STRING"),
        ({"sizes": {"x": 2**53 + 1}}, "which FLOAT64 cannot hold exactly"),
        ({"price": decimal.Decimal("1.005")}, "value.price is 1.005 with 3 digits after the point"),
        ({"price": decimal.Decimal("NaN")}, "value.price is NaN, expected a finite Decimal"),
        ({"price": 1.5}, "value.price is of type float, expected Decimal for BYTES (Decimal)"),
        ({"inner": {"at": datetime.datetime(2024, 1, 1)}}, "value.inner.at is 2024-01-01 00:00:00"),
        ({"inner": {"at": datetime.date(2024, 1, 1)}}, "value.inner.at is of type date, expected"),
        ({"more": 1}, "value has 'more', expected the fields id, tags, sizes, price, inner alone"),
    ],
)
def test_errors_name_the_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        validate(ROW, {**GOOD, **change})
    assert message in str(caught.value)


def test_a_null_with_a_default_is_taken_in_a_struct_and_nowhere_else() -> None:
    number = Schema(SchemaType.INT32, default=3)
    validate(s.struct({"n": number}), {})
    with pytest.raises(DataError, match="value is null, expected INT32, which is required"):
        validate(number, None)


def test_more_digits_of_a_second_than_milliseconds_are_refused() -> None:
    with pytest.raises(DataError, match="expected whole milliseconds"):
        validate(s.TIME_SCHEMA, datetime.time(1, 2, 3, 4))
    with pytest.raises(DataError, match="expected whole milliseconds"):
        validate(s.TIMESTAMP_SCHEMA, datetime.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
    with pytest.raises(DataError, match="of type datetime, expected date"):
        validate(s.DATE_SCHEMA, datetime.datetime(2024, 1, 1, tzinfo=UTC))
    with pytest.raises(DataError, match="with a timezone"):
        validate(s.TIME_SCHEMA, datetime.time(1, tzinfo=UTC))


def test_a_logical_name_on_another_type_is_a_plain_type() -> None:
    """In Java, too, the name alone does not make a STRING a logical type."""
    validate(Schema(SchemaType.STRING, name=s.DATE), "2024")
    assert s.logical_type(Schema(SchemaType.STRING, name=s.DATE)) is None
    assert s.logical_type(s.DATE_SCHEMA) == s.DATE


@pytest.mark.parametrize(
    "made",
    [
        lambda: Schema(SchemaType.ARRAY),
        lambda: Schema(SchemaType.MAP, value_schema=s.INT8),
        lambda: Schema(SchemaType.INT8, value_schema=s.INT8),
        lambda: Schema(SchemaType.INT8, fields=(Field("a", s.INT8),)),
        lambda: Schema(SchemaType.STRUCT, fields=(Field("a", s.INT8), Field("a", s.INT16))),
        lambda: Schema(SchemaType.INT8, default=200),
        lambda: Schema(SchemaType.BYTES, name=s.DECIMAL, default=decimal.Decimal(1)),
    ],
)
def test_parts_that_do_not_fit_a_type_are_refused(made: Callable[[], Schema]) -> None:
    with pytest.raises(DataError):
        made()


def test_equal_schemas_have_one_hash_and_survive_pickling() -> None:
    again = pickle.loads(pickle.dumps(ROW))
    assert again == ROW and hash(again) == hash(ROW)
    assert replace(ROW, doc="other") != ROW
    assert ROW.field("price") == Field("price", s.decimal_of(2).as_optional())
    assert ROW.field("none") is None


@pytest.mark.parametrize("value", [0.1, -0.0, math.nan, math.inf, 3.4e38])
def test_a_float32_takes_what_java_casts(value: float) -> None:
    validate(s.FLOAT32, value)


def test_a_float32_refuses_what_would_become_infinite() -> None:
    with pytest.raises(DataError, match="too large for FLOAT32"):
        validate(s.FLOAT32, 1e39)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None), st.integers(-5, 60))
def test_the_number_that_carries_a_decimal_gives_it_back(
    value: decimal.Decimal, scale: int
) -> None:
    schema = s.decimal_of(scale)
    try:
        validate(schema, value)
    except DataError:
        return
    back = s.to_logical(schema, s.from_logical(schema, value))
    assert back == value
    assert back.as_tuple().exponent == -scale


@given(st.datetimes(timezones=st.timezones()).map(lambda at: at.replace(microsecond=5000)))
def test_the_number_that_carries_a_timestamp_gives_it_back(value: datetime.datetime) -> None:
    try:
        utc = value.astimezone(UTC)
    except OverflowError:
        return
    back = s.to_logical(s.TIMESTAMP_SCHEMA, s.from_logical(s.TIMESTAMP_SCHEMA, value))
    assert back == utc and back.tzinfo is UTC


@given(st.dates(), st.times().map(lambda at: at.replace(microsecond=7000)))
def test_the_numbers_that_carry_dates_and_times_give_them_back(
    date: datetime.date, time: datetime.time
) -> None:
    assert s.to_logical(s.DATE_SCHEMA, s.from_logical(s.DATE_SCHEMA, date)) == date
    assert s.to_logical(s.TIME_SCHEMA, s.from_logical(s.TIME_SCHEMA, time)) == time


@pytest.mark.parametrize(
    ("schema", "carried"),
    [
        (s.DATE_SCHEMA, 2_932_897),
        (s.TIMESTAMP_SCHEMA, 253_402_300_800_000),
        (s.TIMESTAMP_SCHEMA, -(2**63)),
        (s.TIME_SCHEMA, 86_400_000),
        (s.TIME_SCHEMA, -1),
    ],
)
def test_what_python_cannot_hold_is_refused_by_name(schema: Schema, carried: int) -> None:
    with pytest.raises(DataError, match=f"{carried} has no form as "):
        s.to_logical(schema, carried)
