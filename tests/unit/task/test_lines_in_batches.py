"""Lines of JSON go through the log to a Parquet file, in batches or one by one."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.task.body_bench import BodyBench
from support.task.transforms import Keeps

from headgate.connector.api import SinkRecord, Transform
from headgate.connector.batches import SinkBatch
from headgate.task.messages import TaskKind
from headgate_connectors.directory import DirectoryTask
from headgate_connectors.directory_sink import DirectorySinkTask

ROWS = 5_000
TYPES = "id: int64, price: float64, name: string, town: string, paid: boolean, city: string"
TYPED = {"value.converter": "TypedConverter", "topic": "t", "topics": "t", "name": "c"}


def through(folder: Path, lines: Path, chain: Sequence[Transform] = ()) -> None:
    """A source task and a sink task, one after the other."""
    config = {**TYPED, "path": str(lines.parent), "json.types": TYPES}
    source = BodyBench(folder, DirectoryTask, config, chain=chain)
    source.start().until(lambda: source.progress.records == ROWS, 120)
    source.stop()
    config = {**TYPED, "path": str(folder / "out"), "rotate.records": str(ROWS)}
    sink = BodyBench(folder, DirectorySinkTask, config, kind=TaskKind.SINK, chain=chain)
    sink.start().until(lambda: list((folder / "out").glob("*.parquet")), 120)
    sink.stop()


class Rows:
    """Counts of the rows that a sink gets in batches, and of those that it gets one by one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.in_batches = self.alone = 0
        put, put_batch = DirectorySinkTask.put, DirectorySinkTask.put_batch

        def counted(task: DirectorySinkTask, records: Sequence[SinkRecord]) -> None:
            self.alone += len(records)
            put(task, records)

        def counted_batch(task: DirectorySinkTask, batch: SinkBatch) -> None:
            self.in_batches += batch.count
            put_batch(task, batch)

        monkeypatch.setattr(DirectorySinkTask, "put", counted)
        monkeypatch.setattr(DirectorySinkTask, "put_batch", counted_batch)


def test_lines_go_as_batches_unless_a_transform_needs_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that becomes a record costs several times as much as one in a batch."""
    lines = tmp_path / "in" / "a.jsonl"
    lines.parent.mkdir()
    names = ["name", "town", "city"]
    with lines.open("w") as out:
        for n in range(ROWS):
            texts = {name: f"{name} {n * 7919 % 1000}" for name in names}
            out.write(json.dumps({"id": n, "price": n / 4, **texts, "paid": n % 3 == 0}) + "\n")
    expected = pa.Table.from_pylist([json.loads(line) for line in lines.open()])
    for name, chain in (("columns", []), ("records", [Keeps()])):
        with monkeypatch.context() as patch:
            rows = Rows(patch)
            through(tmp_path / name, lines, chain)
        found = (rows.in_batches, rows.alone)
        assert found == ((0, ROWS) if chain else (ROWS, 0))
        (file,) = (tmp_path / name / "out").glob("*.parquet")
        assert pq.read_table(file).select(expected.column_names).equals(expected)
