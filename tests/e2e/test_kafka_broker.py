"""The broker on which other tests rely is found or started, can be killed, and is gone in the
end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import javaproperties
import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from docker.models.containers import ExecResult
from support.depth import first
from support.kafka import broker as support
from support.kafka.broker import Found

from local_kafka.broker import SINGLE_NODE, Broker
from local_kafka.jars import java
from local_kafka.jvm import JvmError, free_ports, listens, run

pytestmark = pytest.mark.slow
ANSWER_S = 30.0


def admin(address: str, **settings: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0, **settings})


def make_topic(address: str, topic: str) -> None:
    client = admin(address)  # held: its end would end what it was asked
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(ANSWER_S)


def write(address: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(ANSWER_S) == 0


def read(address: str, topic: str, count: int) -> list[bytes | None]:
    """The first `count` committed records of partition 0."""
    settings = {"bootstrap.servers": address, "group.id": "none", "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + ANSWER_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found.append(message)
    consumer.close()
    return [message.value() for message in found]


@pytest.mark.exhaustive
def test_a_transaction_goes_through_the_broker_of_the_session(
    kafka_broker: Found, kafka_name: str
) -> None:
    make_topic(kafka_broker.address, kafka_name)
    settings = {"bootstrap.servers": kafka_broker.address, "transactional.id": kafka_name}
    producer = Producer(settings)
    producer.init_transactions(ANSWER_S)
    for value, end in ((b"lost", producer.abort_transaction), (b"a", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(kafka_name, value)
        producer.flush(ANSWER_S)
        end(ANSWER_S)
    assert read(kafka_broker.address, kafka_name, 1) == [b"a"]


def test_the_address_in_the_environment_comes_first(
    kafka_broker: Found, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(support.ADDRESS, kafka_broker.address)
    monkeypatch.setattr(support, "docker_answers", lambda: pytest.fail("Docker was asked"))
    with support.find_broker(tmp_path) as found:
        assert found == Found(kafka_broker.address, "environment")
    assert not any(tmp_path.iterdir())


def test_a_wrong_address_in_the_environment_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"no Kafka broker answers at 127\.0\.0\.1:1 within"):
        support.await_broker("127.0.0.1:1", timeout_s=1)


@pytest.mark.exhaustive
def test_docker_that_cannot_start_a_broker_is_said_and_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(support.ADDRESS, raising=False)
    monkeypatch.setattr(support, "docker_answers", lambda: True)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with (
        pytest.warns(UserWarning, match="no broker in Docker, so one from jars"),
        support.find_broker(tmp_path) as found,
    ):
        assert found.origin == "jars"
        support.await_broker(found.address)
    assert not listens(int(found.address.split(":")[1]))
    assert not (tmp_path / "data").exists()


@pytest.mark.exhaustive
def test_the_image_understands_its_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The class of Kafka's jars that the image runs before its broker reads the environment."""
    folders = [tmp_path / name for name in ("default", "mounted", "final")]
    for folder in folders:
        folder.mkdir()
    for name in ("server.properties", "log4j2.yaml", "tools-log4j2.yaml"):
        (folders[0] / name).touch()
    environment = {**support.container_settings("127.0.0.1", 20_000), "CLUSTER_ID": "x" * 22}
    for key, value in {**environment, "KAFKA_LOG_DIRS": str(tmp_path / "data")}.items():
        monkeypatch.setenv(key, value)
    command = [java(), "kafka.docker.KafkaDockerWrapper", "setup"]
    for kind, folder in zip(("default", "mounted", "final"), folders, strict=True):
        command += [f"--{kind}-configs-dir", str(folder)]
    run(command)
    made = javaproperties.loads((folders[2] / "server.properties").read_text())
    assert made.items() >= SINGLE_NODE.items()
    assert made["advertised.listeners"] == "PLAIN://127.0.0.1:20000"
    assert (tmp_path / "data" / "meta.properties").exists()


class LocalContainer:
    """A stand-in for a container of testcontainers, in a folder of this machine. Its address is
    known only after its start, and the image's script does not end."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.run.write_text(
            'echo "$KAFKA_ADVERTISED_LISTENERS; Kafka Server started"; exec sleep 60'
        )
        self._folder = folder
        self._environment: dict[str, str] = {}
        self._command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, _image: str) -> Self:
        return self

    def with_bind_ports(self, container: int, host: int) -> Self:
        assert container == host
        return self

    def with_env(self, key: str, value: str) -> Self:
        self._environment[key] = value
        return self

    def with_command(self, command: list[str]) -> Self:
        self._command = [self._here(part) for part in command]
        return self

    def __enter__(self) -> Self:
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, env={**os.environ, **self._environment}, stdout=log
            )
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def get_container_host_ip(self) -> str:
        if self._process is None:
            raise RuntimeError("Container is not started")
        return "172.17.0.1"

    def exec(self, command: list[str]) -> ExecResult:
        done = subprocess.run([self._here(part) for part in command], capture_output=True)
        return ExecResult(done.returncode, done.stdout + done.stderr)

    def get_logs(self) -> tuple[bytes, bytes]:
        return (self._folder / "log").read_bytes(), b""

    def _here(self, text: str) -> str:
        here = text.replace(support.HOST_FILE, f"{self._folder}/host")
        return here.replace("/etc/kafka/docker/run", f"bash {self.run}")


def test_a_broker_in_docker_is_reached_where_its_container_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    container = LocalContainer(tmp_path)
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", container)
    awaited: list[str] = []
    monkeypatch.setattr(support, "await_broker", awaited.append)
    with support.in_docker() as address:
        assert awaited == [address]
        host, _, port = address.partition(":")
        assert host == "172.17.0.1"
        told, _ = container.get_logs()
        assert told.decode() == f"PLAIN://{host}:{port}; Kafka Server started\n"


def test_docker_comes_before_the_jars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "container").mkdir()
    container = LocalContainer(tmp_path / "container")
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", container)
    monkeypatch.delenv(support.ADDRESS, raising=False)
    monkeypatch.setattr(support, "docker_answers", lambda: True)
    monkeypatch.setattr(support, "await_broker", lambda _address: None)
    monkeypatch.setattr(support, "Broker", lambda _folder: pytest.fail("jars were asked"))
    with support.find_broker(tmp_path / "jars") as found:
        told, _ = container.get_logs()
        address = told.decode().removeprefix("PLAIN://").partition(";")[0]
        assert found == Found(address, "docker")
        assert container.runs
    assert not container.runs


@pytest.mark.exhaustive
def test_a_broker_that_was_killed_goes_on_with_its_data(own_broker: Callable[..., Broker]) -> None:
    broker = own_broker()
    make_topic(broker.address, "t")
    write(broker.address, "t", b"before")
    address, pid = broker.address, broker.jvm.pid
    broker.kill()
    assert not Path(f"/proc/{pid}").exists()
    broker.start()
    assert broker.address == address
    write(address, "t", b"after")
    assert read(address, "t", 2) == [b"before", b"after"]
    broker.stop()
    assert "shut down completed" in broker.jvm.log_file.read_text()
    broker.start()
    assert read(address, "t", 2) == [b"before", b"after"]


@pytest.mark.exhaustive
def test_a_frozen_broker_answers_when_it_is_thawed(own_broker: Callable[..., Broker]) -> None:
    broker = own_broker()
    broker.freeze()
    with pytest.raises(KafkaException):
        admin(broker.address).list_topics(timeout=1)
    broker.thaw()
    assert admin(broker.address).list_topics(timeout=ANSWER_S).brokers


@pytest.mark.exhaustive
def test_users_may_do_what_an_acl_allows(own_broker: Callable[..., Broker]) -> None:
    broker = own_broker(users={"alice": "in wonderland", "bob": "pw"}, tls=True)
    make_topic(broker.address, "t")
    logins = [
        login(address, protocol, mechanism, broker)
        for address, protocol in (
            (broker.sasl_address, "SASL_PLAINTEXT"),
            (broker.tls_address, "SASL_SSL"),
        )
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    for alice in logins:
        assert "t" not in AdminClient(alice).list_topics(timeout=ANSWER_S).topics
        with pytest.raises(KafkaException):
            first_offset(AdminClient(alice), "t")
    allow(broker.address, "alice", AclOperation.DESCRIBE, "t")
    for alice in logins:
        assert first_offset(AdminClient(alice), "t") == 0
        with pytest.raises(KafkaException):
            first_offset(AdminClient({**alice, "sasl.username": "bob", "sasl.password": "pw"}), "t")
    wrong = AdminClient({**logins[0], "sasl.password": "wrong"})
    with pytest.raises(KafkaException):
        wrong.list_topics(timeout=2)


def login(
    address: str, protocol: str, mechanism: str, broker: Broker
) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": address,
        "security.protocol": protocol,
        "ssl.ca.location": str(broker.ca_file),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "in wonderland",
        "log_level": 0,
    }


def first_offset(client: AdminClient, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    found = client.list_offsets(
        {partition: OffsetSpec.earliest()},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=ANSWER_S,
    )
    return int(found[partition].result(ANSWER_S).offset)


def allow(address: str, user: str, operation: AclOperation, topic: str) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    client = admin(address)
    client.create_acls([binding])[binding].result(ANSWER_S)


def test_a_port_that_is_taken_is_named(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    taken = int(own_broker().address.split(":")[1])
    with pytest.raises(JvmError, match=rf"port {taken} of 127\.0\.0\.1 is taken"):
        Broker(tmp_path / "second", port=taken).start()


def test_a_start_that_fails_shows_the_log_and_leaves_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path, settings={"authorizer.class.name": "no.such.Class"})
    with pytest.raises(JvmError, match=r"ended with code 1 while it started; the end of its log"):
        broker.start()
    assert not broker.jvm.running


class Person:
    """`make kafka`, as it is started on a terminal."""

    def __init__(self, folder: Path) -> None:
        self.port = free_ports(1)[0]
        self.command = [sys.executable, "-m", "local_kafka", f"--port={self.port}"]
        self.command += ["--folder", str(folder)]
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)

    def await_line(self, part: str) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if part in line:
                return line
        raise AssertionError(f"it ended and did not say {part!r}")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("number", first(1, [signal.SIGINT, signal.SIGKILL]))
def test_make_kafka_from_start_to_end(tmp_path: Path, number: int) -> None:
    person = Person(tmp_path / "data")
    try:
        assert f"ready on 127.0.0.1:{person.port}" in person.await_line("ready on")
        again = subprocess.run(person.command, capture_output=True, text=True, check=False)
        assert again.returncode == 0
        assert f"runs already on 127.0.0.1:{person.port}" in again.stdout
        settings = (tmp_path / "data" / "connect-distributed.properties").read_text()
        assert f"bootstrap.servers=127.0.0.1\\:{person.port}\n" in settings
        assert "headgate.task.runner=process\n" in settings
        person.await_line("Ctrl-C stops it")
        os.kill(person.process.pid, number)
        said = person.process.communicate(timeout=30)[0]
    finally:
        person.end()
    if number == signal.SIGINT:
        assert person.process.returncode == 0 and "stopped; the data is in" in said
        log = (tmp_path / "data" / "broker.log").read_text()
        assert "shut down completed" in log
    deadline = time.monotonic() + 8
    while listens(person.port) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not listens(person.port)
