"""A real Java worker answers our calls, made as a Headgate worker in its group makes them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.kafka.broker import Found
from support.rest.world import LOCAL, Keys, service, wait_until

from headgate.herder import messages as m
from headgate.ids import TargetState, TaskId
from headgate.topics.config_events import SessionKeyChanged
from headgate.topics.config_records import decode
from headgate_rest import RestService
from headgate_runtime.remote.over_rest import RestRemote
from headgate_runtime.remote.remote import RemoteError
from local_kafka.java_connect import JavaWorker

pytestmark = pytest.mark.slow


class Asking:
    """A worker of ours and the Java worker that it asks."""

    def __init__(self, own: RestService, java: JavaWorker, keys: Keys) -> None:
        self._own = own
        self.java = java
        self.keys = keys

    def __call__(self, call: m.Call, hops: int = 1) -> m.Result:
        """Asked again while Java is busy with a rebalance, as a herder does."""
        until = time.monotonic() + 60
        while True:
            result = self._own.call(f"{self.java.url}/", call, hops, 100_000)
            if not (isinstance(result, m.Failure) and result.kind is m.ErrorKind.NOT_READY):
                return result
            assert time.monotonic() < until, result
            time.sleep(0.05)

    def value(self, call: m.Call) -> object:
        result = self(call)
        assert isinstance(result, m.Success), result
        return result.value

    def await_state(self, name: str, state: str) -> None:
        """Wait until the connector and all its tasks have this state."""

        def there() -> bool:
            result = self(m.DescribeStatus(name))
            if not isinstance(result, m.Success):
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


@pytest.mark.exhaustive
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
    assert asking.value(m.CreateConnector(name, config)) == info
    already = asking(m.CreateConnector(name, config))
    assert already == m.Failure(m.ErrorKind.ALREADY_EXISTS, f"Connector {name} already exists")
    assert asking.value(m.ListConnectors()) == [name]
    asking.await_state(name, "RUNNING")
    wait_until(lambda: asking.value(m.DescribeTasks(name)) != [], 60)

    put = asking.value(m.PutConnectorConfig(name, {**config, "batch.size": "7"}))
    assert isinstance(put, dict)
    assert (put["created"], put["config"]["batch.size"]) == (False, "7")
    patched = asking.value(m.PatchConnectorConfig(name, {"batch.size": None}))
    assert isinstance(patched, dict)
    assert patched["config"] == config
    described = asking.value(m.DescribeConnector(name))
    assert isinstance(described, dict)
    assert described["config"] == config

    assert asking.value(m.SetTargetState(name, TargetState.PAUSED)) is None
    asking.await_state(name, "PAUSED")
    assert asking.value(m.SetTargetState(name, TargetState.STARTED)) is None
    asking.await_state(name, "RUNNING")
    assert asking.value(m.RestartConnector(name)) is None
    wait_until(lambda: asking.value(m.DescribeTasks(name)) != [], 60)
    assert asking.value(m.RestartTask(task)) is None
    planned = asking.value(m.RestartConnector(name, include_tasks=True))
    assert isinstance(planned, dict)
    assert planned["connector"]["state"] == "RESTARTING"

    refused = asking(m.ResetOffsets(name))
    assert isinstance(refused, m.Failure)
    assert refused.kind is m.ErrorKind.BAD_REQUEST
    assert asking.value(m.SetTargetState(name, TargetState.STOPPED)) is None
    asking.await_state(name, "STOPPED")
    line = {"partition": {"filename": str(file)}, "offset": {"position": 3}}
    asking.value(m.AlterOffsets(name, ((line["partition"], line["offset"]),)))
    assert asking.value(m.ReadOffsets(name)) == {"offsets": [line]}
    asking.value(m.ResetOffsets(name))
    assert asking.value(m.ReadOffsets(name)) == {"offsets": []}
    assert asking.value(m.ResetTopics(name)) is None
    assert asking.value(m.SetLoggerLevel("org.apache.kafka.connect", "INFO")) is None
    assert asking.value(m.DeleteConnector(name)) is None
    gone = asking(m.DescribeConnector(name))
    assert gone == m.Failure(m.ErrorKind.NOT_FOUND, f"Connector {name} not found")


@pytest.mark.exhaustive
def test_the_plugins_of_a_java_worker_are_shown(asking: Asking) -> None:
    """``headgate plugins --url``."""
    remote = RestRemote(asking.java.url)
    source = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    listed = {each["class"]: each["type"] for each in remote.plugins()}
    assert listed[source] == "source"
    assert listed["org.apache.kafka.connect.transforms.Cast$Value"] == "transformation"
    assert {"file", "topic"} <= {each["name"] for each in remote.plugin(source)}
    assert "spec" in {
        each["name"] for each in remote.plugin("org.apache.kafka.connect.transforms.Cast$Value")
    }
    with pytest.raises(RemoteError, match=f"headgate plugins --url {asking.java.url} lists"):
        remote.plugin("NoSuch")
    remote.close()


def test_what_workers_tell_each_other_is_believed_by_its_signature(asking: Asking) -> None:
    config = {
        "connector.class": "FileStreamSource",
        "file": "/nowhere",
        "topic": "t",
        "tasks.max": "1",
    }
    asking.value(m.CreateConnector("c", config))
    wait_until(lambda: asking.value(m.DescribeTasks("c")) != [], 60)
    task = {"file": "/elsewhere", "topic": "t", "batch.size": "1"}
    digest = "0" * 64  # a header that Java does not know
    assert asking(m.PutTaskConfigs("c", ({**task, "a": "é"},), digest)) == m.Success()
    written = asking.value(m.DescribeTasks("c"))
    assert isinstance(written, list)
    assert written[0]["config"] == {**task, "a": "é"}
    assert asking(m.FenceConnector("c")) == m.Success()
    unknown = asking(m.FenceConnector("none"))
    assert unknown == m.Failure(m.ErrorKind.NOT_FOUND, "Connector none not found")

    key = asking.keys.key
    asking.keys.key = SessionKeyChanged(0, b"wrong", "HmacSHA256", 1)

    def refused() -> m.Result:
        return asking._own.call(asking.java.url, m.FenceConnector("c"), 1, 10_000)

    invalid = "Internal request contained invalid signature."
    assert refused() == m.Failure(m.ErrorKind.NOT_READY, invalid)
    asking.keys.key, asking.keys.sessioned = key, False
    # A worker signs once it knows of the newest round, so the call is made again.
    missing = "Internal request missing required signature"
    assert refused() == m.Failure(m.ErrorKind.NOT_READY, missing)


@pytest.mark.exhaustive
def test_a_java_worker_that_is_not_there_or_not_ready_was_asked_nothing(asking: Asking) -> None:
    asking.java.stop()
    result = asking._own.call(f"{asking.java.url}/", m.DeleteConnector("c"), 1, 5_000)
    assert isinstance(result, m.Failure)
    assert result.kind is m.ErrorKind.UNREACHABLE
    # While it starts Jetty has a page of HTML, 404, for all paths: no connector is missing.
    asking.java.launch()
    seen: set[str] = set()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        result = asking._own.call(f"{asking.java.url}/", m.DeleteConnector("c"), 1, 50_000)
        assert isinstance(result, m.Failure)
        seen.add(result.message.partition(":")[0])
        if result.kind not in (m.ErrorKind.NOT_READY, m.ErrorKind.UNREACHABLE):
            break
        time.sleep(0.02)
    assert result == m.Failure(m.ErrorKind.NOT_FOUND, "Connector c not found")
    assert "the worker has not completed its startup" in seen
