"""The time from a worker's start to its first RUNNING task on a long config topic, and the replay
of such a topic alone, beside Connect's own config store.

The topic has the records of 20,000 connectors with 5 tasks each, which were deleted but not
compacted away, and of one connector that is to run. A worker that is alone reads all of it, leads,
and starts one task. Then the same is measured with the 20,000 connectors STOPPED and not deleted,
so that 20,001 connectors are assigned. (If they were neither, 100,000 tasks would start, which no
worker survives.)
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from confluent_kafka.admin import AdminClient

from bench.kafka_source import QUIET
from bench.kafka_topics import create_topic, fill
from bench.kafka_workers import (
    JAVA,
    KINDS,
    OURS,
    Worker,
    Workers,
    beside_java,
    cpu_of,
    source,
    workers,
)
from headgate.ids import TargetState, TaskId
from headgate.topics import config_records as records
from local_kafka.jvm import compile_java, open_java

CONNECTORS = 20_000
TASKS = 5
REPEATS = 3
LIMIT_S = 90.0
LOOK_S = 0.05
JAVA_HEAP_MB = 2_048
RUNNING = "zz-running"
TASK_CLASS = "org.apache.kafka.connect.file.FileStreamSourceTask"
GENERATIONS = 6
"""Number of times that the task configs are written to the topic that is only replayed."""


def run() -> Iterator[str]:
    """Yield report lines: the starts, then the replay."""
    with workers() as made:
        count = CONNECTORS * (TASKS + 4) + 3
        yield (
            f"start of a worker on {count:,} records, exactly-once on, until a task runs; medians "
            f"of {REPEATS}"
        )
        took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        _start(made, OURS, "warm")  # compiles its bytecode, which an installed package has
        for turn in range(REPEATS):
            for kind in KINDS:
                took[kind].append(_start(made, kind, f"{turn}"))
        yield from beside_java(f"{CONNECTORS:,} deleted", took, "s", "6.2f")
        seconds, cpu = _start(made, OURS, "stopped", stopped=True)
        yield f"{CONNECTORS:,} stopped: ours {seconds:.2f} s wall, {cpu:.2f} s CPU; once"
        try:
            seconds, cpu = _start(made, JAVA, "stopped", stopped=True)
            yield f"{CONNECTORS:,} stopped: Java {seconds:.2f} s wall, {cpu:.2f} s CPU; once"
        except TimeoutError:
            yield (
                f"{CONNECTORS:,} stopped: Java has no task running after {LIMIT_S:g} s: each "
                "connector, stopped or not, gets a consumer of source offsets first"
            )
            made.close()
        yield from _replays(made)


def _start(made: Workers, kind: str, turn: str, stopped: bool = False) -> tuple[float, float]:
    group = f"start-{kind.lower()}-{turn}"
    _config_topic(made, group, 1, stopped)
    worker: Worker = made.make(kind, group)
    began = time.perf_counter()
    worker.launch()
    until = time.monotonic() + LIMIT_S
    while not _running(worker):
        if time.monotonic() > until:
            raise TimeoutError(f"{kind}: no task runs after {LIMIT_S:g} s")
        time.sleep(LOOK_S)
    took = time.perf_counter() - began, cpu_of(worker)
    made.close()
    return took


def _running(worker: Worker) -> bool:
    try:
        reply = worker.rest.status(RUNNING)
    except httpx.TransportError:
        return False
    return reply.status == 200 and [task["state"] for task in reply.body["tasks"]] == ["RUNNING"]


def _config_topic(made: Workers, group: str, generations: int, stopped: bool = False) -> int:
    """Write the config topic as a leader would, without compaction. Returns the number of
    records."""
    topic = f"{group}-configs"
    admin = AdminClient({"bootstrap.servers": made.broker.address})
    settings = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
    create_topic(admin, topic, settings=settings)
    file = made.folder / "running.txt"
    file.write_text("a line\n" * 100)
    written = _records(file, group, generations, stopped)
    records = ({"key": key.encode(), "value": value} for key, value in written)
    return fill(made.broker.address, topic, records)


def _records(
    file: Path, group: str, generations: int, stopped: bool
) -> Iterator[tuple[str, bytes | None]]:
    for generation in range(generations):
        for number in range(CONNECTORS):
            name = f"connector-{number:05}"
            config = _config(file, f"{name}-{generation}")
            yield records.encode_connector(name, {**config, "name": name})
            for task in range(TASKS):
                yield records.encode_task(TaskId(name, task), {**config, "task.class": TASK_CLASS})
            yield records.encode_commit(name, TASKS)
    for number in range(CONNECTORS):
        name = f"connector-{number:05}"
        yield records.encode_commit(name, 0)
        if stopped:
            yield records.encode_target_state(name, TargetState.STOPPED)
        else:
            yield f"connector-{name}", None
    config = _config(file, f"{group}-running")
    yield records.encode_connector(RUNNING, {**config, "name": RUNNING})
    yield records.encode_task(TaskId(RUNNING, 0), {**config, "task.class": TASK_CLASS})
    yield records.encode_commit(RUNNING, 1)


def _config(file: Path, topic: str) -> dict[str, str | None]:
    return dict(source(file, topic))


def _replays(made: Workers) -> Iterator[str]:
    count = _config_topic(made, "replay", GENERATIONS, stopped=True)
    classes = made.folder / "classes"
    compile_java(Path(__file__).parent / "java" / "ReplayConfigs.java", classes)
    took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    told = [made.broker.address, "replay-configs"]
    for _ in range(REPEATS):
        for kind in KINDS:
            took[kind].append(_ours(told) if kind == OURS else _java(classes, told))
    yield (
        f"replay of {count:,} records ({GENERATIONS} sets of task configs) from the broker, beside "
        f"Connect's KafkaConfigBackingStore; medians of {REPEATS}"
    )
    yield from beside_java("replay", took, "s", "6.2f")


def _ours(arguments: list[str]) -> tuple[float, float]:
    command = [sys.executable, "-m", "bench.kafka_replay", *arguments]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True)
    return _checked(done.stdout.decode())


def _java(classes: Path, arguments: list[str]) -> tuple[float, float]:
    program = open_java(classes, "ReplayConfigs", arguments, heap_mb=JAVA_HEAP_MB, flags=(QUIET,))
    return _checked(program.communicate()[0])


def _checked(said: str) -> tuple[float, float]:
    seconds, cpu, tasks = said.split()
    if tasks != "1":
        raise RuntimeError(f"{tasks} tasks found, expected 1")
    return float(seconds), float(cpu)
