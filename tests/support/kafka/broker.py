"""Kafka for tests: one broker for the whole session, and own brokers for tests that kill theirs.

The session's broker is the one whose address is in HEADGATE_KAFKA. Without it, one is started in
Docker if Docker answers, and otherwise from the pinned jars, on free ports in a scratch folder. A
started broker ends with the session, even if the session is killed. Own brokers are always from the
jars, since tests need processes.
"""

import contextlib
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from local_kafka.broker import SINGLE_NODE, Broker, version
from local_kafka.jvm import free_ports

ADDRESS = "HEADGATE_KAFKA"
DOCKER_S = 120.0
_CONTROLLER_PORT = 9093
HOST_FILE = "/tmp/host"
"""In the container."""
_START_WHEN_TOLD = f"""
until [ -f {HOST_FILE} ]; do sleep 0.1; done
export KAFKA_ADVERTISED_LISTENERS="${{KAFKA_ADVERTISED_LISTENERS/\\$HOST/$(cat {HOST_FILE})}}"
exec /etc/kafka/docker/run
"""
"""What the container does instead of running the image's script at once."""


@dataclass(frozen=True, slots=True)
class Found:
    """A broker whose clients need no login and have all rights. Tests share it, so each uses names
    of its own."""

    address: str
    """For ``bootstrap.servers``."""
    origin: str
    """Where it was found: ``environment``, ``docker`` or ``jars``."""


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """The session's broker, found or started when the first test asks for it."""
    with find_broker(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture
def kafka_name() -> str:
    """A name that no other test has. It can be the name of a topic, group or transactional id, or
    the beginning of one."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """``make(**options)`` starts a `local_kafka.broker.Broker`, which ends with the test."""
    made: list[Broker] = []

    def make(**options: object) -> Broker:
        broker = Broker(tmp_path / f"broker-{len(made)}", **options)  # type: ignore[arg-type]
        made.append(broker)
        broker.start()
        return broker

    yield make
    for broker in made:
        broker.close()
        _forget_data(broker)


@contextlib.contextmanager
def find_broker(folder: Path) -> Iterator[Found]:
    """Find the broker of `kafka_broker`, or start one. `folder` is for a broker that has to be
    started."""
    address = os.environ.get(ADDRESS)
    with contextlib.ExitStack() as stack:
        if address:
            await_broker(address)
            yield Found(address, "environment")
            return
        if docker_answers():
            try:
                address = stack.enter_context(in_docker())
            except Exception as error:  # whatever Docker or the registry of images says
                warnings.warn(f"no broker in Docker, so one from jars: {error}", stacklevel=2)
            else:
                yield Found(address, "docker")
                return
        broker = Broker(folder)
        stack.callback(_forget_data, broker)
        stack.callback(broker.kill)
        broker.start()
        yield Found(broker.address, "jars")


def await_broker(address: str, timeout_s: float = 30.0) -> None:
    """Return when the broker answers. Raises `RuntimeError`."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # Not its own lines for each try: what counts is the last error.
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    try:
        client.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise RuntimeError(
            f"no Kafka broker answers at {address} within {timeout_s:g} s: {error}"
        ) from error


def docker_answers() -> bool:
    import docker

    try:
        client = docker.from_env(timeout=3)
    except docker.errors.DockerException:
        return False
    with contextlib.closing(client):
        try:
            return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False


@contextlib.contextmanager
def in_docker() -> Iterator[str]:
    """Run a broker in a container, and yield its address. testcontainers removes the container in
    any case."""
    from testcontainers.core.container import DockerContainer

    port = free_ports(1)[0]
    container = DockerContainer(f"apache/kafka:{version()}").with_bind_ports(port, port)
    for key, value in container_settings("$HOST", port).items():
        container = container.with_env(key, value)
    with container.with_command(["bash", "-c", _START_WHEN_TOLD]):
        # Where it can be reached is known once it is there: the gateway's address, where these
        # tests are in a container themselves, or its own.
        host = container.get_container_host_ip()
        write = f"echo {host} > {HOST_FILE}.new && mv {HOST_FILE}.new {HOST_FILE}"
        if (done := container.exec(["bash", "-c", write])).exit_code != 0:
            raise RuntimeError(f"the container could not be told its address: {done.output!r}")
        deadline = time.monotonic() + DOCKER_S
        while "Kafka Server started" not in (told := b"".join(container.get_logs()).decode()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not ready after {DOCKER_S:g} s; its last words: {told[-500:]}")
            time.sleep(0.2)
        await_broker(f"{host}:{port}")
        yield f"{host}:{port}"


def container_settings(host: str, port: int) -> dict[str, str]:
    """Return the environment variables from which Kafka's image makes the broker's settings."""
    settings = {
        **SINGLE_NODE,
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@localhost:{_CONTROLLER_PORT}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAIN",
        "listeners": f"PLAIN://:{port},CONTROLLER://:{_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAIN://{host}:{port}",
        "listener.security.protocol.map": "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    return {f"KAFKA_{key.replace('.', '_').upper()}": value for key, value in settings.items()}


def _forget_data(broker: Broker) -> None:
    """Remove the broker's data. Its log stays, to show why a test failed."""
    shutil.rmtree(broker.folder / "data", ignore_errors=True)
