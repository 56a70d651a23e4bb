"""Batches of Arrow rows in the files of a DirectorySink."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.connector import DataError
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types, rows
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_connectors.output.writers import ROW_GROUP_ROWS

PLACE = ("t", 0)
WORDS = pa.dictionary(pa.int8(), pa.string())
TYPES = {
    "plain": WORDS,
    "in a list": pa.list_(WORDS),
    "in a struct": pa.struct([("x", WORDS)]),
}


def task(folder: Path, *, reports: bool = False, **settings: Any) -> DirectorySinkTask:
    made = DirectorySinkTask()
    made.context = FakeSinkContext(reports=reports)
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    made.start({"name": "s", "path": str(folder), "rotate.interval.ms": "600000", **config})
    made.open([PLACE])
    return made


def batch(first: int, values: list[Any], kind: Any) -> SinkBatch:
    plain = {"plain": pa.string(), "in a list": pa.list_(pa.string())}
    name = next(name for name, one in TYPES.items() if one == kind)
    made = pa.array(values, plain.get(name, pa.struct([("x", pa.string())]))).cast(kind)
    return typed(first, made, kind)


def typed(first: int, values: Any, kind: Any) -> SinkBatch:
    table = pa.table({"word": pa.array(values, kind)})
    return SinkBatch(
        *("t", 0, first, rows.record_batch(table)), arrow_types.struct_schema(table.schema)
    )


def numbers(start: int, end: int) -> SinkBatch:
    table = pa.table({"n": range(start, end)})
    return SinkBatch(
        *("t", 0, start, rows.record_batch(table)), arrow_types.struct_schema(table.schema)
    )


def written(folder: Path) -> list[int]:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return [number for table in tables for number in table["n"].to_pylist()]


def test_only_files_of_tables_in_one_folder_take_batches(tmp_path: Path) -> None:
    taken = [
        task(tmp_path / f"{at}", format=format, partition_by=by).takes_batches()
        for at, (format, by) in enumerate(
            [("parquet", ""), ("arrow", ""), ("parquet", "n"), ("csv", ""), ("jsonl", "")]
        )
    ]
    assert taken == [True, True, False, False, False]


def test_rows_of_batches_that_are_delivered_again_are_in_a_file_once(tmp_path: Path) -> None:
    subject = task(tmp_path)
    for start, end in [(0, 10), (5, 15), (0, 3), (15, 20)]:
        subject.put_batch(numbers(start, end))
    stop(subject, 20)
    again = task(tmp_path)
    text = pa.table({"n": ["a"]})  # columns of what is passed over count for nothing
    schema = arrow_types.struct_schema(text.schema)
    again.put_batch(SinkBatch("t", 0, 3, rows.record_batch(text), schema))
    again.put_batch(numbers(10, 25))
    stop(again, 25)
    assert written(tmp_path) == list(range(25))


def test_the_rest_of_a_batch_waits_where_another_task_was_first(tmp_path: Path) -> None:
    slow, fast = task(tmp_path, rotate_records=10), task(tmp_path, rotate_records=5)
    fast.put_batch(numbers(0, 5))
    slow.put_batch(numbers(0, 30))
    assert written(tmp_path) == list(range(5))
    assert slow.context.seeks == {PLACE: 5}  # type: ignore[attr-defined]
    slow.put_batch(numbers(5, 30))
    stop(slow, 30)
    assert written(tmp_path) == list(range(30))


def test_a_record_waits_where_another_task_was_first_as_room_is_made(tmp_path: Path) -> None:
    schema = arrow_types.struct_schema(pa.table({"n": [1], "m": [1]}).schema)

    def put(subject: DirectorySinkTask, *offsets: int) -> None:
        rows = [(n, {"n": n, "m": n}) for n in offsets]
        subject.put([SinkRecord("t", 0, n, None, row, (), 0, None, schema) for n, row in rows])

    settings = {"partition_by": "m", "open_max": 1}
    slow, fast = task(tmp_path, **settings), task(tmp_path, **settings)
    put(fast, 0, 1)  # the second makes room
    put(slow, 0, 1, 2)
    assert len(staged(tmp_path)) == 1  # the other's
    assert slow.context.seeks == {PLACE: 1}  # type: ignore[attr-defined]
    put(slow, 1, 2)
    stop(slow, 3)
    assert sorted(path.parent.name for path in tmp_path.glob("m=*/*.parquet")) == [
        *("m=0", "m=1", "m=2")
    ]
    assert sorted(pq.read_table(path)["n"][0].as_py() for path in tmp_path.glob("m=*/*")) == [
        *(0, 1, 2)
    ]


def staged(folder: Path) -> list[Path]:
    return list((folder / "_headgate" / "staging").iterdir())


def test_staged_files_of_whoever_was_not_first_are_removed(tmp_path: Path) -> None:
    slow, fast = task(tmp_path), task(tmp_path, rotate_records=5)
    slow.put_batch(numbers(0, 3))
    assert len(staged(tmp_path)) == 1
    fast.put_batch(numbers(0, 5))
    stop(slow, 3)
    assert staged(tmp_path) == []


def test_a_staged_file_of_a_task_that_was_killed_is_removed_once_another_has_its_rows(
    tmp_path: Path,
) -> None:
    killed, fast = task(tmp_path), task(tmp_path, rotate_records=5)
    killed.put_batch(numbers(0, 3))
    fast.put_batch(numbers(0, 5))
    assert len(staged(tmp_path)) == 1
    task(tmp_path)
    assert staged(tmp_path) == []


def stop(subject: DirectorySinkTask, end: int) -> None:
    subject.context.stopping = True  # type: ignore[misc]
    subject.pre_commit({PLACE: end})


def wrapped(name: str, word: str) -> Any:
    return {"plain": word, "in a list": [word], "in a struct": {"x": word}}[name]


@pytest.mark.parametrize("name", TYPES)
def test_batches_with_other_words_are_in_one_file(tmp_path: Path, name: str) -> None:
    subject, size = task(tmp_path, format="arrow"), ROW_GROUP_ROWS
    values = [wrapped(name, word) for word in "abc"]
    for at, value in enumerate(values):
        subject.put_batch(batch(at * size, [value, None] * (size // 2), TYPES[name]))
    stop(subject, 3 * size)
    (path,) = tmp_path.glob("*.arrow")
    table = pa.ipc.open_file(path).read_all()
    assert table.schema.field("word").type == TYPES[name]
    assert table["word"].to_pylist() == [
        one for value in values for one in [value, None] * (size // 2)
    ]


def test_words_that_one_file_cannot_have_are_in_the_next(tmp_path: Path) -> None:
    subject = task(tmp_path, format="arrow")
    values = [f"{number}" for number in range(300)]
    for start in (0, 100, 200):
        subject.put_batch(batch(start, values[start : start + 100], WORDS))
    stop(subject, 300)
    tables = [pa.ipc.open_file(path).read_all() for path in sorted(tmp_path.glob("*.arrow"))]
    assert len(tables) == 3
    assert [one for table in tables for one in table["word"].to_pylist()] == values
    assert {table.schema.field("word").type for table in tables} == {WORDS}


def test_records_with_more_words_than_a_file_can_have_are_refused_by_name(tmp_path: Path) -> None:
    subject = task(tmp_path, format="arrow")
    schema = batch(0, ["a"], WORDS).value_schema

    def put(start: int) -> None:
        words = [(n, {"word": f"{n}"}) for n in range(start, start + 100)]
        subject.put([SinkRecord("t", 0, n, None, row, (), 0, None, schema) for n, row in words])

    put(0)
    with pytest.raises(DataError, match=r"column word .* more words than one file can have"):
        put(100)


@pytest.mark.parametrize("name", ["plain", "in a list", "in a struct"])
@pytest.mark.parametrize("by_batch", [True, False])
def test_a_time_beyond_parquet_costs_its_record_alone(
    tmp_path: Path, name: str, by_batch: bool
) -> None:
    """Parquet keeps seconds as milliseconds."""
    kind = pa.timestamp("s")
    types = {"plain": kind, "in a list": pa.list_(kind), "in a struct": pa.struct([("x", kind)])}
    most = (2**63 - 1) // 1000
    times: list[Any] = [0, most + 1, -most - 1, most, -most, None]
    given = typed(0, [wrapped(name, one) for one in times], types[name])
    subject = task(tmp_path, reports=True)
    if by_batch:
        subject.put_batch(given)
    else:
        subject.put(rows.sink_records(given))
    stop(subject, len(times))
    (path,) = tmp_path.glob("*.parquet")
    kept = pq.read_table(path)["word"].combine_chunks().cast(types[name])
    assert kept.equals(given.values.column(0).take(pa.array([0, 3, 4, 5])))
    reported = subject.context.reported  # type: ignore[attr-defined]
    assert [record.offset for record, _ in reported] == [1, 2]
    assert f"column word of type {types[name]} has a time of {most + 1} s" in str(reported[0][1])


@pytest.mark.parametrize(
    "kind, seen",
    [(pa.decimal128(5, -3), "decimal128(5, -3)"), (pa.binary(0), "fixed_size_binary[0]")],
)
def test_a_column_that_parquet_has_not_is_refused_by_name(
    tmp_path: Path, kind: Any, seen: str
) -> None:
    subject, given = task(tmp_path, reports=True), typed(0, [None], kind)
    with pytest.raises(DataError, match=f"column word is of type {re.escape(seen)}, which Parquet"):
        subject.put_batch(given)
    subject.put(rows.sink_records(given))
    assert len(subject.context.reported) == 1  # type: ignore[attr-defined]
    other = typed(1, ["a"], pa.string())
    subject.put_batch(other)
    stop(subject, 2)
    (path,) = tmp_path.glob("*.parquet")
    assert pq.read_table(path).to_pylist() == other.values.to_pylist()
