"""SparkSink refuses rows that Spark would change for some readers. The tests need no Spark."""

import datetime
from decimal import Decimal
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


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (pa.array(["a", ""]), "an empty text, which Spark writes as null"),
        (pa.array(["a", "__HIVE_DEFAULT_PARTITION__"]), "the text __HIVE_DEFAULT_PARTITION__, wh"),
        (pa.array([b"a", b"\xff"]), "bytes, of which Spark makes texts"),
    ],
)
def test_values_that_name_no_folder_of_their_own_are_refused(wrong: Any, told: str) -> None:
    """Spark reads such folders as null, and takes bytes for UTF-8."""
    writer = SparkWriter(Sessions("sc://nowhere"), "parquet", {}, ["p"])
    writer.check_rows(pa.table({"p": pa.array(["a", None]), "q": wrong}))
    with pytest.raises(DataError, match=f"column p of partition.by has {told}"):
        writer.check_rows(pa.table({"p": wrong}))


@pytest.mark.parametrize("text", ["a\nb", "a\r", None])
def test_what_is_no_line_is_refused_for_text(text: str | None) -> None:
    """Spark writes a line end as it is, so that readers see two records, and a null as no text."""
    rows = pa.table({"t": pa.array(["a", "", text]), "p": pa.array(["\n", "x", None])})
    text_files = SparkWriter(Sessions("sc://nowhere"), "Text", {}, ["p"])
    text_files.check_rows(rows.slice(0, 2))
    with pytest.raises(DataError, match=r"column t (has a line end|is null)"):
        text_files.check_rows(rows)
    SparkWriter(Sessions("sc://nowhere"), "json", {}, []).check_rows(rows)
    own = SparkWriter(Sessions("sc://nowhere"), "text", {"LINESEP": ";"}, ["p"])
    own.check_rows(pa.table({"t": ["a\nb"], "p": ["x"]}))
    with pytest.raises(DataError, match="column t has a line end"):
        own.check_rows(pa.table({"t": ["a;b"], "p": ["x"]}))


def test_a_null_alone_in_a_csv_line_is_refused() -> None:
    """Spark writes no line at all."""
    rows = pa.table({"t": ["a", "", None], "p": ["x", "y", "z"]})
    subject = SparkWriter(Sessions("sc://nowhere"), "CSV", {}, ["p"])
    subject.check_rows(rows.slice(0, 2))
    subject.check_rows(rows, ["n"])
    for wrong in (rows, rows.select(["p"])):
        with pytest.raises(DataError, match="column t is null, and is the only one"):
            subject.check_rows(wrong, ["t"])
    SparkWriter(Sessions("sc://nowhere"), "csv", {}, []).check_rows(rows)
    named = SparkWriter(Sessions("sc://nowhere"), "csv", {"NullValue": "NULL"}, ["p"])
    named.check_rows(rows, ["t"])


def csv_writer(**options: str) -> SparkWriter:
    return SparkWriter(Sessions("sc://nowhere"), "csv", options, ["p"])


@pytest.mark.parametrize(
    ("options", "text", "told"),
    [
        ({"nullValue": "NULL"}, "NULL", "has the text 'NULL', which is what option.nullValue"),
        ({"emptyValue": "-"}, "-", "has the text '-', which is what option.emptyValue writes"),
        ({"EMPTYVALUE": ""}, "", "has an empty text, which option.emptyValue makes the same"),
        ({"nullValue": "-", "emptyValue": "-"}, "", "has an empty text, which option.emptyValue"),
    ],
)
def test_a_text_that_csv_would_write_as_a_null_is_refused(
    options: dict[str, str], text: str, told: str
) -> None:
    """Seen with Spark 4: with nullValue NULL the text NULL is read as a null."""
    rows = pa.table({"t": ["a", text], "n": [None, 1], "p": ["x", "y"]})
    with pytest.raises(DataError, match=f"^column t {told}"):
        csv_writer(**options).check_rows(rows)
    csv_writer(**options).check_rows(rows.slice(0, 1))
    csv_writer().check_rows(rows)  # a null is nothing then, and an empty text is ""


DAY = datetime.date(2026, 1, 1)


def beside(values: Any) -> Any:
    nulls = pa.nulls(len(values), pa.int8())
    return pa.table({"v": values, "n": nulls, "p": ["x"] * len(values)})


@pytest.mark.parametrize(
    ("null", "values", "others"),
    [
        ("0", pa.array([1, 0]), pa.array([10, None])),
        ("-7", pa.array([-7], pa.int8()), pa.array([7], pa.int8())),
        ("true", pa.array([True, None]), pa.array([False])),
        ("NaN", pa.array([1.0, float("nan")]), pa.array([1.0, None])),
        ("-Infinity", pa.array([float("-inf")]), pa.array([float("inf")])),
        ("0.1", pa.array([0.1], pa.float32()), pa.array([0.2], pa.float32())),
        ("1.50", pa.array([Decimal("1.50")]), pa.array([Decimal("1.51")])),
        ("2026-01-01", pa.array([DAY]), pa.array([datetime.date(2026, 1, 2)])),
        # What the column never writes so.
        ("0", None, pa.array([0.0])),
        ("00", None, pa.array([0])),
        ("300", None, pa.array([44], pa.int8())),
        ("1.5", None, pa.array([Decimal("1.50")])),
        ("True", None, pa.array([True])),
        ("20260101", None, pa.array([DAY])),
        ("none", None, pa.array([0.0])),
    ],
)
def test_a_value_that_csv_would_write_as_a_null_is_refused(
    null: str, values: Any, others: Any
) -> None:
    """Seen with Spark 4: with nullValue 0 the number 0 is read as a null."""
    subject = csv_writer(nullValue=null)
    subject.check_rows(beside(others))
    if values is not None:
        rows = beside(values)
        with pytest.raises(DataError, match=f"column v has a value that is written as '{null}'"):
            subject.check_rows(rows)
        csv_writer(nullValue="NULL").check_rows(rows)
        csv_writer().check_rows(rows)


def test_dates_of_a_format_that_the_user_gives_are_not_compared() -> None:
    subject = csv_writer(nullValue="2026-01-01", dateFormat="dd.MM.yyyy")
    subject.check_rows(beside(pa.array([DAY])))
