"""From files to the log and on to a table: records per second and CPU per record.

The first part is one task of DirectorySource, exactly-once, on each runner, beside the bare write
of the same records in the same batches. The difference is the cost of files, task, runner and
lifeline on top of the log. The second part is the main job, `headgate up` with DirectorySource and
SparkFileSink. It is timed from the moment whole files appear in its directory until the sink has
committed their last record.

CPU is that of all processes involved, including Spark's JVM and its Python workers.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import shared_spark
from bench.medians import medians
from bench.processes import cpu_seconds
from bench.tasks import Worker
from bench.up_job import UpJob
from headgate.ports import ProducerRecord
from headgate.task.messages import TaskReleased, TaskRunning
from headgate_embedded import open_transport, transport_settings
from headgate_runtime.tasks.select import NAMES
from headgate_runtime.worker import collector

RECORDS = 200_000
FILES = 4
BATCH = 2_000
REPEATS = 3
JOB_RECORDS = 1_000_000
JOB_REPEATS = 3
JOB_WARM_RECORDS = 20_000
LINE = b'{"user": 1234567, "action": "click", "page": "/a/b/c", "at": 1795220025955, "n": %d}'
SOURCE = "headgate_connectors.directory:DirectorySource"
PIPELINE = """
[cluster]
workers = 2
[spark]
master = "local[2]"
[connectors.events]
"connector.class" = "DirectorySource"
path = "in"
topic = "events"
"tasks.max" = 2
"poll.interval.ms" = 50
[connectors.lake]
"connector.class" = "SparkFileSink"
topics = "events"
format = "parquet"
path = "out"
"""


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float


def run() -> Iterator[str]:
    """Yield report lines: the source on each runner beside the bare write, then the main job."""
    collector.settle()  # as a worker does
    size = len(LINE % RECORDS)
    yield (
        f"one task, {RECORDS:,} lines of JSON ({size} bytes) in {FILES} files, transactions of "
        f"{BATCH}; medians of {REPEATS}"
    )
    yield f"{'':12}{'records/s':>12}{'us CPU/record':>15}{'of bare rate':>14}{'of bare CPU':>13}"
    costs: dict[str, list[Cost]] = {"bare write": [], **{name: [] for name in NAMES}}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        files = Path(folder) / "in"
        _write_files(files, "day", RECORDS)
        # In turns, so that a busy minute of this machine affects all of them.
        for _ in range(REPEATS):
            for name, measured in costs.items():
                measured.append(_bare(folder) if name == "bare write" else _source(name, files))
    bare = medians(costs["bare write"])
    for name in ("bare write", "thread", "process", "spark"):
        yield _line(name, medians(costs[name]), RECORDS, bare)
    shared_spark.server().stop()
    yield from _main_job(bare)


def _line(name: str, cost: Cost, records: int, bare: Cost) -> str:
    """Return a report line. `bare` is the cost of the bare write of `RECORDS`."""
    rate, bare_rate = records / cost.seconds, RECORDS / bare.seconds
    cpu, bare_cpu = 1e6 * cost.cpu_seconds / records, 1e6 * bare.cpu_seconds / RECORDS
    return f"{name:12}{rate:>12,.0f}{cpu:>15.2f}{rate / bare_rate:>13.0%} {cpu / bare_cpu:>11.1f} x"


def _write_files(folder: Path, name: str, records: int) -> None:
    folder.mkdir(exist_ok=True)
    for number in range(FILES):
        lines = [LINE % n + b"\n" for n in range(number, records, FILES)]
        part = folder / f"{name}-{number}.jsonl.part"
        part.write_bytes(b"".join(lines))
        part.rename(part.with_suffix(""))  # makes the whole file visible to the source


# -- files to the log --


def _bare(folder: str) -> Cost:
    """Measure the producer alone with the records that the source makes of the files."""
    batches = [_batch(start) for start in range(0, RECORDS, BATCH)]
    with tempfile.TemporaryDirectory(dir=folder) as data:
        transport = open_transport(transport_settings(data))
        transport.record_log.create_topic("events", 1)
        producer = transport.record_log.producer("bench", "bench", None)
        producer.init()
        began, cpu = time.perf_counter(), time.process_time()
        for number, batch in enumerate(batches):
            producer.send(batch)
            producer.commit([(b'["bench",{"file":"day-0.jsonl"}]', b'{"position":%d}' % number)])
        cost = Cost(time.perf_counter() - began, time.process_time() - cpu)
        transport.close()
    return cost


def _batch(start: int) -> list[ProducerRecord]:
    key = b"day-0.jsonl"
    return [
        ProducerRecord(
            "events",
            None,
            key,
            LINE % n,
            (("headgate.file", key), ("headgate.position", b"%d" % (n * len(LINE)))),
        )
        for n in range(start, start + BATCH)
    ]


def _source(runner: str, files: Path) -> Cost:
    """Measure a source task, from its report that it runs until its last record can be read."""
    with tempfile.TemporaryDirectory(dir=files.parent) as data:
        worker = Worker(runner, Path(data))
        config = {"path": str(files), "topic": "events", "batch.size": str(BATCH)}
        task = worker.start(config, SOURCE)
        began = worker.wait(TaskRunning)[0]
        cpu = cpu_seconds(os.getpid())
        ended = worker.wait_for_records("events", RECORDS)
        cost = Cost(ended - began, cpu_seconds(os.getpid()) - cpu)
        worker.runner.stop(task, 10_000)
        worker.wait(TaskReleased)
        worker.close()
    return cost


# -- the main job --


def _main_job(bare: Cost) -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        UpJob(Path(folder), PIPELINE, "lake") as job,
    ):
        warm = _moved(job, "warm", JOB_WARM_RECORDS)
        yield (
            f"headgate up, 2 workers, 2 source tasks, a Parquet sink, local[2]: the first "
            f"{JOB_WARM_RECORDS:,} records are in the table after {warm.seconds:.1f} s"
        )
        yield f"then {JOB_RECORDS:,} records at a time, medians of {JOB_REPEATS}"
        costs = [_moved(job, f"day{n}", JOB_RECORDS) for n in range(JOB_REPEATS)]
    yield _line("main job", medians(costs), JOB_RECORDS, bare)


def _moved(job: UpJob, name: str, records: int) -> Cost:
    written = job.folder / "_written"
    _write_files(written, name, records)
    return Cost(*job.move(written.iterdir(), records))
