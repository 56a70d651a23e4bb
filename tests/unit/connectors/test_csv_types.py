"""CSV columns with declared types: a value of the type keeps its text, and any other value is
named."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.task.source_tasks import Offsets, Run, values

from headgate.connector import schema as s
from headgate.connector.api import SkippedRecord, SourceRecord
from headgate_connectors.directory import DirectorySource
from headgate_connectors.formats.csv_types import column, parse_types
from headgate_connectors.formats.text_checks import zone_of

UTC = datetime.UTC


def run(folder: Path, offsets: Offsets | None = None, **settings: str) -> Run:
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    return Run(
        DirectorySource, {"path": str(folder), "topic": "t", "file.settle.ms": "0", **keys}, offsets
    )


BERLIN = zone_of("Europe/Berlin")


def test_rows_have_a_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'id,name,price,day,ok\n1,a,2.50,2026-11-26,true\n,,,,\n-7,"x\ny",0,0001-01-01,FALSE\n'
    )
    types = "id: int64, price: decimal(10,2), day: date, ok: boolean"
    items = run(tmp_path, csv_types=types, csv_null="").rest()
    schema = s.struct(
        {
            "id": s.INT64.as_optional(),
            "name": s.STRING.as_optional(),
            "price": s.decimal_of(2, 10).as_optional(),
            "day": s.DATE_SCHEMA.as_optional(),
            "ok": s.BOOLEAN.as_optional(),
        }
    )
    assert [item.value_schema for item in items if isinstance(item, SourceRecord)] == [schema] * 3
    day = datetime.date
    assert [list(value.values()) for value in values(items)] == [
        [1, "a", Decimal("2.50"), day(2026, 11, 26), True],
        [None] * 5,
        [-7, "x\ny", Decimal("0.00"), day(1, 1, 1), False],
    ]
    for value in values(items):
        s.validate(schema, value)


def test_a_text_that_is_no_value_is_a_bad_record_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('n,t\n1,"two\nlines"\n\nx,b\n3,c\n,d\n5,e,f\n6,g\n')
    found = run(tmp_path, csv_types="n: int8", errors_tolerance="all", batch_size="1").rest()
    assert [value["n"] for value in values(found)] == [1, 3, 6]
    reasons = [item.reason for item in found if isinstance(item, SkippedRecord)]
    assert reasons == [
        f"{path} at byte 19: bad CSV row: column n is 'x', expected int8, a whole number from -128 "
        "to 127 (line 5)",
        f"{path} at byte 27: bad CSV row: column n is '', expected int8, a whole number from -128 "
        "to 127; if an empty field is a null, set csv.null to nothing (line 7)",
        f"{path} at byte 30: bad CSV row: 3 fields, but the header row has 2 (line 8)",
    ]


def test_the_line_is_right_where_a_file_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("n\n1\n2\n3\n")
    offsets = Offsets()
    for record in run(tmp_path, csv_types="n: int8").rest():
        offsets.commit(record)
    with path.open("a") as file:
        file.write("4\nx\n")
    again = run(tmp_path, offsets, csv_types="n: int8", errors_tolerance="all")
    (bad,) = [item for item in again.rest() if isinstance(item, SkippedRecord)]
    assert bad.reason.endswith("(line 6)")


def test_a_file_without_a_declared_column_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,other\n1,2\n")
    subject = run(tmp_path, csv_types="id: int64, price: float64")
    assert subject.rest() == []
    assert subject.context.quarantined == [
        f"{tmp_path}/a.csv: csv.types has column price, the file has id, other: exclude the file, "
        "mend csv.types, or set schema.change = widen to have null there"
    ]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("id;price", "has columns id, price, the file has none of them, but id;price: exclude"),
        ("ID,Price", "has column 'id', the file has 'ID', which differs in case or outer spaces"),
        ("id, price", "has column 'price', the file has ' price', which differs in case or outer"),
        ("name", "has columns id, price, the file has none of them, but name: exclude the file"),
    ],
)
@pytest.mark.parametrize("change", ["widen", "refuse"])
def test_another_spelling_or_delimiter_is_never_null(
    tmp_path: Path, header: str, told: str, change: str
) -> None:
    (tmp_path / "a.csv").write_text(f"{header}\n7,9.5\n")
    subject = run(tmp_path, csv_types="id: int64, price: float64", schema_change=change)
    assert subject.rest() == []
    (reason,) = subject.context.quarantined
    assert f"csv.types {told}" in reason
    assert reason.endswith("mend csv.types, or mend its header row or csv.delimiter")


def test_a_declared_column_in_two_spellings_may_be_null(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n7\n")
    subject = run(tmp_path, csv_types="id: int64, ID: int64", schema_change="widen")
    assert values(subject.rest()) == [{"id": 7, "ID": None}]


def test_files_without_a_header_comments_and_escapes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('#made by x\n1,a\\,b\n# 2,c\n3,"#d\n#e"\n')
    found = run(
        tmp_path,
        csv_header="false",
        csv_columns="n,text",
        csv_comment="#",
        csv_escape="\\",
        csv_types="n: int16",
    ).rest()
    assert values(found) == [{"n": 1, "text": "a,b"}, {"n": 3, "text": "#d\n#e"}]
    (tmp_path / "a.csv").write_text("# by x\n\n#\nn,t\n#\n1,a\n")
    assert values(run(tmp_path, csv_comment="#").rest()) == ['{"n":"1","t":"a"}']


GOOD: list[tuple[str, str, Any]] = [
    ("int8", "-128", -128),
    ("int64", "+9223372036854775807", 2**63 - 1),
    ("int32", "007", 7),
    ("float64", "-2.5e3", -2500.0),
    ("float64", "-Infinity", float("-inf")),
    ("float32", "0.5", 0.5),
    ("float32", "0.1", 0.10000000149011612),
    ("float64", "0.00e5", 0.0),
    ("float64", "5e-324", 5e-324),
    ("decimal(5,2)", "1.5e1", Decimal("15.00")),
    ("decimal(5,2)", "-999.990", Decimal("-999.99")),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("boolean", "True", True),
    ("date", "2024-02-29", datetime.date(2024, 2, 29)),
    ("time", "07:05", datetime.time(7, 5)),
    ("time", "07:05:09.120000", datetime.time(7, 5, 9, 120_000)),
    ("timestamp", "2026-11-26T07:05:09.5Z", datetime.datetime(2026, 11, 26, 7, 5, 9, 500_000, UTC)),
    ("timestamp", "2026-11-26 07:05:09+01:00", datetime.datetime(2026, 11, 26, 6, 5, 9, 0, UTC)),
    ("timestamp", "2026-11-26 07:05", datetime.datetime(2026, 11, 26, 6, 5, 0, 0, UTC)),
    ("string", " a ", " a "),
]


@pytest.mark.parametrize(("kind", "text", "value"), GOOD)
def test_texts_that_hold(kind: str, text: str, value: Any) -> None:
    schema, parse = column(kind, BERLIN)
    found = parse(text)
    assert (found, type(found)) == (value, type(value))
    s.validate(schema, found)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("int8", "128"), ("int8", "1.0"), ("int8", " 1"), ("int64", "1_000"), ("int32", "٣")),
        *(("int64", "9" * 5_000), ("float64", "1e999"), ("float64", "nan"), ("float64", "1_0")),
        *(("float64", "1e-400"), ("float64", "-.00001e-400"), ("float32", "1e-60")),
        *(("float32", "1e39"), ("float64", ""), ("decimal(5,2)", "1.005"), ("boolean", "1")),
        *(("decimal(5,2)", "1000"), ("decimal(5,2)", "NaN"), ("date", "26.11.2026")),
        *(("date", "2023-02-29"), ("date", "20260101"), ("time", "24:00"), ("time", "7:05")),
        *(
            ("time", "07:05:09.1234"),
            ("timestamp", "2026-11-26"),
            ("timestamp", "2026-13-01 00:00Z"),
        ),
        *(("timestamp", "2026-11-26T07:05:09.123456Z"), ("timestamp", "0001-01-01T00:00+01:00")),
        *(("timestamp", "2026-10-25 02:30"), ("timestamp", "2026-03-29 02:30")),
    ],
)
def test_texts_that_do_not_hold(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected "):
        column(kind, BERLIN)[1](text)


@pytest.mark.parametrize("text", ["0001-01-01 00:00", "9999-12-31 23:59:59.999"])
def test_a_time_that_is_beyond_the_years_in_utc_is_a_bad_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(f"at\n{text}\n2026-11-26 07:05\n")
    zone = "Asia/Tokyo" if text < "1" else "America/New_York"
    settings = {"csv_timezone": zone, "csv_types": "at: timestamp", "errors_tolerance": "all"}
    bad, good = run(tmp_path, **settings).rest()
    assert isinstance(bad, SkippedRecord)
    assert "expected a timestamp in the years 1 to 9999 of UTC" in bad.reason
    assert isinstance(good, SourceRecord)


def test_a_timestamp_without_a_zone_is_refused_unless_one_is_set() -> None:
    with pytest.raises(ValueError, match=r"set csv.timezone"):
        column("timestamp", None)[1]("2026-11-26 07:05")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_decimals_are_exact_or_refused(value: Decimal) -> None:
    parse = column("decimal(9,3)", None)[1]
    if abs(value) < 10**6:
        assert parse(str(value)) == value
    else:
        with pytest.raises(ValueError, match="expected decimal"):
            parse(str(value))


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("csv.types", "id int64", "expected COLUMN: TYPE"),
        ("csv.types", "id: long", "long is no type, expected string, boolean"),
        ("csv.types", "id: decimal(39,0)", "P from 1 to 38"),
        ("csv.types", "id: int8, id: int8", "column id stands there twice"),
        ("csv.timezone", "Berlin", "is no time zone"),
        ("csv.columns", "a,b", "the header row has them"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, key: str, text: str, expected: str) -> None:
    config = {"path": str(tmp_path), "topic": "t", key: text}
    told = [
        *DirectorySource.validate(config).get(key, []),
        *(str(one.errors) for one in DirectorySource.config_def().validate(config).values()),
    ]
    assert any(expected in message for message in told), told


def test_names_of_columns_may_have_colons() -> None:
    assert parse_types("a:b: int8, c: decimal( 4 , 2 ),") == {
        "a:b": "int8",
        "c": "decimal( 4 , 2 )",
    }
