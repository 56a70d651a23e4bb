"""A `headgate up` on Spark that runs already: latency from a line to a committed row, the rate by
the number of tasks, and how soon it goes on after a kill.

The source is DirectorySource on the runner `spark`. The rate is measured in turns with one job of
plain PySpark, which reads the same files and writes Parquet, in a session that runs already and is
told the columns. So is that of DirectorySource and DirectorySink on the runner `process`.

Latency is that of single lines: from the moment a line is whole in its file until the sink's group
has committed its offset, which it does after the table has the row. Recovery is the time from a
SIGKILL until new records are in the log and until the sink commits again, at a steady 200 lines a
second.
"""

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.processes import below, cpu_seconds
from bench.up_job import UpJob
from headgate.ids import State
from headgate.topics.status import StatusView, decode_status, fold_statuses
from headgate_embedded import open_reader
from headgate_embedded.transport import EmbeddedReader
from headgate_runtime.up.registry import registered

SAMPLES = 300
SAMPLE_EVERY_S = 0.1
LOOK_S = 0.005
RECORDS = 400_000
REPEATS = 3
WARM_RECORDS = 20_000
TASKS = (1, 2, 4)
KILLS = 3
STEADY_EVERY_S = 0.005
PATIENCE_S = 180.0
TOPIC, GROUP = "events", "connect-lake"
LINE = b'{"user": 1234567, "action": "click", "page": "/a/b/c", "at": 1795220025955, "n": %d}\n'
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
"json.types" = "user: int64, action: string, page: string, at: int64, n: int64"
[connectors.lake]
"connector.class" = "DirectorySink"
format = "parquet"
topics = "events"
path = "out"
"rotate.records" = 100000
"rotate.interval.ms" = 500
"""


def run() -> Iterator[str]:
    """Report lines: latencies per sink, rates per number of tasks, recoveries per kind of kill."""
    yield f"latency of {SAMPLES} single lines, {SAMPLE_EVERY_S} s apart: p50 and p99, seconds"
    for name, sink in SINKS.items():
        yield from _latency(name, sink)
    yield f"{RECORDS:,} lines in 4 files at a time to Parquet, medians of {REPEATS}, in turns"
    with _PlainSpark() as plain:
        for tasks in TASKS:
            yield from _scaling(tasks, plain)
        for tasks in TASKS[:2]:
            yield from _without_spark(tasks, plain)
    yield f"after a SIGKILL, {KILLS} of each: seconds to new records, to the sink's next commit"
    yield from _recovery()


# -- latency --


def _latency(name: str, sink: str) -> Iterator[str]:
    with _job(tasks=1, sink=sink) as job:
        _warm(job)
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
    """When the sink was first seen to have committed each sample."""
    done = 0
    with _Log(job.folder) as log:
        while done < len(seen):
            reached = log.committed() - WARM_RECORDS
            now = time.perf_counter()
            while done < min(reached, len(seen)):
                seen[done] = now
                done += 1
            time.sleep(LOOK_S)


# -- tasks --


def _scaling(tasks: int, plain: "_PlainSpark") -> Iterator[str]:
    with _job(tasks, SINKS["SparkFileSink"]) as job:
        yield from _beside(f"{tasks} source task(s)", job, plain)


def _without_spark(tasks: int, plain: "_PlainSpark") -> Iterator[str]:
    with _Folder(WITHOUT_SPARK.format(tasks=tasks)) as job:
        yield from _beside(f"{tasks}, without Spark", job, plain)


def _beside(name: str, job: UpJob, plain: "_PlainSpark") -> Iterator[str]:
    """The rate of `job`, and that of plain PySpark in turns with it."""
    ours, theirs = [], []
    _warm(job)
    plain.convert(_files(job, "plain", WARM_RECORDS), job.folder / "plain")
    for number in range(REPEATS):
        files = _files(job, f"day{number}", RECORDS)
        theirs.append(plain.convert(files, job.folder / f"plain{number}"))
        ours.append(job.move(files, RECORDS))
    yield f"{name:24}{_rate(ours)}"
    yield f"{'  plain PySpark':24}{_rate(theirs)}"


def _rate(costs: list[tuple[float, float]]) -> str:
    rate = RECORDS / statistics.median(seconds for seconds, _ in costs)
    cpu = 1e6 * statistics.median(spent for _, spent in costs) / RECORDS
    return f"{rate:>10,.0f} records/s, {cpu:.2f} us CPU a record"


class _PlainSpark:
    """A session of PySpark in this process, with a JVM of its own."""

    def __enter__(self) -> Self:
        from pyspark.sql import SparkSession

        settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR"}
        builder = SparkSession.builder.master("local[2]").config(map=settings)
        self._session: Any = builder.getOrCreate()
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()

    def convert(self, files: list[Path], out: Path) -> tuple[float, float]:
        """Seconds, and seconds of the JVM's CPU, from the lines of `files` to Parquet in `out`."""
        jvm = self._session.sparkContext._gateway.proc.pid
        began, cpu = time.perf_counter(), cpu_seconds(jvm)
        frame = self._session.read.schema(COLUMNS).json([str(path) for path in files])
        frame.write.parquet(str(out))
        return time.perf_counter() - began, cpu_seconds(jvm) - cpu


# -- recovery --


def _recovery() -> Iterator[str]:
    blows: dict[str, Callable[[UpJob], list[int]]] = {
        "all Python workers": _python_workers,
        "Spark's JVM": _spark,
        "the worker with the source's task": _owner,
    }
    with _job(tasks=1, sink=SINKS["SparkFileSink, batch.interval.ms = 0"]) as job:
        _warm(job)
        with _Steady(job.folder / "in" / "live.jsonl"), _Log(job.folder) as log:
            for name, victims in blows.items():
                took = [_recovered(job, log, victims) for _ in range(KILLS)]
                source, sink = zip(*took, strict=True)
                yield f"{name:40}{_spread(source)}  {_spread(sink)}"


def _recovered(
    job: UpJob, log: "_Log", victims: Callable[[UpJob], list[int]]
) -> tuple[float, float]:
    log.grows()
    log.commits()
    time.sleep(2.0)
    pids = victims(job)
    if not pids:
        raise RuntimeError("nothing to kill was found")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    began = time.perf_counter()
    time.sleep(0.2)  # what was sent before the kill has arrived
    source = log.grows() - began
    return source, log.commits() - began


def _python_workers(job: UpJob) -> list[int]:
    """Python workers that Spark's daemon has forked, not the daemon.

    The daemon's module is a setting of Spark as well, so the JVM and its guard name it, too.
    """
    daemons = [pid for pid in below(job.pid) if _is_daemon(pid)]
    return [pid for pid in daemons if _parent(pid) in daemons]


def _spark(job: UpJob) -> list[int]:
    return [
        pid
        for pid in below(job.pid)
        if "SparkConnectServer" in _command(pid) and "java" in _command(pid).split("\0")[0]
    ]


def _owner(job: UpJob) -> list[int]:
    with _Log(job.folder) as log:
        name = log.owner()
    return [one.pid for one in registered(job.folder / "state") if one.name == name and one.pid]


def _is_daemon(pid: int) -> bool:
    """Whether it is Spark's daemon of Python workers, or one that it has forked."""
    return _command(pid).split("\0")[1:3] == ["-m", "headgate_spark.daemon"]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _parent(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def _spread(seconds: tuple[float, ...]) -> str:
    return f"{statistics.median(seconds):>6.1f} ({min(seconds):.1f} to {max(seconds):.1f})"


# -- the job and its log --


def _job(tasks: int, sink: str) -> AbstractContextManager[UpJob]:
    return _Folder(PIPELINE.format(tasks=tasks, sink=sink))


class _Folder(AbstractContextManager[UpJob]):
    """A job in a folder that goes with it."""

    def __init__(self, pipeline: str) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="headgate-bench-")
        self._job = UpJob(Path(self._temporary.name), pipeline, "lake")

    def __enter__(self) -> UpJob:
        return self._job.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._job.__exit__(kind, error, trace)
        finally:
            self._temporary.cleanup()


def _warm(job: UpJob) -> None:
    job.move(_files(job, "warm", WARM_RECORDS), WARM_RECORDS)


def _files(job: UpJob, name: str, records: int) -> list[Path]:
    written = job.folder / "_written"
    written.mkdir(exist_ok=True)
    paths = [written / f"{name}-{number}.jsonl" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(LINE % n for n in range(number, records, 4)))
    return paths


class _Steady:
    """Appends a line to a file every `STEADY_EVERY_S`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        with self._path.open("ab", buffering=0) as out:
            while not self._over.wait(STEADY_EVERY_S):
                out.write(LINE % number)
                number += 1


class _Log:
    """The job's embedded log, read from outside."""

    def __init__(self, folder: Path) -> None:
        self._reader: EmbeddedReader = open_reader(folder / "state")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def records(self) -> int:
        return sum(self._reader.record_log.end_offsets([TOPIC]).values())

    def committed(self) -> int:
        return sum(self._reader.record_log.committed(GROUP).values())

    def grows(self) -> float:
        """The time at which it was seen to have more records than at the call."""
        return _more(self.records)

    def commits(self) -> float:
        """The time at which the sink was seen to have committed more than at the call."""
        return _more(self.committed)

    def owner(self) -> str | None:
        """Name of the worker that runs the source's task."""
        records, _ = self._reader.status_log.read(0)
        told = [decode_status(one.key or b"", one.value) for one in records]
        view = fold_statuses(StatusView(), told)
        for status in view.tasks.get("events", {}).values():
            if status.state is State.RUNNING:
                return status.worker_id
        return None


def _more(measure: Callable[[], int]) -> float:
    before, until = measure(), time.perf_counter() + PATIENCE_S
    while measure() <= before:
        if time.perf_counter() > until:
            raise RuntimeError(f"nothing new within {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)
    return time.perf_counter()
