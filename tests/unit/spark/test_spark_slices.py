"""One slice is read from a log in memory, written, and read back by other software."""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from support.spark.record_columns import Columns

from headgate.connector import schema as s
from headgate.connector.text_converters import TypedConverter
from headgate.ports import ConsumerRecord, Headers, LogBatch, UnknownTopicError
from headgate_arrow.rows import batch_of, schema_bytes, to_bytes
from headgate_spark.columns import typed_kind
from headgate_spark.file_sink import check_staged
from headgate_spark.files import LocalFiles
from headgate_spark.slices import (
    OtherFolderError,
    OtherLogError,
    SliceResult,
    SliceTask,
    parse_object,
    run_slice,
)


class MemoryLog:
    """Reads of one topic-partition."""

    def __init__(self, records: Sequence[ConsumerRecord], end: int = 1000) -> None:
        self._records = records
        self._end = end

    def end_offsets(self, topics: Sequence[str]) -> Mapping[tuple[str, int], int]:
        return {(topic, 0): self._end for topic in topics}

    def read(
        self, _topic: str, _partition: int, start: int, end: int, limit: int
    ) -> list[ConsumerRecord]:
        return [one for one in self._records if start <= one.offset < end][:limit]


class ColumnsLog(MemoryLog):
    """Reads of whole columns."""

    def read_columns(self, *place: Any) -> Columns:
        return Columns(self.read(*place))


class BatchLog(MemoryLog):
    """A log that has one batch."""

    def __init__(self, batch: LogBatch) -> None:
        super().__init__([])
        self._batch = batch

    def read_columns(self, _topic: str, _part: int, start: int, *_more: int) -> Any:
        return self._batch if start == 0 else Columns([])


def records(*values: bytes | None, headers: Headers = ()) -> list[ConsumerRecord]:
    return [
        ConsumerRecord("t", 0, offset * 2, b"k", value, headers, 1000)  # offsets have holes
        for offset, value in enumerate(values)
    ]


def run(
    folder: Path, given: Sequence[ConsumerRecord], kind: str = "parquet", **more: Any
) -> SliceResult:
    return run_on(MemoryLog(given), folder, kind, **more)


def run_on(log: MemoryLog, folder: Path, kind: str = "parquet", **more: Any) -> SliceResult:
    settings: dict[str, Any] = {"metadata": (), "columns": {}, "tolerate": False, "envelope": False}
    task = SliceTask("t", 0, 0, 1000, str(folder), 0, 0, kind, **{**settings, **more})
    return run_slice(log, SliceTask.from_json(task.to_json()))  # type: ignore[arg-type]


def parquet(folder: Path, result: SliceResult) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = pyarrow.parquet.read_table(folder / result.staged).to_pylist()
    return rows


def test_objects_become_columns_and_others_a_value(tmp_path: Path) -> None:
    given = records(b'{"a": 1, "b": [1, 2]}', b"text", b"[1]", None, b'{"a": 2.5}')
    result = run(tmp_path, given)
    rows = parquet(tmp_path, result)
    assert [row["a"] for row in rows] == [1.0, None, None, None, 2.5]
    assert [row["b"] for row in rows] == ["[1,2]", None, None, None, None]
    assert [row["value"] for row in rows] == [None, "text", "[1]", None, None]


def test_json_files_keep_objects_as_they_are(tmp_path: Path) -> None:
    values = [b'{"a":1,"b":{"c":[1,null]}}', b'{"a":"x","n":12345678901234567890123}', b"text"]
    result = run(tmp_path, records(*values), "json")
    lines = (tmp_path / result.staged).read_bytes().splitlines()
    assert lines == [*values[:2], b'{"value":"text"}']


def test_csv_has_a_header_and_a_line_for_each_record(tmp_path: Path) -> None:
    result = run(tmp_path, records(b'{"a": 1, "b": "x,\\n\\"y"}', b'{"a": 2}'), "csv")
    table = pyarrow.csv.read_csv(
        tmp_path / result.staged,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
    )
    assert table.to_pylist() == [{"a": 1, "b": 'x,\n"y'}, {"a": 2, "b": ""}]


ALONE: list[tuple[list[bytes | None], str, str]] = [
    ([b"x", b"", None, b"y"], "value", '"value"\n"x"\n""\n"y"\n'),
    ([b'{"n":1}', b'{"n":2}', b'{"n":null}', b'{"n":3}'], "n", '"n"\n1\n2\n3\n'),
    ([b'{"t":"a"}', b'{"t":""}', b"{}", b'{"t":"b"}'], "t", '"t"\n"a"\n""\n"b"\n'),
]


@pytest.mark.parametrize(("values", "column", "text"), ALONE)
@pytest.mark.parametrize("by_columns", [False, True])
def test_a_null_in_the_only_column_of_a_csv_file_costs_itself_alone(
    tmp_path: Path, values: list[bytes | None], column: str, text: str, by_columns: bool
) -> None:
    """Such a row is an empty line, over which readers pass. In a column of texts it came back as an
    empty text."""
    given = records(*values)
    log = ColumnsLog(given) if by_columns else MemoryLog(given)
    result = run_on(log, tmp_path, "csv", tolerate=True, tells_bad=True)
    assert (tmp_path / result.staged).read_text() == text
    assert (result.records, result.skipped) == (3, 1)
    told = f"the value at t-0 offset 4 has null in {column}, the only column: CSV has no form for"
    assert result.detail.startswith(told)
    assert result.bad == [(4, result.detail)]
    failed = run_on(log, tmp_path, "csv")
    assert failed.failed == result.detail
    assert not failed.staged
    assert run_on(log, tmp_path, "csv", metadata=("offset",)).records == 4
    assert run_on(log, tmp_path, "csv", columns={"more": "long"}).records == 4
    assert run_on(log, tmp_path).records == 4


def test_csv_files_of_nulls_alone_are_not_written(tmp_path: Path) -> None:
    given = records(None, b"{}", b'{"a":null}')
    result = run(tmp_path, given, "csv", tolerate=True)
    assert (result.records, result.skipped, result.staged) == (0, 3, "")
    keys = [ConsumerRecord("t", 0, 0, None, None, (), 1000)]
    assert run(tmp_path, keys, "csv", metadata=("key",)).failed.startswith("the value at t-0 off")


def test_numbers_that_are_none_are_texts_in_csv_files(tmp_path: Path) -> None:
    """A batch of the log lost them: a NaN became null."""
    schema = s.struct({"n": s.INT64, "x": s.FLOAT64.as_optional()})
    floats = [float("nan"), float("inf"), None, float("-inf"), 0.5]
    rows = [{"n": n, "x": x} for n, x in enumerate(floats)]
    batch = LogBatch(
        *("t", 0, len(rows), None, (), 0, schema_bytes(schema)),
        to_bytes(batch_of(rows, schema)),
        offset=0,
    )
    result = run_on(BatchLog(batch), tmp_path, "csv")
    text = '"n","x"\n0,"NaN"\n1,"Infinity"\n2,\n3,"-Infinity"\n4,"0.5"\n'
    assert (tmp_path / result.staged).read_text() == text


def test_numbers_that_are_none_are_texts_among_texts(tmp_path: Path) -> None:
    """The column's values have two types in its first batch. Once a NaN became ``null``."""
    convert = TypedConverter().from_connect
    data = [
        convert("t", {"x": value}, s.struct({"x": schema}))
        for value, schema in [
            *((float(text), s.FLOAT64) for text in ("nan", "inf", "-inf", "1.5")),
            (float("nan"), s.FLOAT32),
            ("text", s.STRING),
        ]
    ]
    result = run(tmp_path, records(*data))
    found = [row["x"] for row in parquet(tmp_path, result)]
    assert found == ["NaN", "Infinity", "-Infinity", "1.5", "NaN", "text"]


def test_a_column_without_values_is_left_out_of_the_file_but_known(tmp_path: Path) -> None:
    result = run(tmp_path, records(b'{"a": null, "b": 1}'))
    assert result.columns == {"a": "null", "b": "integer"}
    assert parquet(tmp_path, result) == [{"b": 1}]
    assert parquet(tmp_path, run(tmp_path, records(None, b"{}"))) == [{"value": None}] * 2


def test_known_columns_come_first_and_decide_the_type(tmp_path: Path) -> None:
    result = run(tmp_path, records(b'{"n": 1, "a": 7}'), columns={"a": "string", "z": "long"})
    schema = pyarrow.parquet.read_schema(tmp_path / result.staged)
    assert [(field.name, str(field.type)) for field in schema] == [
        ("a", "string"),
        ("z", "int64"),
        ("n", "int64"),
    ]
    assert parquet(tmp_path, result) == [{"a": "7", "z": None, "n": 1}]


def test_a_column_has_one_spelling(tmp_path: Path) -> None:
    """Spark, Hive and DuckDB refuse a folder with both (SPARK-25207, duckdb 7956)."""
    given = records(b'{"ID": 1}', b'{"id": 2, "b": 1}', b'{"Id": 3, "B": null}', b'{"ID":1,"id":2}')
    result = run(tmp_path, given, merges_case=True, tolerate=True)
    nothing = {"ID": None, "b": None}
    rows = [{"ID": 1}, {"ID": 2, "b": 1}, {"ID": 3}]
    assert parquet(tmp_path, result) == [{**nothing, **row} for row in rows]
    assert (result.skipped, result.renamed) == (1, "id as ID")
    assert "offset 6 cannot be read: its field id differs from ID in case only" in result.detail
    known = run(tmp_path, records(b'{"ID": 1}'), merges_case=True, columns={"id": "integer"})
    assert parquet(tmp_path, known) == [{"id": 1}]
    of_both = {"ID": "integer", "id": "integer"}  # written before there was the option
    both = run(tmp_path, records(b'{"ID":1,"id":2}'), merges_case=True, columns=of_both)
    assert parquet(tmp_path, both) == [{"ID": 1, "id": 2}]
    kept = run(tmp_path, given)
    assert list(kept.columns) == ["ID", "id", "b", "Id", "B"]


def test_a_field_named_like_a_metadata_column_in_another_case_is_kept(tmp_path: Path) -> None:
    result = run(tmp_path, records(b'{"_TOPIC": 1}'), merges_case=True, metadata=("topic",))
    assert parquet(tmp_path, result) == [{"__TOPIC": 1, "_topic": "t"}]


@pytest.mark.parametrize(("choice", "rows"), [("keep", [1, None, 2]), ("skip", [1, 2])])
def test_tombstones_by_choice(tmp_path: Path, choice: str, rows: list[int | None]) -> None:
    given = records(b'{"a": 1}', None, b'{"a": 2}')
    result = run(tmp_path, given, on_null=choice)
    assert [row["a"] for row in parquet(tmp_path, result)] == rows
    assert result.skipped == 0
    failed = run(tmp_path, given, on_null="fail")
    assert failed.failed == "the record at t-0 offset 2 has no value (a tombstone)"
    assert run(tmp_path, given, on_null="fail", tolerate=True).skipped == 1


def test_metadata_columns_never_hide_a_field(tmp_path: Path) -> None:
    headers = (("headgate.file", b"a/b.jsonl"), ("headgate.position", b"120"))
    given = records(b'{"_offset": "mine", "__offset": "too", "_key": 1}', headers=headers)
    result = run(tmp_path, given, metadata=("offset", "file", "position", "timestamp"))
    assert parquet(tmp_path, result) == [
        {
            "__offset": "mine",
            "___offset": "too",
            "_key": 1,
            "_offset": 0,
            "_file": "a/b.jsonl",
            "_position": 120,
            "_timestamp": 1000,
        }
    ]


def test_a_key_that_is_no_text_follows_the_tolerance_where_it_is_written(tmp_path: Path) -> None:
    """Once such a key was written with escapes, as if it were another key."""
    one, other = records(b"v", b"w")
    given = [replace(one, key=b"k"), replace(other, key=b"\xff")]
    refused = run(tmp_path, given, metadata=("key",))
    assert refused.failed.startswith("the key at t-0 offset 2, for the column _key, is not UTF-8")
    tolerated = run(tmp_path, given, metadata=("key",), tolerate=True)
    assert (tolerated.records, tolerated.skipped) == (1, 1)
    assert parquet(tmp_path, tolerated) == [{"value": "v", "_key": "k"}]
    assert run(tmp_path, given).records == 2


def test_a_value_that_is_no_text_follows_the_tolerance(tmp_path: Path) -> None:
    headers = (("headgate.file", b"in.txt"), ("headgate.position", b"9"))
    given = records(b"ok", b"\xff\xfe", headers=headers)
    refused = run(tmp_path, given)
    assert refused.failed.startswith("the value at t-0 offset 2 (in.txt position 9) is not UTF-8")
    assert not (tmp_path / "_headgate").exists()
    tolerated = run(tmp_path, given, tolerate=True)
    assert (tolerated.records, tolerated.skipped) == (1, 1)
    assert "offset 2" in tolerated.detail


def test_a_header_without_a_value_says_nothing_of_a_file(tmp_path: Path) -> None:
    headers: Headers = (("headgate.file", None), ("headgate.position", None), ("h", None))
    given = records(b"ok", b"\xff\xfe", headers=headers)
    result = run(tmp_path, given, tolerate=True, metadata=("file", "position"))
    assert (result.records, result.skipped) == (1, 1)
    assert result.detail.startswith("the value at t-0 offset 2 is not UTF-8")


def test_a_record_that_the_client_cannot_read_follows_the_tolerance(tmp_path: Path) -> None:
    given = records(b"ok", b"not")
    given[1].unreadable = "the name of a header is not UTF-8"
    assert run(tmp_path, given).failed == (
        "the record at t-0 offset 2: the name of a header is not UTF-8"
    )
    tolerated = run(tmp_path, given, tolerate=True)
    assert (tolerated.records, tolerated.skipped) == (1, 1)


def test_an_empty_slice_writes_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, []).staged == ""
    assert list(tmp_path.iterdir()) == []


def test_each_attempt_writes_a_file_of_its_own(tmp_path: Path) -> None:
    """A lost attempt may still be writing: it must not write into the file that is committed."""
    one, two = (run(tmp_path, records(b"x")) for _ in range(2))
    assert one.staged != two.staged


def test_the_envelope_of_json_converter_is_opened(tmp_path: Path) -> None:
    """The sinks without Spark read it in the same way (DBZ-548, jdbc 280): a decimal is no
    base64."""
    fields = (
        b'{"field": "a", "type": "int32", "optional": true, "default": 7},'
        b'{"field": "d", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",'
        b' "parameters": {"scale": "2"}},'
        b'{"field": "at", "type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}'
    )
    payload = b'{"a": null, "d": "BNI=", "at": 1500}'
    given = records(
        b'{"schema": {"type": "struct", "fields": [%s]}, "payload": %s}' % (fields, payload),
        b'{"schema": {"type": "int32"}, "payload": 5}',
        b'{"schema": null, "payload": {"b": [1]}}',
        b'{"schema": 1, "payload": 2, "more": 3}',
        b'{"plain": 1}',
    )
    result = run(tmp_path, given, "json", envelope=True, tolerate=True)
    lines = [json.loads(line) for line in (tmp_path / result.staged).read_text().splitlines()]
    at = "1970-01-01T00:00:01.500000+00:00"
    assert lines == [{"a": 7, "d": "12.34", "at": at}, {"value": 5}, {"b": [1]}]
    assert result.skipped == 2
    assert "offset 6 cannot be read: JsonConverter with schemas.enable" in result.detail


def test_typed_values_are_columns_of_text_where_json_has_no_type(tmp_path: Path) -> None:
    schema = s.struct({"n": s.INT64, "price": s.decimal_of(2), "day": s.DATE_SCHEMA})
    value = {"n": 1, "price": Decimal("1.50"), "day": date(2024, 2, 29)}
    data = TypedConverter().from_connect("t", value, schema)
    result = run(tmp_path, records(data, b'{"n": 2}'), "json")
    lines = [json.loads(line) for line in (tmp_path / result.staged).read_text().splitlines()]
    assert lines == [{"n": 1, "price": "1.50", "day": "2024-02-29"}, {"n": 2}]


def types(folder: Path, result: SliceResult) -> dict[str, str]:
    return {one.name: str(one.type) for one in pyarrow.parquet.read_schema(folder / result.staged)}


def test_typed_values_keep_the_types_that_spark_reads(tmp_path: Path) -> None:
    schema = s.struct(
        {
            "n": s.INT32,
            "price": s.decimal_of(2, 10),
            "day": s.DATE_SCHEMA,
            "at": s.TIMESTAMP_SCHEMA,
            "data": s.BYTES.as_optional(),
            "list": s.array(s.decimal_of(1, 4)),
            "small": s.FLOAT32,
            "x": s.FLOAT64,
            "clock": s.TIME_SCHEMA,
        }
    )
    value = {
        "n": 1,
        "price": Decimal("1.50"),
        "day": date(1, 1, 1),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC),
        "data": None,
        "list": [Decimal("0.1")],
        "small": 0.5,
        "x": float("-inf"),
        "clock": time(1, 2, 3),
    }
    data = [TypedConverter().from_connect("t", one, schema) for one in (value, value)]
    result = run(tmp_path, records(data[0], None, data[1]), metadata=("offset",))
    assert types(tmp_path, result) == {
        "n": "int64",
        "price": "decimal128(10, 2)",
        "day": "date32[day]",
        "at": "timestamp[ms, tz=UTC]",
        "list": "list<element: decimal128(4, 1) not null>",
        "small": "float",
        "x": "double",
        "clock": "string",
        "_offset": "int64",
    }
    first, tombstone, last = parquet(tmp_path, result)
    del value["data"]
    assert first == {**value, "clock": "01:02:03", "_offset": 0}
    assert tombstone == {**dict.fromkeys(value), "_offset": 2}
    assert last == {**first, "_offset": 4}


def test_what_a_schema_does_not_hold_costs_itself_alone(tmp_path: Path) -> None:
    schema = s.struct({"price": s.decimal_of(1)})
    convert = TypedConverter().from_connect
    data = [convert("t", {"price": Decimal(text)}, schema) for text in ("1.5", "9" * 40, "2.5")]
    result = run(tmp_path, records(*data), tolerate=True)
    assert parquet(tmp_path, result) == [{"price": Decimal("1.5")}, {"price": Decimal("2.5")}]
    assert result.skipped == 1
    assert result.detail.startswith("the value at t-0 offset 2 cannot be written: column price")


@pytest.mark.parametrize(
    ("pinned", "value", "now", "was"),
    [
        ("integer", b'{"p": 10.5}', "double", "int64"),
        ("long", b'{"p": "x"}', "string", "int64"),
        ("double", b'{"p": 9007199254740993}', "int64", "double"),
        ("boolean", b'{"p": 1}', "int64", "bool"),
        ("float", b'{"p": 0.1}', "double", "float"),
        (typed_kind(pa.date32()), b'{"p": "2024-01-01"}', "string", "date32[day]"),
    ],
)
def test_a_value_that_does_not_fit_its_column_costs_itself_alone(
    pinned: str, value: bytes, now: str, was: str, tmp_path: Path
) -> None:
    """The files before have that type, and readers take the folder for one table (SPARK-23822)."""
    given = records(b'{"p": null, "q": 1}', value, b'{"q": 2}')
    result = run(tmp_path, given, columns={"p": pinned}, tolerate=True)
    assert [row["q"] for row in parquet(tmp_path, result)] == [1, 2]
    assert types(tmp_path, result)["p"] == was
    assert result.skipped == 1
    told = f"the value at t-0 offset 2 does not fit column p: it is of type {now}, expected {was}"
    assert result.detail.startswith(told)
    failed = run(tmp_path, given, columns={"p": pinned})
    assert failed.failed == result.detail
    assert not failed.staged


@pytest.mark.parametrize(
    ("pinned", "value", "row"),
    [
        ("integer", b'{"p": 9007199254740993}', 9007199254740993),
        ("double", b'{"p": 7}', 7.0),
        ("string", b'{"p": 7}', "7"),
        ("null", b'{"p": 7}', 7),
    ],
)
def test_what_fits_is_written_with_the_type_of_its_column(
    pinned: str, value: bytes, row: object, tmp_path: Path
) -> None:
    result = run(tmp_path, records(value), columns={"p": pinned})
    assert [repr(one["p"]) for one in parquet(tmp_path, result)] == [repr(row)]


def test_values_of_two_schemas_in_a_first_batch_become_texts(tmp_path: Path) -> None:
    convert = TypedConverter().from_connect
    one = convert("t", {"p": Decimal("1.50")}, s.struct({"p": s.decimal_of(2, 10)}))
    other = convert("t", {"p": date(2024, 2, 29)}, s.struct({"p": s.DATE_SCHEMA}))
    result = run(tmp_path, records(one, other, b'{"p": {"a": 1}}', b'{"p": true}'))
    assert result.columns == {"p": "string"}
    rows = [row["p"] for row in parquet(tmp_path, result)]
    assert rows == ["1.50", "2024-02-29", '{"a":1}', "true"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'  {"a": 1}', {"a": 1}),
        (b'{"a": 18446744073709551616}', {"a": 18446744073709551616}),
        (b'{"a": {"b": [123456789012345678901]}}', {"a": {"b": [123456789012345678901]}}),
        (b'{"a": -9223372036854775809, "b": 1.5}', {"a": -9223372036854775809, "b": 1.5}),
        (b'{"a": 1e300, "b": [{"c": 0.5}]}', {"a": 1e300, "b": [{"c": 0.5}]}),
        (b'{"a": "12:00:00", "b" : {"c"\n:[{"d":1}]}}', {"a": "12:00:00", "b": {"c": [{"d": 1}]}}),
        (b'{"a": NaN}', None),
        (b"[1]", None),
        (b'{"a": 1', None),
        (b"x{", None),
        (b"", None),
    ],
)
def test_what_is_an_object(data: bytes, expected: object) -> None:
    assert parse_object(data) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"a":1, "b":2, "a" :1}',
        '{"b":[{"a":{"c":1,"c":1}}]}',
        '{"a":1,"\\u0061":2}',
        '{"a":1,"b":"x:y","a":2}',
        '{"a":1,"b":[[],[{"c":1,"c"\n:2}]]}',
        '{"a":1,"a":{}}',
    ],
)
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_an_object_with_a_member_twice_costs_itself_alone(
    tmp_path: Path, text: str, kind: str
) -> None:
    """Once one of the two members was dropped silently."""
    given = records(b'{"a":0}', text.encode(), b'{"a":"\\"a\\":1 : \\"a\\" : 2"}')
    result = run(tmp_path, given, kind, tolerate=True)
    assert (result.records, result.skipped) == (2, 1)
    assert "offset 2 cannot be read: it has the member" in result.detail
    assert "twice in one object, expected each once" in result.detail


def test_fields_of_a_struct_that_differ_in_case_only_cost_their_record(tmp_path: Path) -> None:
    """Spark refuses a folder with both, at any depth."""
    inner = s.struct({"ID": s.INT64, "id": s.INT64})
    schema = s.struct({"n": s.INT64, "list": s.array(inner)})
    value = {"n": 1, "list": [{"ID": 1, "id": 2}]}
    given = records(TypedConverter().from_connect("t", value, schema), b'{"n":2}')
    result = run(tmp_path, given, merges_case=True, tolerate=True)
    assert parquet(tmp_path, result) == [{"n": 2}]
    assert "cannot be written: list.id differs from list.ID in case only" in result.detail
    assert result.skipped == 1
    assert parquet(tmp_path, run(tmp_path, given))[0]["list"] == [{"ID": 1, "id": 2}]


def test_an_executor_without_the_folder_of_the_task_is_refused(tmp_path: Path) -> None:
    """The executor may be on another machine, where nothing is mounted. It must not create a folder
    of its own."""
    folder = tmp_path / "out"
    words = rf"path {folder}: there is no such folder\. The executor on {socket.gethostname()} has"
    with pytest.raises(OtherFolderError, match=words):
        run(folder, records(b'{"a": 1}'))
    assert not folder.exists()


def test_a_file_that_was_staged_in_another_folder_is_not_committed(tmp_path: Path) -> None:
    """The executor has a folder of that name, which is not the task's."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    result = run(theirs, records(b'{"a": 1}'))
    check_staged(LocalFiles(theirs), [result, SliceResult()])
    with pytest.raises(OtherFolderError, match=rf"path {ours}: \S+ was written there and is not"):
        check_staged(LocalFiles(ours), [result])


@pytest.mark.parametrize("end", [0, 999])
def test_a_log_that_ends_before_the_range_is_not_the_one_that_was_planned_on(
    tmp_path: Path, end: int
) -> None:
    """For example, the log was created anew after its data folder was removed. The records that it
    lacks would be committed."""
    task = SliceTask("t", 0, 0, 1000, str(tmp_path), 0, 0, "json", (), {}, False, False)
    with pytest.raises(OtherLogError, match=f"t-0 ends at offset {end} here"):
        run_slice(MemoryLog(records(b"1"), end), task)  # type: ignore[arg-type]


def test_a_topic_that_the_executor_does_not_know_ends_the_batch(tmp_path: Path) -> None:
    class Empty(MemoryLog):
        def read(self, topic: str, *_args: Any) -> list[ConsumerRecord]:
            raise UnknownTopicError(f"topic {topic!r} does not exist")

    task = SliceTask("t", 0, 0, 1000, str(tmp_path), 0, 0, "json", (), {}, False, False)
    with pytest.raises(UnknownTopicError):
        run_slice(Empty([]), task)  # type: ignore[arg-type]
