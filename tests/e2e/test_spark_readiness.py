"""A worker on Spark is ready soon. Nothing that does not need a JVM waits for one, tasks start side
by side, and a later worker starts no second JVM."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE, Up
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.spark.java_gate import JavaGate
from support.spark.lake import SETTINGS, create_lines, running, until
from support.spark.shared import TESTS

pytestmark = pytest.mark.slow

TASKS = 4
PIPELINE = """
[cluster]
workers = 1
data = "state"
runner = "spark"
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
"scheduled.rebalance.max.delay.ms" = 500

[spark]
master = "local[2]"

[connectors.meet]
"connector.class" = "support.task.connectors:MeetingSource"
"tasks.max" = {tasks}
folder = "{folder}/met"
of = {tasks}
limit = 10

[connectors.lake]
"connector.class" = "DeltaSink"
topics = "numbers"
path = "table"
"""


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaGate:
    """The Java of what the test starts."""
    made = JavaGate(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(made.home))
    return made


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[list[Up]]:
    started: list[Up] = []
    yield started
    for up in started:
        up.clean_up()


@pytest.fixture
def start(tmp_path: Path, ups: list[Up], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Up]:
    """Starts ``headgate up`` on a pipeline whose source's tasks all wait for each other."""
    monkeypatch.setenv("PYTHONPATH", TESTS)
    (tmp_path / "met").mkdir()
    (tmp_path / "pipeline.toml").write_text(PIPELINE.format(tasks=TASKS, folder=tmp_path))

    def started(*arguments: str) -> Up:
        ups.append(Up(tmp_path, arguments).start())
        return ups[-1]

    return started


def all_running(up: Up) -> bool:
    said = up.tail(10_000)
    return all(f"task meet-{n} RUNNING on " in said for n in range(TASKS))


def test_workers_serve_before_sparks_jvm_begins_and_tasks_start_side_by_side(
    start: Callable[..., Up], gate: JavaGate, tmp_path: Path
) -> None:
    up = start()
    up.wait_for("a JVM that is to begin", lambda: gate.asked == 1, 90)
    ready = "task lake-0 RUNNING on worker-1"
    up.wait_for("a task that needs no Spark", lambda: ready in up.tail(), 90)
    status = subprocess.run(
        [str(HEADGATE), "status"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "worker-1" in status.stdout
    assert "Spark is up" not in up.tail()
    assert list((tmp_path / "met").iterdir()) == [], "what needs Spark has run without"
    assert not gate.is_open
    gate.open()
    up.wait_for("tasks that have met", lambda: all_running(up), 150)
    up.wait_for("records of all", lambda: up.records("numbers") == 10 * TASKS, 60)
    assert gate.asked == 1


@pytest.mark.exhaustive
def test_whoever_comes_later_joins_the_spark_that_runs(
    start: Callable[..., Up], gate: JavaGate
) -> None:
    """A second `headgate up`, and a worker that was killed."""
    gate.open()
    first = start()
    first.wait_for("all tasks", lambda: all_running(first), 240)
    (jvm,) = sparks(first)
    joined = start("--join")
    shares = re.compile(r"task meet-\d RUNNING on worker-2")
    joined.wait_for("tasks of its own", lambda: shares.search(joined.tail(10_000)) is not None, 120)
    (victim,) = first.workers()
    back = re.compile(r"starts again(?s:.*)task meet-\d RUNNING on worker-1")
    os.kill(victim.pid, signal.SIGKILL)
    first.wait_for("a worker that is back", lambda: back.search(printed(first)) is not None, 120)
    assert gate.asked == 1
    assert sparks(first) == [jvm]
    assert joined.end(signal.SIGINT) == 0
    assert sparks(first) == [jvm], "it ended with one of those that share it"


def printed(up: Up) -> str:
    return (up.folder / "up.txt").read_text()


def sparks(up: Up) -> list[int]:
    """Process ids of the JVMs below it."""
    return [p.pid for p in up.look() if "SparkConnectServer" in p.command and "/java" in p.command]


@pytest.mark.exhaustive
def test_a_worker_on_kafka_is_ready_before_sparks_jvm_begins(
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    gate: JavaGate,
    tmp_path: Path,
) -> None:
    worker = headgate_worker(kafka_broker.address, kafka_name, SETTINGS)  # its /health is 200
    until("a JVM that is to begin", lambda: gate.asked == 1, worker)
    assert worker.rest.get("/connectors").status == 200
    sink, source = f"{kafka_name}-table", f"{kafka_name}-lines"
    table = {"connector.class": "DeltaSink", "topics": kafka_name, "path": str(tmp_path / "table")}
    assert worker.rest.create(sink, table).status == 201
    until("a task that needs no Spark", lambda: running(worker, sink), worker)
    create_lines(worker, source, tmp_path / "in.txt", kafka_name)
    assert not running(worker, source)
    assert "Spark is up" not in worker.log.read_text()
    assert not gate.is_open
    gate.open()
    until("the task on Spark", lambda: running(worker, source), worker)
    assert gate.asked == 1
