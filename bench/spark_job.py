"""A running `headgate up` on Spark: latency from a line to a committed row, the rate by the number
of tasks, and recovery from kills.

The source is DirectorySource on the runner `spark`. The rate is measured in turns with one job of
plain PySpark, which reads the same files and writes Parquet in a running session. So is the rate of
DirectorySource and DirectorySink on the runner `process`. All are told the columns (ours by
`json.types`), except the source "as text", whose lines stay texts.

Latency is that of single lines, from the moment a line is complete in its file until the sink's
group has committed its offset. The sink commits after the table has the row. Recovery is the time
from a SIGKILL until new records are in the log, and until the sink commits again, at a steady 200
lines per second.
"""

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Self

from bench.live_job import (
    BLOWS,
    LINE,
    LOOK_S,
    PATIENCE_S,
    SINK,
    WARM_RECORDS,
    JobLog,
    Steady,
    recoveries,
    warm,
    write_lines,
)
from bench.processes import below, command, cpu_seconds, spark_drivers
from bench.up_job import UpJob, temporary_job
from headgate_runtime.up.registry import registered

SAMPLES = 300
SAMPLE_EVERY_S = 0.1
RECORDS = 2_000_000
TEXT_RECORDS = 400_000
REPEATS = 3
TASKS = (1, 2, 4)
TYPES = '"json.types" = "user: int64, action: string, page: string, at: int64, n: int64"'
COLUMNS = "user BIGINT, action STRING, page STRING, at BIGINT, n BIGINT"
SINKS = {
    "SparkFileSink": '"connector.class" = "SparkFileSink"\nformat = "parquet"',
    "SparkFileSink, batch.interval.ms = 0": '"connector.class" = "SparkFileSink"\n'
    'format = "parquet"\n"batch.interval.ms" = 0',
    "DeltaSink, rotate.interval.ms = 0": '"connector.class" = "DeltaSink"\n'
    '"rotate.interval.ms" = 0',
}
PIPELINE = """
[cluster]
workers = 2
runner = "spark"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
[spark]
master = "local[2]"
[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"tasks.max" = {tasks}
"poll.interval.ms" = 20
{types}
[connectors.lake]
topics = "events"
path = "out"
{sink}
"""
WITHOUT_SPARK = """
[cluster]
workers = 2
runner = "process"
[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"tasks.max" = {tasks}
"poll.interval.ms" = 20
{types}
[connectors.lake]
"connector.class" = "DirectorySink"
format = "parquet"
topics = "events"
path = "out"
"rotate.records" = 100000
"rotate.interval.ms" = 500
"""


def run() -> Iterator[str]:
    """Yield report lines: latencies by sink, rates by number of tasks, recoveries by kind of
    kill."""
    yield f"latency of {SAMPLES} single lines, {SAMPLE_EVERY_S} s apart: p50 and p99, seconds"
    for name, sink in SINKS.items():
        yield from _latency(name, sink)
    yield (
        f"{RECORDS:,} lines in 4 files at a time ({TEXT_RECORDS:,} as text) to Parquet, medians of "
        f"{REPEATS}, in turns"
    )
    with _PlainSpark() as plain:
        for tasks in TASKS:
            yield from _scaling(tasks, plain, TYPES, RECORDS)
        yield from _scaling(1, plain, "", TEXT_RECORDS)
        for tasks in TASKS[:2]:
            yield from _without_spark(tasks, plain)
    yield f"after a SIGKILL, {BLOWS} of each: seconds to new records, to the sink's next commit"
    yield from _recovery()


def _job(tasks: int, sink: str, types: str = "") -> AbstractContextManager[UpJob]:
    return temporary_job(PIPELINE.format(tasks=tasks, sink=sink, types=types), SINK)


# -- latency --


def _latency(name: str, sink: str) -> Iterator[str]:
    with _job(tasks=1, sink=sink) as job:
        warm(job)
        written: list[float] = []
        path, seen = job.folder / "in" / "live.jsonl", [0.0] * SAMPLES
        watch = threading.Thread(target=_note_commits, args=(job, seen), daemon=True)
        watch.start()
        with path.open("ab", buffering=0) as out:
            for number in range(SAMPLES):
                out.write(LINE % number)
                written.append(time.perf_counter())
                time.sleep(SAMPLE_EVERY_S)
        watch.join(PATIENCE_S)
        if watch.is_alive():
            raise RuntimeError(f"{name}: not all of {SAMPLES} lines were committed")
        took = sorted(end - begin for begin, end in zip(written, seen, strict=True))
    p99 = took[int(len(took) * 0.99)]
    yield f"{name:40}{statistics.median(took):>8.2f}{p99:>8.2f}"


def _note_commits(job: UpJob, seen: list[float]) -> None:
    """Note in `seen`, for each sample, the time at which its commit by the sink was first seen."""
    done = 0
    with JobLog(job) as log:
        while done < len(seen):
            reached = log.committed() - WARM_RECORDS
            now = time.perf_counter()
            while done < min(reached, len(seen)):
                seen[done] = now
                done += 1
            time.sleep(LOOK_S)


# -- tasks --


def _scaling(tasks: int, plain: "_PlainSpark", types: str, records: int) -> Iterator[str]:
    with _job(tasks, SINKS["SparkFileSink"], types) as job:
        name = f"{tasks} source task(s){'' if types else ', as text'}"
        yield from _beside(name, job, plain, records)


def _without_spark(tasks: int, plain: "_PlainSpark") -> Iterator[str]:
    with temporary_job(WITHOUT_SPARK.format(tasks=tasks, types=TYPES), SINK) as job:
        yield from _beside(f"{tasks}, without Spark", job, plain, RECORDS)


def _beside(name: str, job: UpJob, plain: "_PlainSpark", records: int) -> Iterator[str]:
    """Measure the rate of `job` in turns with that of plain PySpark. The first turn only warms
    up."""
    ours, theirs = [], []
    warm(job)
    for number in range(REPEATS + 1):
        files = write_lines(job, f"day{number}", records)
        theirs.append(plain.convert(files, job.folder / f"plain{number}"))
        ours.append(job.move(files, records))
    yield f"{name:28}{_rate(ours[1:], records)}"
    yield f"{'  plain PySpark':28}{_rate(theirs[1:], records)}"


def _rate(costs: list[tuple[float, float]], records: int) -> str:
    rate = records / statistics.median(seconds for seconds, _ in costs)
    cpu = 1e6 * statistics.median(spent for _, spent in costs) / records
    return f"{rate:>10,.0f} records/s, {cpu:.2f} us CPU a record"


class _PlainSpark:
    """A PySpark session in this process, with a JVM of its own."""

    def __enter__(self) -> Self:
        from pyspark.sql import SparkSession

        settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
        builder = SparkSession.builder.master("local[2]").config(map=settings)
        self._session: Any = builder.getOrCreate()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()

    def convert(self, files: list[Path], out: Path) -> tuple[float, float]:
        """Write the lines of `files` as Parquet to `out`. Returns seconds and CPU seconds of the
        JVM."""
        jvm = self._session.sparkContext._gateway.proc.pid
        began, cpu = time.perf_counter(), cpu_seconds(jvm)
        frame = self._session.read.schema(COLUMNS).json([str(path) for path in files])
        frame.write.parquet(str(out))
        return time.perf_counter() - began, cpu_seconds(jvm) - cpu


# -- recovery --


def _recovery() -> Iterator[str]:
    victims: dict[str, Callable[[UpJob], list[int]]] = {
        "all Python workers": _python_workers,
        "Spark's JVM": lambda job: spark_drivers(job.pid),
        "the worker with the source's task": _owner,
    }
    with _job(tasks=1, sink=SINKS["SparkFileSink, batch.interval.ms = 0"]) as job:
        warm(job)
        with Steady(job), JobLog(job) as log:
            for name, find in victims.items():
                yield recoveries(name, log, partial(_kill, find, job))


def _kill(find: Callable[[UpJob], list[int]], job: UpJob) -> None:
    pids = find(job)
    if not pids:
        raise RuntimeError("nothing to kill was found")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _python_workers(job: UpJob) -> list[int]:
    """Return the ids of Python workers that Spark's daemon has forked, without the daemon.

    The daemon's module is also a setting of Spark, so the command lines of the JVM and its guard
    name it, too.
    """
    daemons = [pid for pid in below(job.pid) if _is_daemon(pid)]
    return [pid for pid in daemons if _parent(pid) in daemons]


def _owner(job: UpJob) -> list[int]:
    with JobLog(job) as log:
        name = log.owner()
    return [one.pid for one in registered(job.folder / "state") if one.name == name and one.pid]


def _is_daemon(pid: int) -> bool:
    """Return whether a process is Spark's daemon of Python workers, or a worker that it has
    forked."""
    return command(pid).split("\0")[1:3] == ["-m", "headgate_spark.daemon"]


def _parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(text.rpartition(")")[2].split()[1])
