"""A sink with `topics.regex` on a broker, as its user sees it with workers, standalone and
observe."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from support.commands.observing import observed
from support.commands.pipelines import HEADGATE
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.depth import first
from support.kafka.broker import Found
from support.kafka.cluster import await_true
from support.kafka.log_topics import LogTopics

from local_kafka.java_connect import Rest
from local_kafka.jvm import free_ports

pytestmark = pytest.mark.slow

SECONDS = 60
STRING = "org.apache.kafka.connect.storage.StringConverter"
SETTINGS = {
    "key.converter": STRING,
    "value.converter": STRING,
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "offset.flush.interval.ms": "500",
    "consumer.metadata.max.age.ms": "500",
}


@pytest.fixture
def logs(kafka_broker: Found, kafka_name: str, tmp_path: Path) -> LogTopics:
    """Topics of which two match the pattern, and three nearly do."""
    made = LogTopics(kafka_broker.address, kafka_name, tmp_path / "out.txt")
    made.add("a1", 2, 100)
    made.add("b1", 1, 100)
    made.add_near(made.topic("a1-dlq"), f"more-{made.topic('a1')}", made.topic("x1"))
    return made


def offsets_of(rest: Rest, logs: LogTopics) -> Any:
    body: Any = rest.get(f"/connectors/{logs.connector}/offsets").body
    return sorted(body["offsets"], key=lambda one: json.dumps(one["partition"], sort_keys=True))


def all_committed(rest: Rest, logs: LogTopics) -> bool:
    wanted = sorted(
        logs.rest_offsets(), key=lambda one: json.dumps(one["partition"], sort_keys=True)
    )
    return bool(offsets_of(rest, logs) == wanted)


@pytest.mark.parametrize("runner", first(1, ["process", "thread"]))
def test_topics_that_are_there_and_topics_that_come(
    logs: LogTopics,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    runner: str,
) -> None:
    settings = {**SETTINGS, "headgate.task.runner": runner}
    worker = headgate_worker(logs.address, logs.name, settings)
    rest, name = worker.rest, logs.connector
    assert rest.create(name, logs.config()).status == 201
    rest.await_tasks(name, ["RUNNING"] * 2, SECONDS)
    await_true("first topics", logs.complete, SECONDS, worker.tail)

    # While records come a topic that matches appears, and one that begins as one does.
    logs.add_near(logs.topic("c1x"))
    logs.write("a1", 2, 1_000)
    logs.add("c1", 2, 500)
    logs.write("b1", 1, 1_000)
    await_true("the new topic", logs.complete, SECONDS, worker.tail)
    await_true("offsets", lambda: all_committed(rest, logs), SECONDS, worker.tail)
    logs.check()

    used: Any = rest.get(f"/connectors/{name}/topics").body
    assert used[name]["topics"] == [logs.topic(which) for which in ("a1", "b1", "c1")]
    assert_no_lag(worker, logs)
    check_offsets_altered(worker, logs)


def assert_no_lag(worker: HeadgateWorker, logs: LogTopics) -> None:
    view = observed("--properties", str(worker.folder / "worker.properties"))
    progress = view["connectors"][logs.connector]["progress"]
    found = {
        (one["topic"], one["partition"]): (one["committed"], one["end"])
        for one in progress["partitions"]
    }
    assert found == {place: (end, end) for place, end in logs.ends.items()}


def check_offsets_altered(worker: HeadgateWorker, logs: LogTopics) -> None:
    """Set back by 5 records, then reset: they come again, once more each."""
    rest, path = worker.rest, f"/connectors/{logs.connector}"
    assert rest.put(f"{path}/stop").status == 204
    rest.await_tasks(logs.connector, [], SECONDS)
    topic = logs.topic("c1")
    partition = {"kafka_topic": topic, "kafka_partition": 1}
    change = {"offsets": [{"partition": partition, "offset": {"kafka_offset": 495}}]}
    done = rest.patch(f"{path}/offsets", change)
    assert done.status == 200, done
    assert rest.put(f"{path}/resume").status == 202
    logs.expected += [f"{topic} 1 {n}" for n in range(495, 500)]
    await_true("the last five", logs.complete, SECONDS, worker.tail)
    await_true("offsets", lambda: all_committed(rest, logs), SECONDS, worker.tail)
    logs.check()
    assert rest.put(f"{path}/stop").status == 204
    rest.await_tasks(logs.connector, [], SECONDS)
    done = rest.delete(f"{path}/offsets")
    assert done.status == 200, done
    assert offsets_of(rest, logs) == []


@pytest.mark.exhaustive
def test_pattern_that_nothing_matches_runs_and_waits(
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
) -> None:
    logs = LogTopics(kafka_broker.address, kafka_name, tmp_path / "out.txt")
    worker = headgate_worker(logs.address, logs.name, SETTINGS)
    assert worker.rest.create(logs.connector, logs.config()).status == 201
    worker.rest.await_tasks(logs.connector, ["RUNNING"] * 2, SECONDS)
    time.sleep(1)
    logs.add("a1", 2, 10)
    await_true("its records", logs.complete, SECONDS, worker.tail)
    worker.rest.await_tasks(logs.connector, ["RUNNING"] * 2, SECONDS)
    logs.check()


@pytest.mark.exhaustive
def test_planned_batches_take_topics_that_come_and_let_go_of_those_that_go(
    logs: LogTopics,
    tmp_path: Path,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
) -> None:
    settings = {**SETTINGS, "headgate.task.runner": "spark", "headgate.spark.slots": "2"}
    worker = headgate_worker(logs.address, logs.name, settings)
    config = {
        "connector.class": "SparkFileSink",
        "topics.regex": logs.config()["topics.regex"],
        "path": str(tmp_path / "out"),
        "format": "json",
        "batch.interval.ms": "0",
    }
    assert worker.rest.create(logs.connector, config).status == 201
    worker.rest.await_tasks(logs.connector, ["RUNNING"], 120)

    def rows() -> list[str]:
        files = sorted((tmp_path / "out").glob("*.json"))
        lines = [line for file in files for line in file.read_text().splitlines()]
        return sorted(json.loads(line)["value"] for line in lines)

    def complete() -> bool:
        return len(rows()) >= len(logs.expected)

    await_true("first topics", complete, SECONDS, worker.tail)
    logs.add_near(logs.topic("c1x"))
    logs.add("c1", 2, 100)
    await_true("the new topic", complete, SECONDS, worker.tail)
    logs.remove("b1")
    logs.write("a1", 2, 100)
    await_true("what comes after one has gone", complete, SECONDS, worker.tail)
    assert rows() == sorted(logs.expected)
    worker.rest.await_tasks(logs.connector, ["RUNNING"], SECONDS)
    used: Any = worker.rest.get(f"/connectors/{logs.connector}/topics").body
    found = used[logs.connector]["topics"]
    assert found == [logs.topic(which) for which in ("a1", "b1", "c1")]


PIPELINE = """
[cluster]
data = "state"
runner = "process"

[connectors.one]
"connector.class" = "FileStreamSource"
file = "one.txt"
topic = "logs-a"

[connectors.two]
"connector.class" = "FileStreamSource"
file = "two.txt"
topic = "logs-b"

[connectors.near]
"connector.class" = "FileStreamSource"
file = "near.txt"
topic = "logs-bb"

[connectors.sink]
"connector.class" = "FileStreamSink"
"topics.regex" = "logs-[a-z&&[^x]]"
"tasks.max" = 2
file = "out.txt"
"""


@pytest.mark.exhaustive
def test_up_until_idle(tmp_path: Path) -> None:
    """On the embedded log, the sink is behind as long as a topic that matches has more records."""
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    for name in ("one", "two", "near"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {n}\n" for n in range(500)))
    done = subprocess.run(
        [HEADGATE, "up", tmp_path / "pipeline.toml", "--until-idle"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {n}" for name in ("one", "two") for n in range(500))
    summary = json.loads((tmp_path / "state" / "logs" / "summary.json").read_text())
    assert summary["connectors"]["sink"]["committed"] == 1_000


@pytest.fixture
def standalone(logs: LogTopics, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    properties = {
        **SETTINGS,
        "bootstrap.servers": logs.address,
        "offset.storage.file.filename": str(tmp_path / "connect.offsets"),
        "listeners": f"http://127.0.0.1:{free_ports(1)[0]}",
        "headgate.task.runner": "process",
    }
    (tmp_path / "worker.properties").write_text(javaproperties.dumps(properties, timestamp=False))
    sink = {"name": logs.connector, "config": logs.config()}
    (tmp_path / "sink.json").write_text(json.dumps(sink))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headgate_runtime.cli",
            "standalone",
            "worker.properties",
            "sink.json",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


@pytest.mark.exhaustive
def test_standalone(logs: LogTopics, standalone: "subprocess.Popen[str]") -> None:
    await_true("first topics", logs.complete, SECONDS)
    logs.add("c1", 2, 500)
    await_true("the new topic", logs.complete, SECONDS)
    standalone.send_signal(signal.SIGTERM)
    _, said = standalone.communicate(timeout=SECONDS)
    assert standalone.returncode == 0, said
    logs.check()
