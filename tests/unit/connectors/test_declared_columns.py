"""Files whose columns change from one to the next are read with the declared columns."""

import datetime
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from support.task.directory_runs import by_batches, run
from support.task.source_tasks import Offsets, reasons, values

from headgate.connector.api import SourceRecord
from headgate.connector.config import ConfigError
from headgate_connectors.files.source_config import CONFIG
from headgate_connectors.formats.column_kinds import parse_columns


def parquet_file(table: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=50)
    return out.getvalue()


def arrow_file(table: Any) -> bytes:
    out = io.BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    return out.getvalue()


def orc_file(table: Any) -> bytes:
    out = io.BytesIO()
    orc.write_table(table, out)
    return out.getvalue()


def avro_file(table: Any) -> bytes:
    kinds = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.string(): "string"}
    fields = [{"name": one.name, "type": ["null", kinds[one.type]]} for one in table.schema]
    out = io.BytesIO()
    schema: Any = {"type": "record", "name": "R", "fields": fields}
    fastavro.writer(out, schema, table.to_pylist(), sync_interval=200, sync_marker=b"0" * 16)
    return out.getvalue()


FORMATS: dict[str, Callable[[Any], bytes]] = {
    "parquet": parquet_file,
    "arrow": arrow_file,
    "orc": orc_file,
    "avro": avro_file,
}
every_format = pytest.mark.parametrize("end", FORMATS)
WIDEN = {"schema.change": "widen"}
TYPES = {"columns.types": "n: int64, x: float64, sum: decimal(12,2), note: string", **WIDEN}


def put(path: Path, **columns: Any) -> None:
    path.write_bytes(FORMATS[path.suffix[1:]](pa.table(columns)))


def alike(folder: Path, **config: str) -> list[Any]:
    """The records, which are the same one by one and as batches."""
    one_by_one = run(folder, **config).rest()
    batches = by_batches(folder, **config)
    assert values(batches) == values(one_by_one)
    assert reasons(batches) == reasons(one_by_one)
    assert len({repr(r.value_schema) for r in batches if isinstance(r, SourceRecord)}) <= 1
    assert [r.source_offset for r in batches] == [r.source_offset for r in one_by_one]
    return one_by_one


@every_format
def test_files_of_other_types_have_one_schema_and_no_value_changes(
    tmp_path: Path, end: str
) -> None:
    put(
        tmp_path / f"a.{end}", n=pa.array([1, None], pa.int32()), x=pa.array([5, 2**20], pa.int32())
    )
    put(tmp_path / f"b.{end}", n=pa.array([2**62], pa.int64()), x=pa.array([0.1], pa.float32()))
    put(
        tmp_path / f"c.{end}",
        sum=pa.array([7], pa.int64()),
        note=["é"],
        n=pa.array([3], pa.int32()),
    )
    found = values(alike(tmp_path, **TYPES))
    one = {"n": None, "x": None, "sum": None, "note": None}
    assert found == [
        {**one, "n": 1, "x": 5.0},
        {**one, "x": float(2**20)},
        {**one, "n": 2**62, "x": 0.10000000149011612},
        {**one, "n": 3, "sum": Decimal("7.00"), "note": "é"},
    ]
    assert [*found[0]] == [*found[3]] == ["n", "x", "sum", "note"]


def test_rows_of_a_large_batch_with_a_bad_one_are_given_before_the_next_batch(
    tmp_path: Path,
) -> None:
    """One by one, the rows are more than a poll gives."""
    rows = [*range(9_000)]
    rows[10] = 2**53 + 1
    table = pa.table({"x": pa.array(rows, pa.int64())})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4_500)
    records = alike(tmp_path, **{"columns.types": "x: float64", **WIDEN})
    assert [one["x"] for one in values(records)] == [float(n) for n in range(9_000) if n != 10]


@every_format
def test_a_value_that_the_declared_type_does_not_hold_costs_itself_alone(
    tmp_path: Path, end: str
) -> None:
    rows = [*range(300)]
    rows[123], rows[250] = 2**53 + 1, 2**63 - 1
    put(tmp_path / f"a.{end}", x=pa.array(rows, pa.int64()))
    records = alike(tmp_path, **{"columns.types": "x: float64", **WIDEN})
    assert [one["x"] for one in values(records)] == [
        float(n) for n in range(300) if n not in (123, 250)
    ]
    first, second = reasons(records)
    assert f"a.{end} at row 123: column x of type int64 has a value that is no double" in first
    assert "9007199254740993" in first
    assert "at row 250" in second


@every_format
def test_a_task_goes_on_at_any_row_with_each_row_once(tmp_path: Path, end: str) -> None:
    rows = [*range(120)]
    rows[60] = 2**53 + 1
    put(tmp_path / f"a.{end}", x=pa.array(rows, pa.int64()))
    types = {"columns.types": "x: float64, y: string", **WIDEN}
    whole = run(tmp_path, **types).rest()
    for count in (1, 59, 60, 61, 62, 119):
        offsets = Offsets()
        for record in whole[:count]:
            offsets.commit(record)
        assert values(run(tmp_path, offsets, 7, **types).rest()) == values(whole[count:])
        assert values(by_batches(tmp_path, offsets, **types)) == values(whole[count:])


@every_format
def test_a_type_that_is_not_narrower_is_a_bad_file_by_name_and_the_others_are_read(
    tmp_path: Path, end: str
) -> None:
    put(tmp_path / f"a.{end}", n=["1"])
    put(tmp_path / f"b.{end}", n=pa.array([2], pa.int32()))
    subject = run(tmp_path, **{"columns.types": "n: int64", **WIDEN})
    assert values(subject.rest()) == [{"n": 2}]
    (reason,) = subject.context.quarantined
    assert f"a.{end}: column n is of type string, columns.types declares int64" in reason


def test_without_widen_a_file_with_another_type_or_without_a_column_is_bad(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", n=pa.array([1], pa.int32()), t=["a"])
    put(tmp_path / "b.parquet", n=pa.array([2], pa.int64()), t=["b"])
    put(tmp_path / "c.parquet", n=pa.array([3], pa.int64()))
    subject = run(tmp_path, **{"columns.types": "n: int64, t: string"})
    assert values(subject.rest()) == [{"n": 2, "t": "b"}]
    narrow, missing = subject.context.quarantined
    assert "declares int64: set schema.change = widen" in narrow
    assert "it has no column t" in missing


@every_format
@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["N", "t"], "columns.types has column 'n', the file has 'N', which differs in case or"),
        (["m"], "columns.types has columns n, t, the file has none of them, but m: exclude"),
    ],
    ids=str,
)
def test_a_column_in_another_spelling_is_never_null(
    tmp_path: Path, end: str, given: list[str], told: str
) -> None:
    put(tmp_path / f"a.{end}", **{name: ["a"] for name in given})
    subject = run(tmp_path, **{"columns.types": "n: string, t: string", **WIDEN})
    assert subject.rest() == []
    (reason,) = subject.context.quarantined
    assert told in reason


def test_a_bad_file_fails_the_task_where_that_is_chosen(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", n=["1"])
    types = {"columns.types": "n: int64", **WIDEN, "on.bad.file": "fail"}
    with pytest.raises(Exception, match="column n is of type string"):
        run(tmp_path, **types).rest()


def test_a_bad_value_sets_its_file_aside_without_tolerance(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", x=pa.array([1, 2**53 + 1, 3], pa.int64()))
    types = {"columns.types": "x: float64", **WIDEN, "errors.tolerance": "none"}
    subject = run(tmp_path, **types)
    assert values(subject.rest()) == [{"x": 1.0}]
    assert "at row 1" in subject.context.quarantined[0]


def test_a_column_that_is_not_declared_stays_as_each_file_has_it(tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", more=pa.array([1], pa.int8()), n=pa.array([1], pa.int32()))
    (record,) = alike(tmp_path, **{"columns.types": "n: int64", **WIDEN})
    assert [*record.value] == ["n", "more"]
    assert str(record.value_schema.field("more").schema.type) == "int8"


def test_what_comes_while_the_task_runs_is_widened(tmp_path: Path) -> None:
    """The new type comes in a file that grows, and in a new file."""
    types = {"columns.types": "x: float64", **WIDEN}
    subject = run(tmp_path, until_idle=False, **types)
    narrow = pa.table({"x": pa.array([1, 2**53 + 1], pa.int64())})
    put(tmp_path / "a.avro", x=narrow["x"])
    assert values(subject.rest()) == [{"x": 1.0}]
    with (tmp_path / "a.avro").open("ab") as file:  # the same block again
        file.write(avro_file(narrow)[len(avro_file(narrow.slice(0, 0))) :])
    put(tmp_path / "b.avro", x=pa.array([0.5], pa.float32()))
    more = subject.rest()
    assert values(more) == [{"x": 1.0}, {"x": 0.5}]
    assert "a.avro at row 3: column x" in reasons(more)[0]


TIMES = [
    ("timestamp(us, UTC)", pa.timestamp("ms", "UTC"), datetime.datetime(9999, 1, 1), True),
    ("timestamp(us)", pa.timestamp("s"), datetime.datetime(1, 1, 1), True),
    ("timestamp(ns)", pa.timestamp("us"), datetime.datetime(2263, 1, 1), False),
    ("time(us)", pa.time32("ms"), datetime.time(1, 2), True),
]


@pytest.mark.parametrize(("kind", "given", "value", "holds"), TIMES, ids=[t[0] for t in TIMES])
def test_times_become_finer_where_they_are_in_range(
    tmp_path: Path, kind: str, given: Any, value: Any, holds: bool
) -> None:
    put(tmp_path / "a.parquet", at=pa.array([value, None], given))
    # Parquet has no seconds.
    stored = pq.read_schema(tmp_path / "a.parquet").field("at").type
    records = alike(tmp_path, **{"columns.types": f"at: {kind}", **WIDEN})
    assert len(values(records)) == (2 if holds else 1), (stored, reasons(records))
    assert len(reasons(records)) == (0 if holds else 1)


def test_variants_of_a_type_are_one(tmp_path: Path) -> None:
    words = pa.array(["a", "b", "a"])
    put(tmp_path / "a.arrow", n=words.dictionary_encode())
    put(tmp_path / "b.arrow", n=words.cast(pa.large_string()))
    put(tmp_path / "c.arrow", n=words.cast(pa.string_view()))
    put(tmp_path / "d.arrow", n=words)
    assert len(values(alike(tmp_path, **{"columns.types": "n: string", **WIDEN}))) == 12


@pytest.mark.parametrize(
    ("types", "told"),
    [
        ("n: int65", "int65 is no type, expected string"),
        ("n: timestamp(us, Mars/Base)", "Mars/Base is no time zone"),
        *(
            (f"n: timestamp(us, {zone})", f"{zone} is no offset from UTC, expected -18:00 to")
            for zone in ("+99:99", "+18:01", "-19:00", "+01:60", "+1:00", "-0100")
        ),
        ("n", "expected COLUMN: TYPE"),
        ("n: time(s)", "time(s) is no type"),
    ],
)
def test_types_that_are_not_known_are_refused(types: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        CONFIG.parse({"path": "p", "topic": "t", "columns.types": types})
    assert told in str(refused.value)


def test_a_csv_file_without_a_declared_column_has_null_there(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(200)))
    (tmp_path / "b.csv").write_text("new,id\n5,7\n")
    types = {"csv.types": "id: int64, new: int32"}
    found = values(alike(tmp_path, **types, **WIDEN))
    assert found[0] == {"id": 0, "new": None}
    assert found[-1] == {"id": 7, "new": 5}
    assert len(found) == 201
    subject = run(tmp_path, **types)
    assert len(values(subject.rest())) == 1
    assert "csv.types has column new" in subject.context.quarantined[0]


def test_offsets_from_utc_are_taken() -> None:
    for zone in ("+00:00", "-18:00", "+17:59", "+05:45"):
        assert parse_columns(f"n: timestamp(us, {zone})") == {"n": f"timestamp(us, {zone})"}
