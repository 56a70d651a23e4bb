"""DirectorySource reads Parquet files."""

import datetime
import decimal
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task.directory_runs import run, texts
from support.task.source_tasks import Offsets, reasons

from headgate.connector.api import SkippedRecord, SourceRecord


def write(path: Path, columns: dict[str, Any], **options: Any) -> None:
    pq.write_table(pa.table(columns), path, **options)


def test_types_that_json_has_not(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 11, 21, 3, 4, 5, 600, datetime.UTC)
    write(
        tmp_path / "a.parquet",
        {
            "day": [datetime.date(2026, 11, 21)],
            "at": [moment],
            "nano": pa.array([1_000_000_001], pa.timestamp("ns")),
            "sum": [decimal.Decimal("12345678901234567890.10")],
            "raw": [b"\x00\xff"],
            "none": pa.array([None], pa.int64()),
            "nan": [float("nan")],
            "deep": [{"list": [1, 2], "text": "é"}],
            "took": [datetime.timedelta(seconds=1.5)],
        },
    )
    (text,) = texts(run(tmp_path).rest())
    assert json.loads(text) == {
        "day": "2026-11-21",
        "at": "2026-11-21T03:04:05.000600+00:00",
        "nano": "1970-01-01T00:00:01.000000001",
        "sum": "12345678901234567890.10",
        "raw": "AP8=",
        "none": None,
        "nan": "NaN",
        "deep": {"list": [1, 2], "text": "é"},
        "took": 1.5,
    }


@pytest.mark.parametrize("stop", range(10))
def test_from_the_offset_of_any_row_the_rest_follows(tmp_path: Path, stop: int) -> None:
    write(tmp_path / "a.parquet", {"n": list(range(10))}, row_group_size=3)
    whole = run(tmp_path, batch=4).rest()
    assert [json.loads(value)["n"] for value in texts(whole)] == list(range(10))
    offsets = Offsets()
    offsets.commit(whole[stop])
    assert run(tmp_path, offsets, batch=2).rest() == whole[stop + 1 :]


def test_a_file_without_its_footer_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"n": [1, 2]})
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    subject = run(tmp_path, until_idle=False)
    assert [subject.poll() for _ in range(3)] == [[], [], []]  # not idle
    assert subject.context.told == ["a.parquet is awaited: it has no Parquet footer"]
    path.write_bytes(content)
    assert texts(subject.rest()) == ['{"n":1}', '{"n":2}']


def test_a_file_without_its_footer_is_set_aside_when_nothing_more_comes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"n": [1, 2]})
    path.write_bytes(path.read_bytes()[:-10])
    subject = run(tmp_path)
    assert subject.rest() == []
    assert subject.context.quarantined == [f"{path}: it has no Parquet footer"]


@pytest.mark.parametrize("values_now", [[3, 4], [3, 4, 5, 6]])
def test_a_replaced_file_is_read_anew(tmp_path: Path, values_now: list[int]) -> None:
    """Two files of one size whose footers end alike are told apart, too."""
    path = tmp_path / "a.parquet"
    write(path, {"n": [1, 2]})
    offsets = Offsets()
    offsets.commit(run(tmp_path, offsets).rest()[0])
    write(path, {"n": values_now})
    subject = run(tmp_path, offsets)
    found = [json.loads(value)["n"] for value in texts(subject.rest())]
    assert found == values_now
    assert "it was read up to row 1 and is another file now" in subject.context.told[0]


def test_a_corrupt_file_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\x00" * 20 + b"PAR1")
    (tmp_path / "b.parquet").write_bytes(b"not parquet at all, but long")
    write(tmp_path / "c.parquet", {"n": [1]})
    subject = run(tmp_path)
    assert texts(subject.rest()) == ['{"n":1}']
    assert [reason.split(": ")[1] for reason in subject.context.quarantined] == [
        "its footer does not parse",
        "it does not begin as a Parquet file does (PAR1)",
    ]


def test_a_corrupt_row_group_costs_itself_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, {"n": list(range(9))}, row_group_size=3, compression="gzip", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content = bytearray(path.read_bytes())
    start = column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(bytes(content))
    records = run(tmp_path).rest()
    assert [json.loads(value)["n"] for value in texts(records)] == [0, 1, 2, 6, 7, 8]
    (skipped,) = [record for record in records if isinstance(record, SkippedRecord)]
    assert "at row 3: rows 3 to 6 cannot be read" in skipped.reason
    assert skipped.count == 3


def test_int96_keeps_years_and_nanoseconds_that_64_bits_of_them_do_not_hold(
    tmp_path: Path,
) -> None:
    moments = [
        datetime.datetime(1000, 1, 1),
        datetime.datetime(2024, 1, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59),
        None,
    ]
    int96 = {"use_deprecated_int96_timestamps": True, "store_schema": False}
    write(tmp_path / "years.parquet", {"at": pa.array(moments, pa.timestamp("us"))}, **int96)
    fine = pa.array([1_704_067_200_123_456_789, None], pa.timestamp("ns"))
    write(tmp_path / "fine.parquet", {"at": fine}, **int96)
    found = [json.loads(value)["at"] for value in texts(run(tmp_path).rest())]
    assert found == [
        "2024-01-01T00:00:00.123456789",
        None,
        "1000-01-01T00:00:00",
        "2024-01-01T00:00:00",
        "9999-12-31T23:59:59",
        None,
    ]


def test_a_row_without_a_form_in_python_costs_itself_alone(tmp_path: Path) -> None:
    """Reported for readers of Parquet: one bad value took a whole row group with it."""
    days = pa.array([0, 2_932_897, 1], pa.int32()).cast(pa.date32())
    write(tmp_path / "a.parquet", {"n": [1, 2, 3], "day": days})
    raw = pa.array([b"a", b"b", b"\xff"]).view(pa.string())
    write(tmp_path / "b.parquet", {"text": raw})
    records = run(tmp_path).rest()
    assert [json.loads(text) for text in texts(records)] == [
        {"n": 1, "day": "1970-01-01"},
        {"n": 3, "day": "1970-01-02"},
        {"text": "a"},
        {"text": "b"},
    ]
    beyond, not_text = reasons(records)
    assert "a.parquet at row 1: column day of type date32[day]: " in beyond
    assert "b.parquet at row 2: column text of type string: " in not_text


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_a_time_of_day_beyond_24_hours_is_a_bad_row(tmp_path: Path, unit: str) -> None:
    """Python's conversion would make one o'clock of the twenty-fifth hour."""
    hours = {"ms": 3_600_000, "us": 3_600_000_000}[unit]
    width, kind = (pa.int32(), pa.time32) if unit == "ms" else (pa.int64(), pa.time64)
    at = pa.array([1 * hours, 25 * hours, 2 * hours], width).view(kind(unit))
    pq.write_table(pa.table({"at": at}), tmp_path / "a.parquet")
    subject = run(tmp_path)
    records = subject.rest()
    assert [json.loads(text)["at"] for text in texts(records)] == ["01:00:00", "02:00:00"]
    (reason,) = reasons(records)
    assert "a.parquet at row 1: column at of type time" in reason
    assert f"{25 * hours} is not within the acceptable range" in reason


def test_old_timestamps_of_spark_keep_their_years(tmp_path: Path) -> None:
    """Reported to Arrow (44112): INT96 of years 1000 and 9999 read as 2169 and 1816."""
    at = pa.array([datetime.datetime(1000, 1, 1), datetime.datetime(9999, 12, 31)])
    pq.write_table(
        pa.table({"at": at}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True
    )
    assert [json.loads(text)["at"] for text in texts(run(tmp_path).rest())] == [
        "1000-01-01T00:00:00",
        "9999-12-31T00:00:00",
    ]


def test_columns_without_a_form_are_refused_by_name(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(twice, tmp_path / "a.parquet")
    write(tmp_path / "b.parquet", {"n": [1]})
    subject = run(tmp_path)
    records = subject.rest()
    assert texts(records) == ['{"n":1}']
    assert reasons(records) == []
    (reason,) = subject.context.quarantined
    assert "a.parquet: its columns: a struct has two fields of the name 'a'" in reason


def test_int96_that_does_not_fit_the_first_row_groups_unit_is_refused_by_name(
    tmp_path: Path,
) -> None:
    """The unit of a file's column is that of its first row group: nothing is cut to it."""
    schema = pa.schema({"at": pa.timestamp("ns")})
    moments = [0, 1_704_067_200_123_456_789, 1_000]
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, schema, use_deprecated_int96_timestamps=True) as writer:
        for moment in moments:
            writer.write_table(pa.table({"at": pa.array([moment], pa.timestamp("ns"))}))
    records = run(tmp_path).rest()
    assert [json.loads(text)["at"] for text in texts(records)] == [
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00.000001",
    ]
    (reason,) = reasons(records)
    assert "a.parquet at row 1: rows 1 to 2 cannot be read" in reason


def test_a_first_row_group_of_int96_that_cannot_be_read_costs_itself_alone(tmp_path: Path) -> None:
    moments = pa.list_(pa.timestamp("ns"))
    schema = pa.schema({"n": pa.int64(), "moments": moments})
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, schema, use_deprecated_int96_timestamps=True) as writer:
        for number, moment in ((1, 123_456_789), (2, 1_000)):
            column = pa.array([[moment]], moments)
            writer.write_table(pa.table({"n": [number], "moments": column}, schema))
    write(tmp_path / "b.parquet", {"n": [3]})
    subject = run(tmp_path)
    records = subject.rest()
    assert [json.loads(text)["n"] for text in texts(records)] == [2, 3]
    (reason,) = reasons(records)
    assert "a.parquet at row 0: rows 0 to 1 cannot be read: column moments has INT96" in reason
    assert subject.context.quarantined == []


INT96: Any = {"use_deprecated_int96_timestamps": True, "store_schema": False}


def test_int96_in_a_column_with_a_point_in_its_name(tmp_path: Path) -> None:
    kind = pa.struct([("b", pa.timestamp("us"))])
    columns = {"a.b": pa.array([{"b": 5}], kind), "a": pa.array([{"b": 7}], kind)}
    write(tmp_path / "a.parquet", columns, **INT96)
    assert texts(run(tmp_path).rest()) == [
        '{"a.b":{"b":"1970-01-01T00:00:00.000005"},"a":{"b":"1970-01-01T00:00:00.000007"}}'
    ]


def test_int96_beside_a_nan_in_a_struct_is_read(tmp_path: Path) -> None:
    """No value is equal to NaN, not even NaN."""
    kind = pa.struct([("at", pa.timestamp("us")), ("number", pa.float64())])
    moments = pa.array([{"at": 5, "number": math.nan}, None, {"at": None, "number": 1.0}], kind)
    write(tmp_path / "a.parquet", {"c": moments}, **INT96)
    records = run(tmp_path).rest()
    assert reasons(records) == []
    assert len(texts(records)) == 3


def test_int96_columns_of_one_name_are_refused_by_name(tmp_path: Path) -> None:
    at = pa.array([1], pa.timestamp("us"))
    pq.write_table(
        pa.Table.from_arrays([at, at], names=["a", "a"]), tmp_path / "a.parquet", **INT96
    )
    subject = run(tmp_path)
    assert subject.rest() == []
    (reason,) = subject.context.quarantined
    assert "a struct has two fields of the name 'a'" in reason


def test_a_map_with_nan_as_key_twice_is_a_bad_row(tmp_path: Path) -> None:
    """A Python dict holds both NaN keys. Read back from text, one of them is gone."""
    keys = [[(math.nan, 1), (0.5, 2)], [(math.nan, 1), (math.nan, 2)], None]
    nested = [None, None, [[(math.nan, 1), (math.nan, 2)]]]
    kind = pa.map_(pa.float64(), pa.int8())
    columns = {"map": pa.array(keys, kind), "list": pa.array(nested, pa.list_(kind))}
    write(tmp_path / "a.parquet", columns)
    records = run(tmp_path).rest()
    assert len(texts(records)) == 1
    first, second = reasons(records)
    assert "a.parquet at row 1: column map of type map<double, int8" in first
    assert "NaN as a key twice" in first
    assert "a.parquet at row 2: column list of type list<" in second


OLD_DAY, NEW_DAY = datetime.date(1000, 1, 1), datetime.date(1582, 10, 15)
OLD_TIME = datetime.datetime(1899, 12, 31, 23, 59, 59)
NEW_TIME = datetime.datetime(1900, 1, 1)
WRONG_BEFORE = [
    pytest.param({"c": pa.array([NEW_DAY, OLD_DAY])}, {}, "legacyDateTime", id="day"),
    pytest.param(
        {"c": pa.array([NEW_TIME, OLD_TIME], pa.timestamp("us", "UTC"))},
        {}, "legacyDateTime", id="time",
    ),
    pytest.param(
        {"c": pa.array([NEW_TIME, OLD_TIME], pa.timestamp("us"))}, INT96, "legacyINT96", id="int96"
    ),
    pytest.param(
        {"c": pa.array([[{"d": NEW_DAY}], [{"d": OLD_DAY}]])}, {}, "legacyDateTime", id="nested"
    ),
]  # fmt: skip


def write_told(
    folder: Path, columns: dict[str, Any], options: dict[str, Any], told: dict[str, str]
) -> None:
    table = pa.table(columns)
    with pq.ParquetWriter(folder / "a.parquet", table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(told)


@pytest.mark.parametrize(("columns", "options", "mark"), WRONG_BEFORE)
def test_values_that_spark_wrote_by_the_old_calendar_are_refused_by_name(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], mark: str
) -> None:
    """Spark says so in the metadata. As they stand these numbers are another day, or time."""
    told = {"org.apache.spark.version": "3.5.0"}
    write_told(tmp_path, columns, options, {**told, f"org.apache.spark.{mark}": ""})
    records = run(tmp_path).rest()
    assert len([one for one in records if isinstance(one, SourceRecord)]) == 1
    (reason,) = reasons(records)
    assert "column c has a date before 1582 or a time before 1900, which Spark 3.5.0" in reason


@pytest.mark.parametrize(("columns", "options", "mark"), WRONG_BEFORE)
@pytest.mark.parametrize("version", ["2.4.8", "3.5.0", None])
def test_the_old_calendar_by_spark_s_version(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], mark: str, version: str | None
) -> None:
    told = {} if version is None else {"org.apache.spark.version": version}
    write_told(tmp_path, columns, options, told)
    assert len(reasons(run(tmp_path).rest())) == (version == "2.4.8")
