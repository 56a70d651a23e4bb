"""`headgate worker` as its user sees it: processes, a broker, HTTP, files in and out."""

import os
import signal
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from prometheus_client.parser import text_string_to_metric_families
from support.commands.worker import HeadgateWorker, headgate, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.kafka.cluster import read_committed

from local_kafka.broker import Broker
from local_kafka.java_connect import defaults
from local_kafka.jvm import free_ports

pytestmark = pytest.mark.slow

SECONDS = 90
SETTINGS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "headgate.task.runner": "process",
    "exactly.once.source.support": "enabled",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "500",
    "offset.flush.interval.ms": "500",
}
MakeWorker = Callable[..., HeadgateWorker]


def until(what: str, true: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := true()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
    return found


def states(worker: HeadgateWorker, connector: str) -> tuple[str, list[str]]:
    """Return the states of the connector and of its tasks."""
    body: Any = worker.rest.status(connector).body
    if "connector" not in body:
        return "", []
    return body["connector"]["state"], [task["state"] for task in body["tasks"]]


def owner(worker: HeadgateWorker, connector: str) -> str:
    """Return the owner of the connector's task."""
    body: Any = worker.rest.status(connector).body
    return str(body["tasks"][0]["worker_id"]) if body.get("tasks") else ""


def name_of(worker: HeadgateWorker) -> str:
    return worker.url.removeprefix("http://")


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def committed(servers: str, topic: str) -> list[str]:
    """All values of a topic of one partition that a committed reader sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"{topic}-check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while True:
        (message,) = consumer.consume(1, SECONDS)
        if message.error() is not None:
            consumer.close()
            return found
        found.append((message.value() or b"").decode())


class Story:
    """Workers, a file that grows, a topic, a file that is written."""

    def __init__(
        self, make: MakeWorker, servers: str, name: str, folder: Path, count: int = 2
    ) -> None:
        self.servers, self.name = servers, name
        self.workers = [make(servers, name, SETTINGS) for _ in range(count)]
        self.source, self.sink = f"{name}-source", f"{name}-sink"
        self.input, self.output = folder / "in.txt", folder / "out.txt"
        self.written = 0

    def write(self, count: int) -> None:
        with self.input.open("a") as file:
            for n in range(self.written, self.written + count):
                file.write(f"line {n}\n")
        self.written += count

    @property
    def expected(self) -> list[str]:
        return [f"line {n}" for n in range(self.written)]

    def source_config(self) -> dict[str, str]:
        return {
            "connector.class": "FileStreamSource",
            "file": str(self.input),
            "topic": self.name,
            "tasks.max": "1",
        }

    def sink_config(self) -> dict[str, str]:
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "file": str(self.output),
            "topics": self.name,
            "consumer.override.session.timeout.ms": "6000",
        }

    def await_running(self, worker: HeadgateWorker) -> None:
        for connector in (self.source, self.sink):
            until(
                f"{connector} runs",
                lambda connector=connector: states(worker, connector) == ("RUNNING", ["RUNNING"]),
            )

    def offset(self, worker: HeadgateWorker) -> Any:
        body: Any = worker.rest.get(f"/connectors/{self.source}/offsets").body
        return [each["offset"] for each in body["offsets"]]


@pytest.fixture
def story(
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> Story:
    return Story(headgate_worker, kafka_broker.address, kafka_name, tmp_path)


def test_a_pipeline_from_its_making_to_its_end(story: Story) -> None:
    first, second = story.workers
    story.write(1_000)
    made = first.rest.create(story.source, story.source_config())
    assert (made.status, made.body["type"]) == (201, "source")
    put = second.rest.put(f"/connectors/{story.sink}/config", story.sink_config())
    assert put.status == 201
    story.await_running(first)
    assert sorted(second.rest.get("/connectors").body) == sorted([story.source, story.sink])
    until("all lines", lambda: lines_of(story.output) == story.expected)
    for connector in (story.source, story.sink):
        shown = {connector: {"topics": [story.name]}}
        path = f"/connectors/{connector}/topics"
        for worker in story.workers:
            until("its topic", lambda worker=worker: worker.rest.get(path).body == shown)  # noqa: B023

    check_used_topics(story)
    check_logger_levels(story)
    check_metrics(story)

    # Paused it reads nothing, resumed it goes on.
    assert second.rest.put(f"/connectors/{story.source}/pause").status == 202
    until("paused", lambda: states(first, story.source) == ("PAUSED", ["PAUSED"]))
    story.write(10)
    time.sleep(1.5)
    assert len(lines_of(story.output)) == 1_000
    assert first.rest.put(f"/connectors/{story.source}/resume").status == 202
    until("all lines", lambda: lines_of(story.output) == story.expected)

    # Restarts, asked of either worker.
    for worker, path in ((first, "restart"), (second, "tasks/0/restart")):
        assert worker.rest.post(f"/connectors/{story.source}/{path}").status == 204
        story.await_running(first)
    flags = "restart?includeTasks=true&onlyFailed=false"
    assert second.rest.post(f"/connectors/{story.sink}/{flags}").status == 202
    story.await_running(first)
    story.write(10)
    until("all lines", lambda: lines_of(story.output) == story.expected)

    check_offsets(story)

    for connector in (story.source, story.sink):
        assert second.rest.delete(f"/connectors/{connector}").status == 204
        until("gone", lambda connector=connector: first.rest.status(connector).status == 404)
    assert first.rest.get("/connectors").body == []


def check_used_topics(story: Story) -> None:
    """A task's use of a topic is reported once, not for every record."""
    properties = story.workers[0].properties
    status, partitions = (properties[f"status.storage.{key}"] for key in ("topic", "partitions"))
    kept = read_committed(story.servers, status, int(partitions))
    used = [key for key, _ in kept if key.startswith(b"status-topic-")]
    assert sorted(used) == sorted(
        f"status-topic-{story.name}:connector-{connector}".encode()
        for connector in (story.source, story.sink)
    )


def check_logger_levels(story: Story) -> None:
    """A level that is set for the cluster is the other worker's, too."""
    first, second = story.workers
    logger = "/admin/loggers/headgate_runtime.tasks"
    assert first.rest.put(f"{logger}?scope=cluster", {"level": "WARN"}).status == 204
    until("its level", lambda: second.rest.get(logger).body.get("level") == "WARN")


def check_metrics(story: Story) -> None:
    """Prometheus gets what the processes of tasks measure."""
    shown: dict[tuple[str, str], float] = {}

    def scraped() -> bool:
        shown.clear()
        for worker in story.workers:
            with urllib.request.urlopen(f"{worker.url}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            for family in text_string_to_metric_families(text):
                for each in family.samples:
                    shown[each.name, each.labels.get("connector", "")] = each.value
        return shown.get(("headgate_task_lag_records", story.sink)) == 0

    until("no lag", scraped)
    least = sum(map(len, story.expected))
    for connector in (story.source, story.sink):
        assert shown["headgate_task_bytes_total", connector] == least
        assert shown["headgate_task_commit_seconds_count", connector] >= 1
        assert shown["headgate_task_commit_seconds_sum", connector] > 0
    assert ("headgate_task_lag_records", story.source) not in shown
    assert shown["headgate_worker_loop_seconds_total", ""] > 0


def check_offsets(story: Story) -> None:
    """Only a stopped connector's offsets are altered. Altered to the last line, the source reads
    that line once more."""
    first, second = story.workers
    end = story.input.stat().st_size
    assert story.offset(second) == [{"position": end}]
    place = {"filename": str(story.input)}
    last = {"partition": place, "offset": {"position": end - len("line 1019\n")}}
    path = f"/connectors/{story.source}/offsets"
    assert first.rest.patch(path, {"offsets": [last]}).status == 400
    assert first.rest.put(f"/connectors/{story.source}/stop").status == 204
    until("stopped", lambda: states(second, story.source) == ("STOPPED", []))
    altered = second.rest.patch(path, {"offsets": [last]})
    assert altered.status == 200, altered
    assert story.offset(first) == [last["offset"]]
    assert first.rest.put(f"/connectors/{story.source}/resume").status == 202
    until("the last line again", lambda: lines_of(story.output)[1_020:] == ["line 1019"])
    assert first.rest.put(f"/connectors/{story.source}/stop").status == 204
    assert second.rest.delete(path).status == 200
    assert story.offset(first) == []


def test_a_killed_workers_work_goes_on_elsewhere(story: Story) -> None:
    first, second = story.workers
    story.write(1_000)
    first.rest.create(story.source, story.source_config())
    first.rest.create(story.sink, story.sink_config())
    story.await_running(first)
    until("the first lines", lambda: len(lines_of(story.output)) >= 1_000)
    story.write(20_000)
    victim = first if owner(first, story.source) == name_of(first) else second
    survivor = second if victim is first else first
    process = victim._process
    assert process is not None and process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    story.write(1_000)
    for connector in (story.source, story.sink):
        until(
            f"{connector} has moved",
            lambda connector=connector: owner(survivor, connector) == name_of(survivor),
        )
    story.await_running(survivor)
    until("all lines", lambda: set(lines_of(story.output)) == set(story.expected))
    assert committed(story.servers, story.name) == story.expected


def test_a_clean_stop_hands_over_at_once(story: Story) -> None:
    first, second = story.workers
    story.write(100)
    first.rest.create(story.source, story.source_config())
    until("it runs", lambda: states(second, story.source) == ("RUNNING", ["RUNNING"]))
    until("offsets", lambda: story.offset(second) == [{"position": story.input.stat().st_size}])
    began = time.monotonic()
    first.stop()
    story.write(100)
    until("it goes on", lambda: states(second, story.source) == ("RUNNING", ["RUNNING"]))
    size = story.input.stat().st_size
    until("all lines", lambda: story.offset(second) == [{"position": size}])
    assert time.monotonic() - began < 30
    assert committed(story.servers, story.name) == story.expected


@pytest.mark.exhaustive
def test_brokers_that_go_and_come_back(
    headgate_worker: MakeWorker,  # noqa: F811
    own_broker: Callable[..., Broker],
    tmp_path: Path,
) -> None:
    broker = own_broker(own_controller=True)
    story = Story(headgate_worker, broker.address, "outage", tmp_path, count=1)
    (worker,) = story.workers
    story.write(100)
    worker.rest.create(story.source, story.source_config())
    size = story.input.stat().st_size
    until("offsets", lambda: story.offset(worker) == [{"position": size}])
    broker.kill()
    story.write(100)
    until("it says so", lambda: "the log is out of reach" in worker.tail())
    # Its work may be another's by now, so it runs none; users are answered all the same.
    until("no tasks", lambda: not worker.rest.get("/headgate/worker").body["tasks"])
    assert worker.rest.get("/connectors").body == [story.source]
    broker.start()
    size = story.input.stat().st_size
    until("it goes on", lambda: story.offset(worker) == [{"position": size}])
    assert committed(story.servers, story.name) == story.expected


@pytest.mark.exhaustive
@pytest.mark.parametrize("away", ["kill", "freeze"])
def test_a_worker_whose_brokers_are_away_stops_when_it_is_told_to(
    headgate_worker: MakeWorker,  # noqa: F811
    own_broker: Callable[..., Broker],
    tmp_path: Path,
    away: str,
) -> None:
    broker = own_broker()
    story = Story(headgate_worker, broker.address, "away", tmp_path, count=1)
    (worker,) = story.workers
    story.write(100)
    worker.rest.create(story.source, story.source_config())
    size = story.input.stat().st_size
    until("offsets", lambda: story.offset(worker) == [{"position": size}])
    story.write(100)
    getattr(broker, away)()
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 30
    if away == "freeze":
        broker.thaw()


@pytest.mark.exhaustive
def test_a_transaction_that_outlives_its_timeout_fails_its_task_alone(
    headgate_worker: MakeWorker,  # noqa: F811
    own_broker: Callable[..., Broker],
    tmp_path: Path,
) -> None:
    """The client cannot tell the timeout from fencing, after which the task would be started again
    for ever."""
    often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    broker = own_broker(settings=often)
    (tmp_path / "other").mkdir()
    slow = Story(headgate_worker, broker.address, "slow", tmp_path, count=1)
    (worker,) = slow.workers
    other = Story(headgate_worker, broker.address, "other", tmp_path / "other", count=0)
    limits = {
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "2500",
        "producer.override.transaction.timeout.ms": "1000",
    }
    slow.write(100)
    other.write(100)
    worker.rest.create(other.source, other.source_config())
    worker.rest.create(slow.source, {**slow.source_config(), **limits})
    until("it fails", lambda: states(worker, slow.source) == ("RUNNING", ["FAILED"]))
    failed_at = time.monotonic()
    body: Any = worker.rest.status(slow.source).body
    (task,) = body["tasks"]
    for part in (
        "longer than its transaction.timeout.ms of 1000, and the broker aborted it",
        "raise producer.override.transaction.timeout.ms",
    ):
        assert part in task["trace"]

    # It is left as it is, for longer than a fenced task would be; others go on.
    while time.monotonic() < failed_at + 2:
        other.write(1)
        until("the other goes on", lambda: committed(other.servers, "other") == other.expected)
    assert states(worker, slow.source) == ("RUNNING", ["FAILED"])
    for story in (slow, other):
        assert worker.log.read_text().count(f"task {story.source}-0 starts as run") == 1
    assert committed(slow.servers, "slow") == []

    limits["producer.override.transaction.timeout.ms"] = "30000"
    changed = {**slow.source_config(), **limits}
    assert worker.rest.put(f"/connectors/{slow.source}/config", changed).status == 200
    until("it is made good", lambda: committed(slow.servers, "slow") == slow.expected)
    assert states(worker, slow.source) == ("RUNNING", ["RUNNING"])
    slow.write(100)
    until("it goes on", lambda: committed(slow.servers, "slow") == slow.expected)
    assert committed(other.servers, "other") == other.expected


# -- what a user does wrong --


def refused(folder: Path, properties: Mapping[str, str]) -> tuple[int, str]:
    """Return the exit code of a worker that does not start, and its last words on standard
    error."""
    file = folder / "worker.properties"
    file.write_text(javaproperties.dumps(dict(properties), timestamp=False))
    done = headgate("worker", str(file))
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def properties(kafka_broker: Found, kafka_name: str) -> dict[str, str]:
    found = {
        "bootstrap.servers": kafka_broker.address,
        "group.id": kafka_name,
        **defaults(kafka_name, f"http://127.0.0.1:{free_ports(1)[0]}"),
        **SETTINGS,
    }
    del found["plugin.discovery"]
    return found


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ({"headgate.task.runer": "thread"}, 2, "headgate.task.runer: unknown key; did you mean"),
        ({"exactly.once.source.support": "on"}, 2, "'on' is none of disabled, preparing, enabled"),
        ({"listeners": "8083"}, 2, "doesn't have the right format (protocol://hostname:port)"),
        ({"security.protocol": "SASL_SSL"}, 2, "sasl.jaas.config: is missing"),
        (
            {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "1500"},
            1,
            "Gave up after 1.5 s at 127.0.0.1:1: 127.0.0.1:1/bootstrap: Connect to "
            "ipv4#127.0.0.1:1 failed: Connection refused",
        ),
        ({"config.storage.retention.ms": "soon"}, 1, "begin with config.storage."),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_refused_in_words(
    tmp_path: Path, properties: dict[str, str], change: dict[str, str], code: int, said: str
) -> None:
    found, error = refused(tmp_path, {**properties, **change})
    assert found == code, error
    assert said in error


@pytest.mark.exhaustive
def test_too_few_brokers_for_the_replication_factor(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    """The key is named at once and at the end. Topics that exist already cause no warning."""
    change = {"status.storage.replication.factor": "3", "default.api.timeout.ms": "1500"}
    code, error = refused(tmp_path, {**properties, **change})
    assert code == 1
    key = "set status.storage.replication.factor (3 by default) to no more than there are brokers"
    (warning,) = [line for line in error.splitlines() if " WARNING " in line]
    assert f"; {key}; trying for" in warning
    (last,) = error.splitlines()[-1:]
    assert "(status.storage.topic). Gave up after 1.5 s" in last
    assert f"; {key} (" in last
    made = f"created topic '{properties['offset.storage.topic']}' (offset.storage.topic)"
    assert f" INFO headgate_kafka.admin.topics: {made}\n" in error


@pytest.mark.parametrize(
    ("kind", "partitions", "policy", "said"),
    [
        ("config", 2, "compact", "required to have a single partition"),
        ("config", 1, "delete", "required to have 'cleanup.policy=compact'"),
        ("config", 1, "compact,delete", "has 'cleanup.policy=compact,delete'"),
        ("offset", 2, "delete", "guarantee consistency and durability of source connector offsets"),
        ("status", 2, "delete", "consistency and durability of connector and task statuses"),
    ],
)
def test_an_internal_topic_that_would_lose_what_is_written_there(
    tmp_path: Path,
    properties: dict[str, str],
    kind: str,
    partitions: int,
    policy: str,
    said: str,
) -> None:
    topic, settings = properties[f"{kind}.storage.topic"], {"cleanup.policy": policy}
    admin = AdminClient({"bootstrap.servers": properties["bootstrap.servers"]})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result()
    code, error = refused(tmp_path, properties)
    assert code == 1
    assert f"Topic '{topic}' supplied via the '{kind}.storage.topic' property" in error
    assert said in error


@pytest.mark.exhaustive
def test_an_address_in_use(tmp_path: Path, properties: dict[str, str], story: Story) -> None:
    properties["listeners"] = story.workers[0].url
    code, error = refused(tmp_path, properties)
    assert code == 1
    assert f"properties: listeners: cannot listen on {story.workers[0].url}" in error


@pytest.mark.exhaustive
def test_one_address_for_listeners_and_admin_listeners(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    properties["admin.listeners"] = properties["listeners"]
    code, error = refused(tmp_path, properties)
    assert code == 1
    assert f"properties: admin.listeners: cannot listen on {properties['listeners']}: " in error


@pytest.mark.exhaustive
def test_a_topic_that_can_never_be_made_fails_the_task(
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """Once the error was taken for an unreachable log, and the task was restarted for ever."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.address})
    admin.create_topics([NewTopic(f"{kafka_name}.x", 1, 1)])[f"{kafka_name}.x"].result()
    worker = headgate_worker(kafka_broker.address, kafka_name, SETTINGS)
    (tmp_path / "in.txt").write_text("a line\n")
    body = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": f"{kafka_name}_x",  # to the broker's metrics both have one name
    }
    assert worker.rest.put(f"/connectors/{kafka_name}/config", body).status == 201
    until("the task fails", lambda: states(worker, kafka_name) == ("RUNNING", ["FAILED"]))
    status: Any = worker.rest.get(f"/connectors/{kafka_name}/status").body
    assert f"collides with existing topic: {kafka_name}.x" in status["tasks"][0]["trace"]
