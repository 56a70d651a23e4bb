"""How long a task takes to its first commit, to pause, to resume and to stop, per runner.

The numbers are medians on an idle machine, exactly-once, on the embedded log. The answers to the
fencing request and the recheck come at once. So runner, lifeline, body and log are measured.
"""

import os
import queue
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import shared_spark
from headgate.connector.api import SourceConnector, SourceRecord, SourceTask
from headgate.connector.converters import task_converters
from headgate.ids import TargetState, TaskId
from headgate.membership.messages import JoinGroup, SyncGroup
from headgate.task.messages import (
    FencingAnswered,
    FencingRequested,
    PauseTask,
    ProducerInitialised,
    RecheckAnswered,
    ResumeTask,
    TaskEnded,
    TaskKind,
    TaskPaused,
    TaskProgress,
    TaskReleased,
    TaskReport,
    TaskRunning,
    TaskSpec,
)
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_runtime.tasks.select import make_runner
from headgate_runtime.worker import collector

RUNNERS = ("thread", "process", "spark")
STARTS = 7
RECORDS = 400_000
BATCH = 4_000
LINE = "x" * 80


class TickingTask(SourceTask):
    """A task that gives small batches without end, or `records` records in large batches."""

    def start(self, config: Mapping[str, str]) -> None:
        self._left = int(config.get("records", "0"))
        self._endless = "records" not in config
        self._at = 0

    def poll(self) -> Iterable[SourceRecord] | None:
        if not self._endless and not self._left:
            self.context.wait(0.01)
            return None
        count = 10 if self._endless else BATCH
        if self._endless:
            self.context.wait(0.002)
        self._left -= 0 if self._endless else count
        partition = {"file": "bench"}
        start, self._at = self._at, self._at + count
        return [SourceRecord(partition, {"at": n}, "bench", LINE) for n in range(start, self._at)]


class TickingSource(SourceConnector):
    TASK = TickingTask


class Worker:
    """The parts of a worker that a runner needs."""

    def __init__(self, name: str, folder: Path) -> None:
        self.transport = open_transport(transport_settings(folder))
        self._folder = folder
        self._member = _join(self.transport)
        self._reports: queue.Queue[tuple[float, TaskReport]] = queue.Queue()
        self._count = 0
        launcher = shared_spark.launcher() if name == "spark" else None
        settings = {"session.timeout.ms": "20000"}
        self.runner = make_runner(name, settings, self._report, spark_launcher=launcher)

    def _report(self, run: str, report: TaskReport) -> None:
        self._reports.put((time.perf_counter(), report))
        if isinstance(report, FencingRequested):
            self.runner.send(run, FencingAnswered())
        if isinstance(report, ProducerInitialised):
            self.runner.send(run, RecheckAnswered())

    def start(self, config: Mapping[str, str], connector: str = "bench.tasks:TickingSource") -> str:
        """Start a source task. Returns its run."""
        self._count += 1
        run = f"bench/{self._count}"
        member_id, generation = self._member
        spec = TaskSpec(
            run=run,
            task=TaskId("bench", 0),
            kind=TaskKind.SOURCE,
            connector_config={"connector.class": connector, **config},
            task_config=config,
            target_state=TargetState.STARTED,
            commit_offset=1,
            exactly_once=True,
            transactional_id="g-bench-0",
            group="g",
            member_id=member_id,
            generation=generation,
            worker_id="bench",
            worker_settings={},
            transport=transport_settings(self._folder),
        )
        self.runner.start(spec)
        return run

    def wait(self, kind: type) -> tuple[float, Any]:
        while True:
            at, report = self._reports.get(timeout=60)
            if isinstance(report, kind):
                return at, report
            if isinstance(report, TaskEnded) and kind is not TaskReleased:
                raise RuntimeError(f"the task ended: {report}")

    def first_commit(self) -> float:
        while True:
            at, progress = self.wait(TaskProgress)
            if progress.records:
                return at

    def wait_for_records(self, topic: str, count: int) -> float:
        """Wait until `count` records can be read. Returns the time of that. The log is asked, since
        tasks report their progress only now and then."""
        while sum(self.transport.record_log.end_offsets([topic]).values()) < count:
            time.sleep(0.01)
        return time.perf_counter()

    def close(self) -> None:
        self.runner.close()
        self.transport.close()


def _join(transport: EmbeddedTransport) -> tuple[str, int]:
    member_id, generation = "", 0
    while not generation:
        transport.group.send(
            JoinGroup("g", member_id, "bench", "connect", (("p", b""),), 600_000, 10_000)
        )
        while not (answers := transport.group.receive()):
            time.sleep(0.005)
        answer: Any = answers[0]
        member_id, generation = answer.member_id, 0 if answer.error else answer.generation
    transport.group.send(SyncGroup("g", member_id, generation, {member_id: b""}))
    return member_id, generation


def run() -> Iterator[str]:
    """Yield report lines: medians of the steps of a task's life, then records per second."""
    collector.settle()  # as a worker does
    root = Path(__file__).resolve().parents[1]
    os.environ["PYTHONPATH"] = os.pathsep.join((str(root), os.environ.get("PYTHONPATH", "")))
    yield f"median ms of {STARTS}   start to first commit   pause   resume   stop to released"
    for name in RUNNERS:
        with tempfile.TemporaryDirectory() as folder:
            worker = Worker(name, Path(folder))
            lives = [_life(worker) for _ in range(STARTS)]
            worker.close()
        start, pause, resume, stop = (statistics.median(step) for step in zip(*lives, strict=True))
        yield f"{name:18}{start:22.1f}{pause:8.1f}{resume:9.1f}{stop:19.1f}"
    yield f"{RECORDS:,} records of {len(LINE)} bytes, {BATCH} per transaction: {_bare()}"
    for name in RUNNERS:
        yield f"{name:18}{_throughput(name)}"


def _life(worker: Worker) -> tuple[float, float, float, float]:
    began = time.perf_counter()
    run = worker.start({})
    start = worker.first_commit() - began
    times = [start]
    for command, answer in ((PauseTask(), TaskPaused), (ResumeTask(), TaskRunning)):
        began = time.perf_counter()
        worker.runner.send(run, command)
        times.append(worker.wait(answer)[0] - began)
    began = time.perf_counter()
    worker.runner.stop(run, 10_000)
    times.append(worker.wait(TaskReleased)[0] - began)
    first, second, third, fourth = (1000 * seconds for seconds in times)
    return first, second, third, fourth


def _throughput(name: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(name, Path(folder))
        run = worker.start({"records": str(RECORDS)})
        began = worker.wait(TaskRunning)[0]
        at = worker.wait_for_records("bench", RECORDS)
        worker.runner.stop(run, 10_000)
        worker.wait(TaskReleased)
        worker.close()
    return f"{RECORDS / (at - began):>12,.0f} records/s"


def _bare() -> str:
    """Return the CPU of poll and converter alone, without runner, machine and log."""
    task = TickingTask()
    task.start({"records": str(RECORDS)})
    converter = task_converters({}, {}).value
    began = time.process_time()
    for _ in range(RECORDS // BATCH):
        for record in task.poll() or ():
            converter.from_connect(record.topic, record.value)
    cpu = time.process_time() - began
    return f"{1e6 * cpu / RECORDS:.2f} us of CPU a record for poll and converter alone"
