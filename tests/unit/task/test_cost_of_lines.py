"""What a line of JSON costs on its way through the embedded log to a Parquet file, beside a loop of
Python over the lines."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.task.body_bench import BodyBench
from support.task.transforms import Keeps

from headgate.connector.api import Transform
from headgate.task.messages import TaskKind
from headgate_connectors.directory import DirectoryTask
from headgate_connectors.directory_sink import DirectorySinkTask

ROWS = 50_000
TYPES = "id: int64, price: float64, name: string, town: string, paid: boolean, city: string"
TYPED = {"value.converter": "TypedConverter", "topic": "t", "topics": "t", "name": "c"}


def cpu_s(work: Callable[[], None]) -> float:
    """Seconds of CPU. Other processes lengthen those of a clock, and these only a little."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def loop(lines: Path, out: Path) -> None:
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), out)


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


def test_lines_through_the_log_cost_less_than_a_loop_over_them(tmp_path: Path) -> None:
    """And record by record, which a transform of somebody else's needs, they cost several times
    more: the measure tells the two ways apart."""
    lines = tmp_path / "in" / "a.jsonl"
    lines.parent.mkdir()
    names = ["name", "town", "city"]
    with lines.open("w") as out:
        for n in range(ROWS):
            texts = {name: f"{name} {n * 7919 % 1000}" for name in names}
            out.write(json.dumps({"id": n, "price": n / 4, **texts, "paid": n % 3 == 0}) + "\n")
    by_loop = cpu_s(lambda: loop(lines, tmp_path / "loop.parquet"))
    by_columns = cpu_s(lambda: through(tmp_path / "columns", lines))
    by_records = cpu_s(lambda: through(tmp_path / "records", lines, [Keeps()]))
    print(f"loop {by_loop:.2f} s, columns {by_columns:.2f} s, records {by_records:.2f} s of CPU")
    (file,) = (tmp_path / "columns" / "out").glob("*.parquet")
    expected = pq.read_table(tmp_path / "loop.parquet")
    assert pq.read_table(file).select(expected.column_names).equals(expected)
    assert by_columns < by_loop
    assert by_records > 2 * by_columns
