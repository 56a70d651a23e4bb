"""Files whose types change go through the embedded log to Parquet, while workers are killed."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PIPELINE = """
[cluster]
data = "state"
runner = "process"
"session.timeout.ms" = 4000
"heartbeat.interval.ms" = 500
"scheduled.rebalance.max.delay.ms" = 500

[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"tasks.max" = 2
"file.settle.ms" = 100
"errors.tolerance" = "all"
"errors.deadletterqueue.topic.name" = "bad"
{read}

[connectors.write]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
"rotate.interval.ms" = 300
"schema.evolution" = "widen"
{write}
"""
ROWS = 2_000


def prepare(folder: Path, read: str, write: str = "") -> Path:
    (folder / "pipeline.toml").write_text(PIPELINE.format(read=read, write=write))
    (folder / "in").mkdir()
    return folder / "in"


def parquet(folder: Path, name: str, kind: Any, first: int, bad: int | None = None) -> None:
    numbers = [*range(first, first + ROWS)]
    if bad is not None:
        numbers[bad] = 2**53 + 1
    pq.write_table(pa.table({"n": pa.array(numbers, kind)}), folder / f".{name}")
    (folder / f".{name}").rename(folder / f"{name}.parquet")


def csv_file(folder: Path, name: str, first: int) -> None:
    rows = "".join(f"{n},{n:05}\n" for n in range(first, first + ROWS))
    (folder / f".{name}").write_text("n,code\n" + rows)
    (folder / f".{name}").rename(folder / f"{name}.csv")


def kill_workers(up: Up) -> None:
    for worker in up.workers():
        os.kill(worker.pid, signal.SIGKILL)


def to_its_end(folder: Path, ups: list[Up]) -> Any:
    """All rows that are written, and one schema of all files."""
    ups[-1].end()
    last = Up(folder, ("--until-idle",)).start()
    ups.append(last)
    assert last.process is not None
    assert last.process.wait(120) == 0, last.tail()
    tables = [pq.read_table(path) for path in sorted((folder / "out").glob("*.parquet"))]
    assert len({table.schema.remove_metadata() for table in tables}) == 1
    return pa.concat_tables(tables)


def run_with_kills(
    folder: Path, ups: list[Up], put: Callable[[int], None], counts: list[int]
) -> None:
    """Files come one after the other, and the workers are killed after each."""
    up = Up(folder).start()
    ups.append(up)
    for step, count in enumerate(counts):
        put(step)
        up.wait_for(f"{count} rows", lambda count=count: up.records("rows") >= count, 240)  # type: ignore[misc]
        kill_workers(up)


def test_wider_files_come_while_the_task_runs_and_is_killed(tmp_path: Path, ups: list[Up]) -> None:
    folder = prepare(tmp_path, '"columns.types" = "n: float64"\n"schema.change" = "widen"')
    kinds = [(pa.int32(), None), (pa.int64(), 7), (pa.float32(), None)]

    def put(step: int) -> None:
        kind, bad = kinds[step]
        parquet(folder, f"f{step}", kind, step * ROWS, bad)

    run_with_kills(tmp_path, ups, put, [ROWS, 2 * ROWS - 1, 3 * ROWS - 1])
    table = to_its_end(tmp_path, ups)
    assert table.schema.field("n").type == pa.float64()
    expected = [float(n) for n in range(3 * ROWS) if n != ROWS + 7]
    assert sorted(table["n"].to_pylist()) == expected
    assert ups[-1].records("bad") == 1


def test_a_folder_takes_narrower_records_that_come_later(tmp_path: Path, ups: list[Up]) -> None:
    folder = prepare(tmp_path, "", '"columns.types" = "n: int64"')
    kinds = [pa.int8(), pa.int64(), pa.int16()]

    def put(step: int) -> None:
        numbers = pa.array([n % 100 for n in range(ROWS)], kinds[step])
        pq.write_table(pa.table({"n": numbers}), folder / f".{step}")
        (folder / f".{step}").rename(folder / f"{step}.parquet")

    run_with_kills(tmp_path, ups, put, [ROWS, 2 * ROWS, 3 * ROWS])
    table = to_its_end(tmp_path, ups)
    assert table.schema.field("n").type == pa.int64()
    assert sorted(table["n"].to_pylist()) == sorted([n % 100 for n in range(ROWS)] * 3)


def test_inferred_types_stay_through_kills(tmp_path: Path, ups: list[Up]) -> None:
    folder = prepare(tmp_path, '"csv.types" = "infer"')

    def put(step: int) -> None:
        csv_file(folder, f"f{9 - step}", step * ROWS)  # a later file comes first by name

    run_with_kills(tmp_path, ups, put, [ROWS, 2 * ROWS, 3 * ROWS])
    table = to_its_end(tmp_path, ups)
    assert table.schema.types == [pa.int64(), pa.string()]
    assert sorted(zip(*table.to_pydict().values(), strict=True)) == [
        (n, f"{n:05}") for n in range(3 * ROWS)
    ]
