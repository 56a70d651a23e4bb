"""Memory of a worker without tasks and with ten, ours on threads and in processes beside Java's.

Proportional set size of the worker and all below it, some time after the last event. What one takes
while records flow is in `kafka_source`.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.kafka_workers import JAVA, JAVA_HEAP_MB, OURS, Worker, Workers, pid_of, source, workers
from bench.processes import pss_mib

TASKS = 10
LINES = 50_000
SETTLE_S = 10.0
"""After the last event; collectors have run then."""
WORKERS = {
    "ours, threads": (OURS, "thread"),
    "ours, processes": (OURS, "process"),
    JAVA: (JAVA, ""),
}


def run() -> Iterator[str]:
    """Report lines: one for each kind of worker."""
    with workers() as made:
        yield f"PSS in MiB, worker and tasks (Java with -Xmx{JAVA_HEAP_MB}m); exactly-once on"
        yield f"{'':18}{'no task':>10}{f'{TASKS} tasks':>10}{'of Java':>18}"
        file = made.folder / "lines.txt"
        file.write_text("".join(f"line {n} {'x' * 80}\n" for n in range(LINES)))
        found = {name: _measure(made, *how, file) for name, how in WORKERS.items()}
        idle_java, busy_java = found[JAVA]
        for name, (idle, busy) in found.items():
            told = f"{idle / idle_java:.2f}, {busy / busy_java:.2f}"
            yield f"{name:18}{idle:>10.0f}{busy:>10.0f}{told:>18}"


def _measure(made: Workers, kind: str, runner: str, file: Path) -> tuple[float, float]:
    group = f"memory-{kind.lower()}-{runner}"
    more = {"headgate.task.runner": runner} if kind == OURS else {}
    worker: Worker = made.make(kind, group, more)
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
