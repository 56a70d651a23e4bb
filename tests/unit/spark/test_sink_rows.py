"""Rows that SparkSink refuses since Spark would change them for some readers; without Spark."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from headgate.connector import DataError
from headgate_spark.sessions import Sessions
from headgate_spark.sink_target import SparkWriter

UTC = pa.timestamp("us", "UTC")
LAST, FIRST = datetime.date(1582, 10, 14), datetime.date(1582, 10, 15)
MIDNIGHT = datetime.datetime(1582, 10, 15, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (pa.array([FIRST, None]), pa.array([FIRST, LAST])),
        (pa.array([MIDNIGHT], UTC), pa.array([MIDNIGHT - SECOND], UTC)),
        (pa.array([[{"d": FIRST}]]), pa.array([[{"d": LAST}]])),
    ],
)
def test_days_of_the_old_calendar_are_refused_for_orc(new: Any, old: Any) -> None:
    """Measured: Spark writes 1000-01-01 to ORC as a number that pyarrow reads as 1000-01-06."""
    orc = SparkWriter(Sessions("sc://nowhere"), "ORC", {}, [])
    orc.check_rows(pa.table({"n": pa.array([1] * len(new)), "c": new}))
    with pytest.raises(DataError, match="column c has a day before 15 October 1582"):
        orc.check_rows(pa.table({"c": old}))
    SparkWriter(Sessions("sc://nowhere"), "parquet", {}, []).check_rows(pa.table({"c": old}))
