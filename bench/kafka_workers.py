"""A broker, and Headgate's and Java's workers on it, for the benches of the Kafka parts.

Java runs with the options that `connect-distributed.sh` gives it. All workers have their default
settings, unless a line of a report says otherwise.
"""

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.processes import cpu_seconds

for _folder in ("tests", "tools"):
    sys.path.insert(0, str(Path(__file__).parents[1] / _folder))

from support.commands.worker import HeadgateWorker  # noqa: E402

from local_kafka.broker import Broker  # noqa: E402
from local_kafka.java_connect import SOURCE, JavaWorker, Rest  # noqa: E402

OURS, THREADS, JAVA = "ours", "ours, threads", "Java"
KINDS = (OURS, JAVA)
"""Kinds of workers. Ours run tasks in processes, unless a report says otherwise."""
JAVA_HEAP_MB = 2_048
JAVA_FLAGS = (
    "-Xms256m",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""JVM options with which Kafka's own scripts start a worker, except those for JMX and logging.
Their `-Xmx2G` is `JAVA_HEAP_MB`."""
BROKER_HEAP_MB = 2_048
STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
TRANSFORMS = {
    "transforms": "mark,route",
    "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
    "transforms.mark.header": "origin",
    "transforms.mark.value.literal": "bench",
    "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "$1",
}
"""Config of two transforms that both kinds of workers have. Each record gets a header, and is
routed to the same topic again."""


class Worker(Protocol):
    rest: Rest
    url: str
    folder: Path

    def launch(self) -> None: ...

    def await_ready(self) -> None: ...

    def start(self) -> None: ...


class Workers:
    """Makes workers on one broker, and ends them."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.broker = broker
        self._ends: list[Any] = []
        self._made = 0

    def make(self, kind: str, group: str, properties: Mapping[str, str] | None = None) -> Worker:
        """Make a worker without starting it. Tasks of `OURS` run in processes, those of `THREADS`
        on threads."""
        self._made += 1
        folder = self.folder / f"worker-{self._made}"
        given = {
            "bootstrap.servers": self.broker.address,
            "group.id": group,
            "exactly.once.source.support": "enabled",
            "key.converter": STRING,
            "value.converter": STRING,
            **(properties or {}),
        }
        if kind == JAVA:
            java = JavaWorker(folder, given, heap_mb=JAVA_HEAP_MB, flags=JAVA_FLAGS)
            self._ends.append(java.kill)
            return java
        runner = "thread" if kind == THREADS else "process"
        ours = HeadgateWorker(folder, {"headgate.task.runner": runner, **given})
        self._ends.append(ours.close)
        return ours

    def close(self) -> None:
        """End all workers that were made."""
        ends, self._ends = self._ends, []
        for end in ends:
            end()


@contextlib.contextmanager
def workers(settings: Mapping[str, str] | None = None) -> Iterator[Workers]:
    """Start a broker with `settings`. Gives a maker of workers on it. All end with the context."""
    with tempfile.TemporaryDirectory(
        prefix="headgate-bench-", ignore_cleanup_errors=True
    ) as folder:
        broker = Broker(
            Path(folder) / "broker", settings=settings, heap_mb=BROKER_HEAP_MB, flags=()
        )
        # Bytecode is kept, as for an installed package, even if this shell turns that off.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        broker.start()
        made = Workers(Path(folder), broker)
        try:
            yield made
        finally:
            made.close()
            broker.kill()


def name_of(kind: str) -> str:
    """Return a name for groups and topics of a kind of worker."""
    return kind.lower().replace(", ", "-")


def pid_of(worker: Worker) -> int:
    """Return the process id of the worker itself. Its tasks are processes below it."""
    if isinstance(worker, JavaWorker):
        return worker.jvm.pid
    assert isinstance(worker, HeadgateWorker)
    process = worker._process  # the guarded process
    assert process is not None and process.pid is not None
    return process.pid


def tail_of(worker: Worker) -> str:
    """Return the end of a worker's log."""
    if isinstance(worker, JavaWorker):
        return worker.jvm.tail()
    assert isinstance(worker, HeadgateWorker)
    return worker.tail()


def cpu_of(worker: Worker) -> float:
    """Return the CPU seconds of the worker and of all processes below it, also of ended ones."""
    return cpu_seconds(pid_of(worker))


def middle(values: Sequence[float]) -> str:
    """Return the median with minimum and maximum as text."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def beside_java(
    what: str, took: Mapping[str, Sequence[tuple[float, float]]], unit: str, form: str
) -> Iterator[str]:
    """Yield report lines: the medians of wall time and CPU of our worker and of Java's.

    Args:
        what: name of the measurement.
        took: pairs of wall time and CPU, both in `unit`, by kind of worker.
        form: format of a median, such as ``6.2f``.
    """
    for index, name in enumerate(("wall", "CPU")):
        ours, java = (statistics.median(one[index] for one in took[kind]) for kind in (OURS, JAVA))
        told = f"ours {ours:{form}}   Java {java:{form}} {unit} {name}"
        yield f"{what:16} {told}: {ours / java:.2f} of Java's"


def source(file: Path, topic: str, **more: str) -> dict[str, str]:
    """Return the config of a FileStreamSource with one task. Its class has the same name in both
    kinds of workers."""
    return {
        "connector.class": SOURCE,
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        **more,
    }
