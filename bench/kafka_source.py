"""FileStreamSource with exactly-once on, one task: ours in a process, Java's in its worker.

They take turns with the same file, broker and transaction boundary. The time is that between the
first and the last commit, as a reader of the offsets topic sees them. CPU and memory are those of
the worker with its task. Then come our task on a thread, and the producers alone, which read the
file and send its lines in transactions.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.kafka_topics import create_topic, delete_topic
from bench.kafka_workers import (
    JAVA,
    JSON,
    KINDS,
    OURS,
    STRING,
    THREADS,
    TRANSFORMS,
    Worker,
    Workers,
    cpu_of,
    name_of,
    pid_of,
    source,
    workers,
)
from bench.medians import medians
from bench.processes import Peak
from local_kafka.jvm import compile_java, open_java

LINES = int(os.environ.get("HEADGATE_BENCH_LINES", "2000000"))
LINE_BYTES = 100
BATCH = 2_000
INTERVAL_MS = 1_000
REPEATS = 3
LIMIT_S = 300.0
QUIET = "-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory"
JAVA_HEAP_MB = 1_024
JAVA_TRIES = 3
BY_POLL = {"transaction.boundary": "poll"}
BY_INTERVAL = {
    "transaction.boundary": "interval",
    "transaction.boundary.interval.ms": str(INTERVAL_MS),
}
TEXT = {"value.converter": STRING}
OBJECTS = {"value.converter": JSON, "value.converter.schemas.enable": "false", **TRANSFORMS}
CASES = {
    f"text, commit per poll of {BATCH:,}": TEXT | BY_POLL,
    f"text, commit per {INTERVAL_MS:,} ms": TEXT | BY_INTERVAL,
    "JSON + 2 transforms, per poll": OBJECTS | BY_POLL,
    f"JSON + 2 transforms, per {INTERVAL_MS:,} ms": OBJECTS | BY_INTERVAL,
}
RAW = {f"producer alone, per {BATCH:,}": (BATCH, 0), "producer alone, by time": (0, INTERVAL_MS)}


class Cost(NamedTuple):
    rate: float
    """Records per second."""
    cpu_us: float
    """CPU microseconds per record."""
    peak_mib: float
    """Largest memory during the run, in MiB."""


class Commits:
    """Reads the offsets topic of a group."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "bench-commits",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10_000,
            }
        )
        partitions = [
            TopicPartition(topic, number)
            for number in self._consumer.list_topics(topic).topics[topic].partitions
        ]
        for partition in partitions:
            partition.offset = self._consumer.get_watermark_offsets(partition)[1]
        self._consumer.assign(partitions)

    def positions(self, connector: str) -> Iterator[int]:
        """Yield the positions in the file as they are committed."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            for message in self._consumer.consume(1_000, 0.01):
                if message.error() or json.loads(message.key() or b"[0]")[0] != connector:
                    continue
                yield json.loads(message.value() or b"{}").get("position", 0)
        raise TimeoutError(f"{connector} has not come to the end of the file")

    def close(self) -> None:
        self._consumer.close()


class Side:
    """A worker of one kind."""

    def __init__(self, made: Workers, kind: str, file: Path) -> None:
        self.kind = kind
        self._file = file
        self._address = made.broker.address
        self._admin = AdminClient({"bootstrap.servers": self._address})
        self.group = f"source-{name_of(kind)}"
        self.worker: Worker = made.make(kind, self.group)
        self.worker.start()
        self._count = 0

    def run(self, config: dict[str, str], lines: int) -> Cost:
        self._count += 1
        name = f"{self.group}-{self._count}"
        create_topic(self._admin, name)
        commits = Commits(self._address, f"{self.group}-offsets")
        size = self._file.stat().st_size
        end = size * lines // LINES
        reply = self.worker.rest.create(name, source(self._file, name, **config))
        assert reply.status == 201, reply
        began = cpu = 0.0
        first = 0
        with Peak(pid_of(self.worker)) as peak:
            for position in commits.positions(name):
                if not first:
                    first, began, cpu = position, time.perf_counter(), cpu_of(self.worker)
                if position >= end:
                    break
        seconds, spent = time.perf_counter() - began, cpu_of(self.worker) - cpu
        commits.close()
        if first > end // 2:
            raise RuntimeError(
                f"{lines:,} lines are too few: the first commit of {name} had more than half of "
                "them. Set HEADGATE_BENCH_LINES to more"
            )
        self.worker.rest.delete(f"/connectors/{name}")
        delete_topic(self._admin, name)
        records = (position - first) * LINES / size
        return Cost(records / seconds, 1e6 * spent / records, peak.mib)


def run() -> Iterator[str]:
    """Yield report lines: each case with ours, Java's and the ratio, then the producers."""
    with workers({"log.segment.delete.delay.ms": "1000"}) as made:
        file = made.folder / "lines.txt"
        write_lines(file, LINES)
        sides = {kind: Side(made, kind, file) for kind in (*KINDS, THREADS)}
        for side in sides.values():
            side.run(OBJECTS | BY_POLL, LINES // 4)  # warms up Java's compiler
        yield (
            f"{LINES:,} lines of {LINE_BYTES} bytes, one task, exactly-once; medians of {REPEATS}"
        )
        yield (
            f"{'':34}{'ours: records/s':>16}{'us CPU':>8}{'MiB':>6}"
            f"{'Java: records/s':>17}{'us CPU':>8}{'MiB':>6}{'rate':>8}{'CPU':>8}{'MiB':>8}"
        )
        for what, config in CASES.items():
            costs: dict[str, list[Cost]] = {kind: [] for kind in sides}
            for _ in range(REPEATS):
                for kind, side in sides.items():
                    costs[kind].append(side.run(config, LINES))
            yield _line(what, costs[OURS], costs[JAVA])
            yield _line("  ours on a thread", costs[THREADS], costs[JAVA])
        yield from _producers(made, file)


def write_lines(file: Path, count: int) -> None:
    with file.open("wb") as lines:
        for start in range(0, count, 10_000):
            some = range(start, min(start + 10_000, count))
            lines.write(
                b"".join(b"line %09d " % n + b"x" * (LINE_BYTES - 15) + b"\n" for n in some)
            )


def _producers(made: Workers, file: Path) -> Iterator[str]:
    admin = AdminClient({"bootstrap.servers": made.broker.address})
    classes = made.folder / "classes"
    compile_java(Path(__file__).parent / "java" / "RawProducer.java", classes)
    for what, (records, interval_ms) in RAW.items():
        costs: dict[str, list[Cost]] = {kind: [] for kind in KINDS}
        for turn in range(REPEATS):
            for kind in KINDS:
                topic = f"raw-{kind}-{records}-{turn}"
                create_topic(admin, topic)
                told = [made.broker.address, str(file), topic, str(records), str(interval_ms)]
                costs[kind].append(_ours(told) if kind == OURS else _java(classes, told))
                delete_topic(admin, topic)
        yield _line(what, costs[OURS], costs[JAVA])


def _ours(arguments: list[str]) -> Cost:
    command = [sys.executable, "-m", "bench.kafka_raw", *arguments]
    root = Path(__file__).parents[1]
    cost = _cost(subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True))
    if cost is None:
        raise RuntimeError("the producer failed")
    return cost


def _java(classes: Path, arguments: list[str]) -> Cost:
    """Measure Java's producer. It is started again if it fails, since brokers now and then refuse
    the first commits of a new Java producer (`InvalidTxnStateException`), as they do in Java's
    tasks."""
    for _ in range(JAVA_TRIES):
        program = open_java(classes, "RawProducer", arguments, heap_mb=JAVA_HEAP_MB, flags=(QUIET,))
        if (cost := _cost(program)) is not None:
            return cost
    raise RuntimeError(f"Java's producer failed {JAVA_TRIES} times")


def _cost(program: "subprocess.Popen[str]") -> Cost | None:
    """Wait for a program to end, and return the cost that it prints. None: the program failed."""
    with Peak(program.pid) as peak:
        said = program.communicate()[0]
    if program.returncode:
        return None
    seconds, cpu = map(float, said.split())
    return Cost(LINES / seconds, 1e6 * cpu / LINES, peak.mib)


def _line(what: str, *costs: list[Cost]) -> str:
    ours, java = map(medians, costs)
    told = "".join(
        f"{cost.rate:>{width},.0f}{cost.cpu_us:>8.2f}{cost.peak_mib:>6.0f}"
        for cost, width in ((ours, 16), (java, 17))
    )
    ratios = (ours.rate / java.rate, ours.cpu_us / java.cpu_us, ours.peak_mib / java.peak_mib)
    return f"{what:34}{told}" + "".join(f"{ratio:>7.2f}x" for ratio in ratios)
