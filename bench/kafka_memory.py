"""Memory of a worker without tasks and with ten, ours on threads and in processes beside Java's.

Memory is the proportional set size of the worker and all processes below it, some time after the
last event. Memory while records flow is in `kafka_source`. The last line is the memory of the
libraries that every worker in Python needs.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.kafka_workers import (
    JAVA,
    JAVA_HEAP_MB,
    OURS,
    THREADS,
    Worker,
    Workers,
    name_of,
    pid_of,
    source,
    workers,
)
from bench.processes import pss_mib

TASKS = 10
LINES = 50_000
REPEATS = 3
SETTLE_S = 10.0
"""Wait after the last event. Garbage collectors have run by then."""
NAMES = {THREADS: "ours, threads", OURS: "ours, processes", JAVA: JAVA}
LIBRARIES = ("confluent_kafka", "kafka", "starlette.applications", "uvicorn", "httpcore")
"""Libraries of a worker's clients, membership and REST service."""
CLIENTS = """
import importlib, sys
from confluent_kafka import Consumer, Producer
servers, *libraries = sys.argv[1:]
for library in libraries:
    importlib.import_module(library)
consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
consumer.list_topics(timeout=10)
producer = Producer({"bootstrap.servers": servers, "transactional.id": "bench"})
producer.init_transactions(10)
print(flush=True)
sys.stdin.read()
"""
"""Program that only has these clients and libraries. It ends with its input."""


def run() -> Iterator[str]:
    """Yield report lines, one for each kind of worker."""
    with workers() as made:
        yield (
            f"PSS in MiB, worker and tasks (Java with -Xmx{JAVA_HEAP_MB}m); exactly-once on; "
            f"medians of {REPEATS}"
        )
        yield f"{'':18}{'no task':>10}{f'{TASKS} tasks':>10}{'of Java':>18}"
        file = made.folder / "lines.txt"
        file.write_text("".join(f"line {n} {'x' * 80}\n" for n in range(LINES)))
        taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in NAMES}
        for turn in range(REPEATS):
            for kind, some in taken.items():
                some.append(_measure(made, kind, f"memory-{name_of(kind)}-{turn}", file))
        found = {
            kind: tuple(map(statistics.median, zip(*some, strict=True)))
            for kind, some in taken.items()
        }
        idle_java, busy_java = found[JAVA]
        for kind, (idle, busy) in found.items():
            told = f"{idle / idle_java:.2f}, {busy / busy_java:.2f}"
            yield f"{NAMES[kind]:18}{idle:>10.0f}{busy:>10.0f}{told:>18}"
        for what, libraries in {
            "an interpreter with one consumer and one producer": (),
            "the same, with the libraries of a worker loaded": LIBRARIES,
        }.items():
            mib = _clients(made.broker.address, libraries)
            yield f"{what}: {mib:.1f}, {mib / idle_java:.2f} of Java's worker"


def _clients(servers: str, libraries: tuple[str, ...]) -> float:
    with subprocess.Popen(
        [sys.executable, "-c", CLIENTS, servers, *libraries],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline(), "it ended"
        mib = pss_mib(process.pid)
        process.stdin.close()
    return mib


def _measure(made: Workers, kind: str, group: str, file: Path) -> tuple[float, float]:
    worker: Worker = made.make(kind, group)
    worker.start()
    time.sleep(SETTLE_S)
    idle = pss_mib(pid_of(worker))
    for number in range(TASKS):
        name = f"{group}-{number}"
        worker.rest.create(name, source(file, name))
    for number in range(TASKS):
        worker.rest.await_tasks(f"{group}-{number}", ["RUNNING"])
    time.sleep(SETTLE_S)
    busy = pss_mib(pid_of(worker))
    made.close()
    return idle, busy
