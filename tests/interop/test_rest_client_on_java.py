"""Our calls on a real Java worker, as a worker of ours in its group would make them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.kafka.broker import Found
from support.rest.world import LOCAL, Keys, service, wait_until

from headgate import wire
from headgate.herder.messages import (
    AlterOffsets,
    Call,
    CreateConnector,
    DeleteConnector,
    DescribeConnector,
    DescribeStatus,
    DescribeTasks,
    ErrorKind,
    Failure,
    FenceConnector,
    ListConnectors,
    PatchConnectorConfig,
    PutConnectorConfig,
    PutTaskConfigs,
    ReadOffsets,
    ResetOffsets,
    ResetTopics,
    RestartConnector,
    RestartTask,
    Result,
    SetLoggerLevel,
    SetTargetState,
    Success,
)
from headgate.ids import TargetState, TaskId
from headgate.topics.config_events import SessionKeyChanged
from headgate.topics.config_records import decode
from headgate_rest import RestService
from local_kafka.java_connect import JavaWorker

pytestmark = pytest.mark.slow


class Asking:
    """A worker of ours and the Java worker that it asks."""

    def __init__(self, own: RestService, java: JavaWorker, keys: Keys) -> None:
        self._own = own
        self.java = java
        self.keys = keys

    def __call__(self, call: Call, hops: int = 1) -> Result:
        """Asked again while Java is busy with a rebalance, as a herder does."""
        until = time.monotonic() + 60
        while True:
            said = self._own.call(f"{self.java.url}/", wire.dumps(call), hops, 100_000)
            result: Result = wire.loads(Success | Failure, said)
            if not (isinstance(result, Failure) and result.kind is ErrorKind.NOT_READY):
                return result
            assert time.monotonic() < until, result
            time.sleep(0.05)

    def value(self, call: Call) -> object:
        result = self(call)
        assert isinstance(result, Success), result
        return result.value

    def await_state(self, name: str, state: str) -> None:
        """Of the connector and of all its tasks."""

        def there() -> bool:
            result = self(DescribeStatus(name))
            if not isinstance(result, Success):
                return False
            assert isinstance(result.value, dict)
            parts = [result.value["connector"], *result.value["tasks"]]
            return {part["state"] for part in parts} == {state}

        wait_until(there, 60)


@pytest.fixture
def asking(
    kafka_broker: Found, kafka_name: str, java_worker: Callable[..., JavaWorker]
) -> Iterator[Asking]:
    settings = {
        "scheduled.rebalance.max.delay.ms": "0",
        "exactly.once.source.support": "enabled",
    }
    java = java_worker(kafka_broker.address, kafka_name, settings)
    keys = Keys(session_key(kafka_broker.address, f"{kafka_name}-configs"), sessioned=True)
    own = service(LOCAL, keys)
    yield Asking(own, java, keys)
    own.close()


def session_key(address: str, topic: str) -> SessionKeyChanged:
    """The newest that the worker has written."""
    client = {"bootstrap.servers": address, "group.id": "none", "log_level": 0}
    consumer = Consumer({**client, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    until = time.monotonic() + 30
    while time.monotonic() < until:
        record = consumer.poll(0.1)
        if record is None or record.error():
            continue
        event = decode(record.offset() or 0, record.key(), record.value())
        if isinstance(event, SessionKeyChanged):
            consumer.close()
            return event
    raise AssertionError(f"no session key in {topic}")


def test_a_connectors_life(asking: Asking, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(file),
        "topic": f"{tmp_path.name}-t",
        "tasks.max": "1",
        "name": "é b-1",
    }
    name, task = "é b-1", TaskId("é b-1", 0)
    info = {"name": name, "config": config, "tasks": [], "type": "source", "created": True}
    assert asking.value(CreateConnector(name, config)) == info
    already = asking(CreateConnector(name, config))
    assert already == Failure(ErrorKind.ALREADY_EXISTS, f"Connector {name} already exists")
    assert asking.value(ListConnectors()) == [name]
    asking.await_state(name, "RUNNING")
    wait_until(lambda: asking.value(DescribeTasks(name)) != [], 60)

    put = asking.value(PutConnectorConfig(name, {**config, "batch.size": "7"}))
    assert isinstance(put, dict)
    assert (put["created"], put["config"]["batch.size"]) == (False, "7")
    patched = asking.value(PatchConnectorConfig(name, {"batch.size": None}))
    assert isinstance(patched, dict)
    assert patched["config"] == config
    described = asking.value(DescribeConnector(name))
    assert isinstance(described, dict)
    assert described["config"] == config

    assert asking.value(SetTargetState(name, TargetState.PAUSED)) is None
    asking.await_state(name, "PAUSED")
    assert asking.value(SetTargetState(name, TargetState.STARTED)) is None
    asking.await_state(name, "RUNNING")
    assert asking.value(RestartConnector(name)) is None
    wait_until(lambda: asking.value(DescribeTasks(name)) != [], 60)
    assert asking.value(RestartTask(task)) is None
    planned = asking.value(RestartConnector(name, include_tasks=True))
    assert isinstance(planned, dict)
    assert planned["connector"]["state"] == "RESTARTING"

    refused = asking(ResetOffsets(name))
    assert isinstance(refused, Failure)
    assert refused.kind is ErrorKind.BAD_REQUEST
    assert asking.value(SetTargetState(name, TargetState.STOPPED)) is None
    asking.await_state(name, "STOPPED")
    line = {"partition": {"filename": str(file)}, "offset": {"position": 3}}
    asking.value(AlterOffsets(name, ((line["partition"], line["offset"]),)))
    assert asking.value(ReadOffsets(name)) == {"offsets": [line]}
    asking.value(ResetOffsets(name))
    assert asking.value(ReadOffsets(name)) == {"offsets": []}
    assert asking.value(ResetTopics(name)) is None
    assert asking.value(SetLoggerLevel("org.apache.kafka.connect", "INFO")) is None
    assert asking.value(DeleteConnector(name)) is None
    gone = asking(DescribeConnector(name))
    assert gone == Failure(ErrorKind.NOT_FOUND, f"Connector {name} not found")


def test_what_workers_tell_each_other_is_believed_by_its_signature(asking: Asking) -> None:
    config = {
        "connector.class": "FileStreamSource",
        "file": "/nowhere",
        "topic": "t",
        "tasks.max": "1",
    }
    asking.value(CreateConnector("c", config))
    wait_until(lambda: asking.value(DescribeTasks("c")) != [], 60)
    task = {"file": "/elsewhere", "topic": "t", "batch.size": "1"}
    digest = "0" * 64  # a header that Java does not know
    assert asking(PutTaskConfigs("c", ({**task, "a": "é"},), digest)) == Success()
    written = asking.value(DescribeTasks("c"))
    assert isinstance(written, list)
    assert written[0]["config"] == {**task, "a": "é"}
    assert asking(FenceConnector("c")) == Success()
    unknown = asking(FenceConnector("none"))
    assert unknown == Failure(ErrorKind.NOT_FOUND, "Connector none not found")

    key = asking.keys.key
    asking.keys.key = SessionKeyChanged(0, b"wrong", "HmacSHA256", 1)

    def refused() -> Result:
        own = asking._own.call(asking.java.url, wire.dumps(FenceConnector("c")), 1, 10_000)
        return wire.loads(Success | Failure, own)

    invalid = "Internal request contained invalid signature."
    assert refused() == Failure(ErrorKind.NOT_READY, invalid)
    asking.keys.key, asking.keys.sessioned = key, False
    # Who knows of the newest round signs: asked again it is.
    missing = "Internal request missing required signature"
    assert refused() == Failure(ErrorKind.NOT_READY, missing)


def test_a_java_worker_that_is_not_there_or_not_ready_was_asked_nothing(asking: Asking) -> None:
    asking.java.stop()
    said = asking._own.call(f"{asking.java.url}/", wire.dumps(DeleteConnector("c")), 1, 5_000)
    result = wire.loads(Success | Failure, said)
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.NOT_READY
    # While it starts Jetty has a page of HTML, 404, for all paths: no connector is missing.
    asking.java.launch()
    seen: set[str] = set()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        result = wire.loads(
            Success | Failure,
            asking._own.call(f"{asking.java.url}/", wire.dumps(DeleteConnector("c")), 1, 50_000),
        )
        assert isinstance(result, Failure)
        seen.add(result.message.partition(":")[0])
        if result.kind is not ErrorKind.NOT_READY:
            break
        time.sleep(0.02)
    assert result == Failure(ErrorKind.NOT_FOUND, "Connector c not found")
    assert "the worker has not completed its startup" in seen
