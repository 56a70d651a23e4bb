"""From files to the embedded log and on to Parquet files, without Spark: rows per second.

The same rows are moved in these ways:
- pyarrow alone: one process reads a part and writes it.
- Plain PySpark: a running session reads and writes Parquet.
- dlt: in an environment of its own, see `bench.dlt_files`.
- `headgate up` with DirectorySource and DirectorySink: as batches of Arrow rows, and row by row.
  A header converter is set for the second, since with one no batches are made.

``running`` is the time from the moment files appear in the directory of a running pipeline until
the sink has committed the last row. ``whole`` is a run with ``--until-idle`` from its start to its
end. CPU is that of all processes involved.
"""

import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from bench.medians import medians
from bench.processes import cpu_seconds
from bench.up_job import TIMEOUT_S, UpJob, headgate

ROOT = Path(__file__).parents[1]
ROWS = int(os.environ.get("HEADGATE_BENCH_ROWS", "2000000"))
FILES = 4
RECORD_ROWS = ROWS // 10
"""Number of rows for the way row by row, which takes ten times as long or more."""
REPEATS = 3
PIPELINE = """
[cluster]
workers = 1
data = "state"
runner = "process"

[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"poll.interval.ms" = 50
{more}

[connectors.write]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
"rotate.records" = {rotate}
"rotate.interval.ms" = 500
"""
BY_RECORD = '"header.converter" = "StringConverter"'
TYPES = "id: int64, price: float64, pieces: int32, at: timestamp"


class Kind(NamedTuple):
    """A format of the input files."""

    name: str
    write: Callable[[pa.Table, Path], None]
    read: Callable[[Path], Iterator[pa.Table]]
    settings: str = ""


def _write_csv(table: pa.Table, path: Path) -> None:
    at = pc.strftime(table["at"], format="%Y-%m-%dT%H:%M:%SZ")
    table = table.set_column(table.schema.get_field_index("at"), "at", at)
    pa_csv.write_csv(table, path, pa_csv.WriteOptions(quoting_style="needed"))


def _read_csv(path: Path) -> Iterator[pa.Table]:
    types = {"id": pa.int64(), "pieces": pa.int32(), "at": pa.timestamp("ms", "UTC")}
    with pa_csv.open_csv(
        path,
        pa_csv.ReadOptions(use_threads=False, block_size=4 << 20),
        convert_options=pa_csv.ConvertOptions(column_types=types),
    ) as batches:
        yield from (pa.Table.from_batches([batch]) for batch in batches)


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=131_072)


def _read_parquet(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


PARQUET = Kind("parquet", _write_parquet, _read_parquet)


def _write_jsonl(table: pa.Table, path: Path) -> None:
    at = pc.strftime(table["at"], format="%Y-%m-%dT%H:%M:%SZ")
    table = table.set_column(table.schema.get_field_index("at"), "at", at)
    with path.open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())


def _read_jsonl(path: Path) -> Iterator[pa.Table]:
    columns = [("id", pa.int64()), ("price", pa.float64()), ("pieces", pa.int32())]
    columns += [("at", pa.timestamp("ms", "UTC")), ("customer", pa.string())]
    with pa_json.open_json(
        path,
        pa_json.ReadOptions(use_threads=False, block_size=4 << 20),
        pa_json.ParseOptions(explicit_schema=pa.schema([*columns, ("text", pa.string())])),
    ) as batches:
        yield from (pa.Table.from_batches([batch]) for batch in batches)


ALL_TYPES = f"{TYPES}, customer: string, text: string"
TEXTS = (
    Kind("csv", _write_csv, _read_csv, f'"csv.types" = "{TYPES}"'),
    Kind("jsonl", _write_jsonl, _read_jsonl, f'"json.types" = "{ALL_TYPES}"'),
)


class Cost(NamedTuple):
    rows: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


def run() -> Iterator[str]:
    """Yield report lines: rate and CPU of each way, by input format."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as made:
        folder = Path(made)
        for kind in (PARQUET, *TEXTS):
            yield from _report(folder / kind.name, kind)


def _report(folder: Path, kind: Kind) -> Iterator[str]:
    folder.mkdir()
    size = write_files(folder / "files", ROWS, kind)
    write_files(folder / "few", RECORD_ROWS, kind)
    yield (
        f"{ROWS:,} rows ({RECORD_ROWS:,} row by row) of 6 columns in {FILES} {kind.name} files, "
        f"{size / ROWS:.0f} bytes a row; medians of {REPEATS}, in turns"
    )
    costs = _measured(folder, kind)
    straight = medians(costs["straight pyarrow"])
    yield f"{'':24}{'rows/s':>12}{'us CPU/row':>12}{'of straight':>13}{'of its CPU':>12}"
    for name, found in costs.items():
        yield line_of(name, medians(found), straight)


def _measured(folder: Path, kind: Kind) -> dict[str, list[Cost]]:
    names = ["straight pyarrow", "batches, running", "records, running"]
    if kind is PARQUET:
        names += ["plain PySpark", "dlt", "batches, whole"]
    costs: dict[str, list[Cost]] = {name: [] for name in names}
    dlt_python = _dlt_python(folder) if kind is PARQUET else Path()
    with (
        _job(folder / "batches", kind.settings, ROWS // 4) as batches,
        _job(folder / "records", f"{kind.settings}\n{BY_RECORD}", RECORD_ROWS // 4) as records,
    ):
        if kind is PARQUET:
            _spark(folder)  # to warm up
        for turn in range(REPEATS):
            costs["straight pyarrow"].append(_straight(folder, kind))
            costs["batches, running"].append(moved(batches, folder / "files", ROWS, turn))
            costs["records, running"].append(moved(records, folder / "few", RECORD_ROWS, turn))
            if kind is PARQUET:
                costs["plain PySpark"].append(_spark(folder))
                costs["dlt"].append(_dlt(dlt_python, folder))
                costs["batches, whole"].append(_whole(folder))
    if kind is PARQUET:
        _session().stop()
    return costs


def write_files(folder: Path, rows: int, kind: Kind, files: int = FILES) -> int:
    """Write the input files of a format. Returns the number of bytes."""
    folder.mkdir()
    random = np.random.default_rng(7)
    for number in range(files):
        count = rows // files
        at = random.integers(1_600_000_000_000, 1_700_000_000_000, count)
        table = pa.table(
            {
                "id": np.arange(number * count, (number + 1) * count),
                "price": random.random(count),
                "pieces": random.integers(0, 100, count).astype("int32"),
                "at": pa.array(at).cast(pa.timestamp("ms", "UTC")),
                "customer": [f"customer-{n}" for n in random.integers(0, 100_000, count)],
                "text": [f"order {n}, to the door" for n in random.integers(0, 10**9, count)],
            }
        )
        kind.write(table, folder / f"{number}.{kind.name}")
    return sum(path.stat().st_size for path in folder.iterdir())


def _straight(folder: Path, kind: Kind) -> Cost:
    out = folder / "straight"
    out.mkdir()
    began, cpu = time.perf_counter(), time.process_time()
    for path in sorted((folder / "files").iterdir()):
        with (out / f"{path.stem}.parquet").open("wb") as target:
            parts = kind.read(path)
            first = next(parts)
            with pq.ParquetWriter(target, first.schema) as writer:
                for part in itertools.chain([first], parts):
                    writer.write_table(part)
            target.flush()
            os.fsync(target.fileno())
    cost = Cost(ROWS, time.perf_counter() - began, time.process_time() - cpu)
    _check(out, ROWS)
    shutil.rmtree(out)
    return cost


def _spark(folder: Path) -> Cost:
    session, out = _session(), folder / "spark"
    began, cpu = time.perf_counter(), cpu_seconds(os.getpid())
    session.read.parquet(str(folder / "files")).write.parquet(str(out))
    cost = Cost(ROWS, time.perf_counter() - began, cpu_seconds(os.getpid()) - cpu)
    _check(out, ROWS)
    shutil.rmtree(out)
    return cost


def _dlt_python(folder: Path) -> Path:
    """Return the path of an interpreter with dlt and the packages that requirements/bench.txt
    pins."""
    found = folder / "dlt" / "bin" / "python"
    uv, pinned = Path(sys.executable).parent / "uv", ROOT / "requirements" / "bench.txt"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "dlt"], check=True)
    install = [uv, "pip", "install", "--quiet", "--require-hashes", "--python", found]
    subprocess.run([*install, "-r", pinned], check=True)
    return found


def _dlt(python: Path, folder: Path) -> Cost:
    out, state = folder / "by-dlt", folder / "dlt-state"
    job = [python, ROOT / "bench" / "dlt_files.py", folder / "files", out, state]
    done = subprocess.run(
        job,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "RUNTIME__DLTHUB_TELEMETRY": "false"},
    )
    cost = Cost(ROWS, *map(float, done.stdout.split()[-2:]))
    _check(out / "out" / "rows", ROWS)
    shutil.rmtree(out)
    shutil.rmtree(state)
    return cost


@functools.cache
def _session() -> Any:
    from pyspark.sql import SparkSession

    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    return SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()


def _whole(folder: Path) -> Cost:
    home = folder / "whole"
    home.mkdir()
    shutil.copytree(folder / "files", home / "in")
    (home / "pipeline.toml").write_text(PIPELINE.format(more="", rotate=ROWS // 4))
    command = [headgate(), "up", "pipeline.toml", "--until-idle"]
    began = time.perf_counter()
    with (home / "up.log").open("wb") as log:
        done = subprocess.run(command, cwd=home, stdout=log, stderr=log, timeout=TIMEOUT_S)
    cost = Cost(ROWS, time.perf_counter() - began, float("nan"))
    if done.returncode:
        raise RuntimeError((home / "up.log").read_text("utf-8", "replace"))
    _check(home / "out", ROWS)
    shutil.rmtree(home)
    return cost


def _job(folder: Path, more: str, rotate: int) -> UpJob:
    return UpJob(folder, PIPELINE.format(more=more, rotate=rotate), "write")


def moved(job: UpJob, files: Path, rows: int, turn: int) -> Cost:
    """Measure `job` on copies of `files` that appear in its directory. Its sink writes to
    ``out``."""
    cost = through(job, files, rows, turn)
    _check(job.folder / "out", (turn + 1) * rows)
    return cost


def through(job: UpJob, files: Path, rows: int, turn: int) -> Cost:
    """Measure `job` on copies of `files` that appear in its directory. Its sink may write
    anywhere."""
    copied = job.folder / "_copied"
    shutil.copytree(files, copied, dirs_exist_ok=True)
    return Cost(rows, *job.move(copied.iterdir(), rows, f"{turn}-"))


def rows_in(folder: Path) -> int:
    """Return the number of rows in the Parquet files directly in `folder`."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def _check(out: Path, rows: int) -> None:
    found = rows_in(out)
    if found != rows:
        raise RuntimeError(f"{out} has {found:,} rows, expected {rows:,}")


def line_of(name: str, cost: Cost, straight: Cost) -> str:
    cpu, its = (1e6 * one.cpu_seconds / one.rows for one in (cost, straight))
    line = f"{name:24}{cost.rate:>12,.0f}"
    if cpu != cpu:  # NaN: it was not measured
        return f"{line}{'':>12}{cost.rate / straight.rate:>13.2f}"
    return f"{line}{cpu:>12.2f}{cost.rate / straight.rate:>13.2f}{cpu / its:>10.1f} x"
