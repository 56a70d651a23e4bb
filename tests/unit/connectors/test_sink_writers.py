"""Batches of Arrow rows in the files of a DirectorySink."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.connector import DataError
from headgate.connector.api import SinkRecord
from headgate.connector.batches import SinkBatch
from headgate.testing import FakeSinkContext
from headgate_arrow import arrow_types, rows
from headgate_connectors.directory_sink import DirectorySinkTask
from headgate_connectors.sink_writers import ROW_GROUP_ROWS

PLACE = ("t", 0)
WORDS = pa.dictionary(pa.int8(), pa.string())
TYPES = {
    "plain": WORDS,
    "in a list": pa.list_(WORDS),
    "in a struct": pa.struct([("x", WORDS)]),
}


def task(folder: Path, **settings: Any) -> DirectorySinkTask:
    made = DirectorySinkTask()
    made.context = FakeSinkContext()
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    made.start({"name": "s", "path": str(folder), "rotate.interval.ms": "600000", **config})
    made.open([PLACE])
    return made


def batch(first: int, values: list[Any], kind: Any) -> SinkBatch:
    plain = {"plain": pa.string(), "in a list": pa.list_(pa.string())}
    name = next(name for name, one in TYPES.items() if one == kind)
    made = pa.array(values, plain.get(name, pa.struct([("x", pa.string())]))).cast(kind)
    table = pa.table({"word": made})
    return SinkBatch(
        *("t", 0, first, rows.record_batch(table)), arrow_types.struct_schema(table.schema)
    )


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
