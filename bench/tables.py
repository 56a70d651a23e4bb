"""Delta and Iceberg tables without Spark: from files to a table, and from a table to files.

Ours is ``headgate up`` through the embedded log, with DirectorySource and a table's sink, and with
a table's source and DirectorySink. Beside it the same rows are moved directly, in one process. To a
table, pyarrow reads a part and deltalake or pyiceberg appends it. From a table, they read it and
pyarrow writes Parquet.

Ours is running, and has moved the rows once before. Time is from the moment files appear in its
directory, or a version of its table exists, until the sink has committed the last row. CPU is that
of all processes involved.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from bench.files import FILES, PARQUET, Cost, line_of, rows_in, through, write_files
from bench.medians import medians
from bench.up_job import UpJob

ROWS = int(os.environ.get("HEADGATE_BENCH_ROWS", "1000000"))
REPEATS = 3
CLUSTER = """
[cluster]
workers = 1
data = "state"
runner = "process"
"""
TO_TABLE = """
[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"poll.interval.ms" = 50

[connectors.write]
"connector.class" = "{name}Sink"
topics = "rows"
{table}
"rotate.records" = {rotate}
"rotate.interval.ms" = 500
"""
FROM_TABLE = """
[connectors.read]
"connector.class" = "{name}Source"
{table}
topic = "rows"
"poll.interval.ms" = 50

[connectors.write]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
"rotate.records" = {rotate}
"rotate.interval.ms" = 500
"""


class Format(NamedTuple):
    """A table format. Each table has a folder of its own."""

    name: str
    settings: Callable[[Path], str]
    """Return the settings of a connector as lines of a pipeline file."""
    append: Callable[[Path, pa.Table], None]
    read: Callable[[Path], Iterable[Any]]
    """Yield the rows of a table in batches, read by the format's library alone."""
    count: Callable[[Path], int]


def _delta_batches(folder: Path) -> Iterable[Any]:
    return DeltaTable(folder).to_pyarrow_dataset().to_batches()


def _catalog(folder: Path) -> SqlCatalog:
    return SqlCatalog("default", **_properties(folder))


def _properties(folder: Path) -> dict[str, str]:
    return {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": (folder / "w").as_uri()}


def _iceberg_settings(folder: Path) -> str:
    properties = {"type": "sql", **_properties(folder)}
    lines = [f'"catalog.{key}" = "{text}"' for key, text in properties.items()]
    return "\n".join(['table = "bench.rows"', *lines])


def _append_iceberg(folder: Path, rows: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    with closing(_catalog(folder)) as found:
        found.create_namespace_if_not_exists("bench")
        found.create_table_if_not_exists("bench.rows", schema=rows.schema).append(rows)


def _iceberg_batches(folder: Path) -> Iterable[Any]:
    with closing(_catalog(folder)) as found:
        yield from found.load_table("bench.rows").scan().to_arrow_batch_reader()


def _count_iceberg(folder: Path) -> int:
    with closing(_catalog(folder)) as found:
        return found.load_table("bench.rows").scan().count()


FORMATS = (
    Format(
        "Delta",
        lambda folder: f'path = "{folder}"',
        lambda folder, rows: write_deltalake(folder, rows, mode="append"),
        _delta_batches,
        lambda folder: int(DeltaTable(folder).to_pyarrow_dataset().count_rows()),
    ),
    Format("Iceberg", _iceberg_settings, _append_iceberg, _iceberg_batches, _count_iceberg),
)


def run() -> Iterator[str]:
    """Yield report lines: rate and CPU to and from each table format, beside its library."""
    yield (
        f"{ROWS:,} rows of 6 columns, to a table in {FILES} commits; medians of {REPEATS}, in turns"
    )
    yield f"{'':24}{'rows/s':>12}{'us CPU/row':>12}{'of straight':>13}{'of its CPU':>12}"
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as made:
        folder = Path(made)
        write_files(folder / "files", ROWS, PARQUET)
        for one in FORMATS:
            yield from _to_table(folder, one)
            yield from _from_table(folder, one)


def _lines(ours: str, found: list[Cost], straight_name: str, straight: list[Cost]) -> Iterator[str]:
    middle = medians(straight)
    yield line_of(straight_name, middle, middle)
    yield line_of(ours, medians(found), middle)


# -- files to a table --


def _to_table(folder: Path, one: Format) -> Iterator[str]:
    table, home = folder / f"{one.name}-ours", folder / f"{one.name}-sink"
    table.mkdir()
    text = TO_TABLE.format(name=one.name, table=one.settings(table), rotate=ROWS // FILES)
    straight, ours = list[Cost](), list[Cost]()
    with UpJob(home, CLUSTER + text, "write") as job:
        for turn in range(REPEATS + 1):
            alone = _straight_to(folder, one)
            taken = through(job, folder / "files", ROWS, turn)
            _check(one.count(table), (turn + 1) * ROWS)
            if turn:  # the first turn warms up
                straight.append(alone)
                ours.append(taken)
    shutil.rmtree(table)
    shutil.rmtree(home)
    yield from _lines(f"{one.name}Sink", ours, f"files to {one.name}, straight", straight)


def _straight_to(folder: Path, one: Format) -> Cost:
    table = folder / f"{one.name}-straight"
    began, cpu = time.perf_counter(), time.process_time()
    for path in sorted((folder / "files").iterdir()):
        one.append(table, _in_microseconds(pq.read_table(path)))
    cost = Cost(ROWS, time.perf_counter() - began, time.process_time() - cpu)
    _check(one.count(table), ROWS)
    shutil.rmtree(table)
    return cost


def _in_microseconds(rows: pa.Table) -> pa.Table:
    """Return the rows with timestamps in microseconds, as tables store them."""
    at = rows.schema.get_field_index("at")
    return rows.set_column(at, "at", rows.column(at).cast(pa.timestamp("us", "UTC")))


# -- a table to files --


def _from_table(folder: Path, one: Format) -> Iterator[str]:
    table, alone = folder / f"{one.name}-read", folder / f"{one.name}-alone"
    home, rows = folder / f"{one.name}-source", folder / "files"
    for path in sorted(rows.iterdir()):
        one.append(alone, _in_microseconds(pq.read_table(path)))
    table.mkdir()
    text = FROM_TABLE.format(name=one.name, table=one.settings(table), rotate=ROWS // FILES)
    straight, ours = list[Cost](), list[Cost]()
    with UpJob(home, CLUSTER + text, "write") as job:
        whole = _in_microseconds(pq.read_table(rows))
        for turn in range(REPEATS + 1):
            read = _straight_from(folder / "out", one, alone)
            one.append(table, whole)
            taken = Cost(ROWS, *job.move((), ROWS))
            _check(rows_in(home / "out"), (turn + 1) * ROWS)
            if turn:
                straight.append(read)
                ours.append(taken)
    for used in (table, alone, home):
        shutil.rmtree(used)
    yield from _lines(f"{one.name}Source", ours, f"{one.name} to files, straight", straight)


def _straight_from(out: Path, one: Format, table: Path) -> Cost:
    out.mkdir()
    began, cpu = time.perf_counter(), time.process_time()
    with (out / "0.parquet").open("wb") as target:
        writer: Any = None
        for batch in one.read(table):
            writer = writer or pq.ParquetWriter(target, batch.schema)
            writer.write_batch(batch)
        writer.close()
        target.flush()
        os.fsync(target.fileno())
    cost = Cost(ROWS, time.perf_counter() - began, time.process_time() - cpu)
    _check(rows_in(out), ROWS)
    shutil.rmtree(out)
    return cost


def _check(found: int, rows: int) -> None:
    if found != rows:
        raise RuntimeError(f"{found:,} rows came out, expected {rows:,}")
