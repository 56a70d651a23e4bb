"""Workers use brokers with TLS and logins, with the key stores and settings of a Java cluster. A
worker that may not log in says so."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import javaproperties
import pytest
from confluent_kafka.admin import AdminClient
from support.commands.worker import HeadgateWorker, ended, headgate, headgate_worker  # noqa: F401
from support.depth import first
from support.kafka.cluster import create_topic, read_committed

from headgate.membership.messages import JoinGroup
from headgate.ports import TransportError
from headgate_kafka.clients.settings import worker_kafka_python
from headgate_kafka.group.port import GroupRefusedError, KafkaGroup
from local_kafka.broker import Broker
from local_kafka.certificates import Authority, as_pem
from local_kafka.jvm import free_ports

pytestmark = pytest.mark.slow
USER, PASSWORD = "connect", "a secret of connect"
KEY_PASSWORD = "a secret of the key"
STRING = "org.apache.kafka.connect.storage.StringConverter"
MODULES = "org.apache.kafka.common.security"
LINES = 300
SECONDS = 60
MakeWorker = Callable[..., HeadgateWorker]


@dataclass(frozen=True)
class Secured:
    """A broker of this file's tests: its certificate is for 127.0.0.1 alone."""

    broker: Broker
    folder: Path
    key: str = field(repr=False)
    """Of a client whose certificate the broker trusts, PEM."""
    chain: str = field(repr=False)

    @property
    def store_password(self) -> str:
        return self.broker.authority.password

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def trusts(self, kind: str) -> dict[str, str]:
        match kind:
            case "inline":
                text = self.broker.ca_file.read_text()
                return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}
            case "pem":
                return {
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(self.broker.ca_file),
                }
        return {  # Java's own; its default type reads both
            "ssl.truststore.location": self.file(f"trusted.{kind}"),
            "ssl.truststore.password": self.store_password,
        }

    def identity(self, kind: str) -> dict[str, str]:
        match kind:
            case "inline":
                return {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.key": self.key,
                    "ssl.keystore.certificate.chain": self.chain,
                }
            case "pem":
                return {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": self.file("client.pem"),
                }
        own = {"ssl.key.password": KEY_PASSWORD} if kind == "jks" else {}
        return own | {
            "ssl.keystore.type": "JKS" if kind == "jks" else "PKCS12",
            "ssl.keystore.location": self.file(f"client.{kind}"),
            "ssl.keystore.password": self.store_password,
        }

    def login(self, mechanism: str, trusted: str, password: str = PASSWORD) -> dict[str, str]:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {
            "bootstrap.servers": self.broker.tls_address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{MODULES}.{module} required username="{USER}" '
            f'password="{password}";',
            **self.trusts(trusted),
        }

    def certificate(self, kind: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.broker.mutual_tls_address,
            "security.protocol": "SSL",
            **self.trusts(kind),
            **self.identity(kind),
        }


def for_all(security: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for all clients. Connectors' clients inherit none of the worker's, as in
    Connect."""
    found = dict(security)
    for prefix in ("producer", "consumer"):
        found |= {
            f"{prefix}.{key}": value
            for key, value in security.items()
            if key.startswith(("sasl.", "ssl.", "security."))
        }
    return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    broker = Broker(
        folder / "broker",
        users={USER: PASSWORD},
        tls=True,
        tls_names="ip:127.0.0.1",
        settings={
            "super.users": f"User:ANONYMOUS;User:{USER};User:CN=client",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        },
    )
    broker.authority.make()
    client = broker.authority.issue("client")
    key, chain = as_pem(client, broker.authority.password)
    made = Secured(broker, folder, key, chain)
    (folder / "client.p12").write_bytes(client.read_bytes())
    broker.authority.converted(client, folder / "client.jks", "JKS", "-destkeypass", KEY_PASSWORD)
    (folder / "client.pem").write_text(key + chain)
    for kind, name in (("PKCS12", "p12"), ("JKS", "jks")):
        broker.authority.trust(folder / f"trusted.{name}", kind)
    try:
        broker.start()
        yield made
    finally:
        broker.kill()


WAYS: dict[str, Callable[[Secured], dict[str, str]]] = {
    "scram, trust store in JKS": lambda at: at.login("SCRAM-SHA-256", "jks"),
    "scram of 512 bits, trusted PEM": lambda at: at.login("SCRAM-SHA-512", "pem"),
    "plain, trusted PEM in the file": lambda at: at.login("PLAIN", "inline"),
    "mutual, JKS": lambda at: at.certificate("jks"),
    "mutual, PKCS12": lambda at: at.certificate("p12"),
    "mutual, PEM files": lambda at: at.certificate("pem"),
    "mutual, PEM in the file": lambda at: at.certificate("inline"),
}


def settings(name: str, security: Mapping[str, str]) -> dict[str, str]:
    return {
        "group.id": name,
        "key.converter": STRING,
        "value.converter": STRING,
        "exactly.once.source.support": "enabled",
        "headgate.task.runner": "process",
        **for_all(security),
    }


@pytest.mark.parametrize("way", first(1, WAYS))
def test_a_pipeline_runs_exactly_once(
    way: str,
    secured: Secured,
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """Data go by one client library, the group and the fencing by the other: both must get in. The
    worker is killed in between and another one takes the work up."""
    plain = secured.broker.address
    create_topic(plain, kafka_name)
    security = WAYS[way](secured)
    given = settings(kafka_name, security)
    quick = {"session.timeout.ms": "6000", "scheduled.rebalance.max.delay.ms": "0"}
    worker = headgate_worker(security["bootstrap.servers"], kafka_name, given | quick)
    source, lines = tmp_path / "in.txt", [f"line {n}" for n in range(2 * LINES)]
    source.write_text("".join(f"{line}\n" for line in lines[:LINES]))
    config = {"connector.class": "FileStreamSource", "file": str(source), "topic": kafka_name}
    assert worker.rest.create("src", config).status == 201
    until(lambda: len(read_committed(plain, kafka_name)) >= LINES, worker)
    worker.close()

    with source.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[LINES:]))
    second = headgate_worker(security["bootstrap.servers"], kafka_name, given | quick)
    until(lambda: len(read_committed(plain, kafka_name)) >= len(lines), second)
    assert [value.decode() for _, value in read_committed(plain, kafka_name)] == lines
    second.stop()
    for log in (worker.log, second.log):
        text = log.read_text()
        assert "Traceback" not in text
        for secret in (PASSWORD, KEY_PASSWORD, secured.store_password, secured.key[40:80]):
            assert secret not in text


@pytest.mark.exhaustive
def test_observe_and_doctor_go_the_same_way(
    secured: Secured,
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    for kind, security in (
        ("login", secured.login("SCRAM-SHA-256", "p12")),
        ("certificate", secured.certificate("p12")),
    ):
        given = settings(f"{kafka_name}-{kind}", security)
        worker = headgate_worker(security["bootstrap.servers"], f"{kafka_name}-{kind}", given)
        file = tmp_path / f"{kind}.properties"
        file.write_text(javaproperties.dumps(worker.properties, timestamp=False))
        seen = headgate("observe", "--properties", str(file), "--json")
        assert seen.returncode == 0, seen.stderr
        assert worker.url.removeprefix("http://") in seen.stdout
        advice = headgate("doctor", str(file))
        assert advice.returncode == 0, advice.stdout + advice.stderr
        assert "Nothing is to be mended." in advice.stdout
        assert f"{worker.url}/ is a member of the group" in " ".join(advice.stdout.split())
        worker.stop()


@pytest.mark.exhaustive
def test_the_name_of_a_broker_is_looked_at_unless_it_need_not_be(
    secured: Secured,
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """The broker's certificate is for its address, and the client connects to its name."""
    security = secured.login("SCRAM-SHA-256", "jks")
    address = security["bootstrap.servers"].replace("127.0.0.1", "localhost")
    security["bootstrap.servers"] = address
    key = "ssl.endpoint.identification.algorithm"
    for checked in ({}, {key: "https"}):
        done, _ = ended(tmp_path, {**settings(kafka_name, security), **checked})
        assert "for another name than that of this address" in done.stderr
    free = settings(kafka_name, {**security, key: ""})
    headgate_worker(address, kafka_name, free).stop()


REFUSED: dict[str, tuple[Callable[[Secured, Path], dict[str, str]], str]] = {
    "a wrong password": (
        lambda at, _: at.login("SCRAM-SHA-256", "jks", "another secret"),
        "invalid credentials with SASL mechanism SCRAM-SHA-256; check name and password in "
        "sasl.jaas.config",
    ),
    "a mechanism that the brokers have not": (
        lambda at, _: {
            **at.login("SCRAM-SHA-512", "jks"),
            "bootstrap.servers": at.broker.sasl_address,
            "security.protocol": "SASL_PLAINTEXT",
        },
        "broker's supported mechanisms: PLAIN,SCRAM-SHA-256; check name",
    ),
    "a broker that is not trusted": (
        lambda at, other: {
            **at.login("PLAIN", "pem"),
            "ssl.truststore.location": str(other),
        },
        "certificate verify failed; its certificate is not signed by one that "
        "ssl.truststore.location has",
    ),
    "a broker whose certificate is for another name": (
        lambda at, _: {
            **at.login("PLAIN", "pem"),
            "bootstrap.servers": at.broker.tls_address.replace("127.0.0.1", "localhost"),
        },
        "certificate verify failed; its certificate is not signed by one that "
        "ssl.truststore.location has, or it is for another name",
    ),
    "no certificate where one is wanted": (
        lambda at, _: {
            "bootstrap.servers": at.broker.mutual_tls_address,
            "security.protocol": "SSL",
            **at.trusts("pem"),
        },
        "bad certificate: SSL alert number 42; check the client's certificate: ssl.keystore",
    ),
}


@pytest.mark.parametrize("what", first(1, REFUSED))
@pytest.mark.exhaustive
def test_the_connections_of_the_group_are_refused_alike(
    what: str, secured: Secured, tmp_path: Path
) -> None:
    """The other library: what a worker meets whose login was taken back while it was in its
    group."""
    security, text = REFUSED[what]
    other = Authority(tmp_path / "other")
    other.make()
    given = security(secured, other.ca_file)
    arguments = worker_kafka_python({**given, "group.id": "g"}, client_id="c")
    with contextlib.closing(KafkaGroup(arguments)) as group:
        group.send(JoinGroup("g", "", "me", "connect", (("p", b""),), 6_000, 10_000, 1))
        deadline = time.monotonic() + 20
        error: TransportError | None = None
        while not isinstance(error, GroupRefusedError) and time.monotonic() < deadline:
            time.sleep(0.01)
            try:
                assert not group.receive()
            except TransportError as failed:
                error = failed
    assert isinstance(error, GroupRefusedError), error
    assert text.rpartition("; ")[2] in str(error)
    assert given["bootstrap.servers"] in str(error) and "another secret" not in str(error)


@pytest.mark.parametrize("what", first(1, REFUSED))
def test_a_worker_that_is_not_let_in_ends_at_once(
    what: str, secured: Secured, kafka_name: str, tmp_path: Path
) -> None:
    """Connect's worker does not wait either. Ours ends with code 2."""
    security, text = REFUSED[what]
    other = Authority(tmp_path / "other")
    other.make()
    given = security(secured, other.ca_file)
    done, took_s = ended(tmp_path, settings(kafka_name, given))
    said = " ".join(done.stderr.split())
    assert text in said
    assert "Failed to connect to and describe Kafka cluster" in said
    assert given["bootstrap.servers"] in said and "worker.properties" in said
    assert "another secret" not in said
    assert took_s < 30, "Connect's patience with brokers that are away is 60 s"


@pytest.mark.exhaustive
def test_brokers_that_are_away_are_waited_for_and_unknown_names_are_not(
    kafka_name: str, tmp_path: Path
) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    given = settings(kafka_name, {"bootstrap.servers": dead})
    done, took_s = ended(tmp_path, {**given, "default.api.timeout.ms": "7000"})
    assert f"Gave up after 7 s at {dead}" in done.stderr
    assert "Connection refused" in done.stderr
    assert took_s >= 7
    given["bootstrap.servers"] = "no-such-host.invalid:9092"
    done, took_s = ended(tmp_path, given)
    assert "No resolvable bootstrap urls given in bootstrap.servers: no-such-host" in done.stderr
    assert took_s < 30


def test_a_store_that_cannot_be_read_ends_the_worker_before_it_connects(
    secured: Secured, kafka_name: str, tmp_path: Path
) -> None:
    security = {**secured.login("PLAIN", "jks"), "ssl.truststore.password": "another secret"}
    done, _ = ended(tmp_path, settings(kafka_name, security), code=2)
    assert f"ssl.truststore.location: {secured.file('trusted.jks')} cannot be" in done.stderr
    assert "another secret" not in done.stderr


@pytest.mark.exhaustive
def test_a_password_that_is_changed_ends_the_worker_and_a_dead_broker_does_not(
    own_broker: Callable[..., Broker],
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_name: str,
) -> None:
    """A worker that was in its group waits for brokers for as long as it takes. As Connect's it
    ends with code 1 when they come back and do not know it any more."""
    users = {USER: PASSWORD}
    broker = own_broker(users=users, settings={"super.users": f"User:ANONYMOUS;User:{USER}"})
    login = f'{MODULES}.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";'
    security = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login,
    }
    quick = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
    given = {**settings(kafka_name, security), **quick}
    worker = headgate_worker(broker.sasl_address, kafka_name, given)
    broker.kill()
    time.sleep(5)
    broker.start()
    AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=30)
    until(lambda: in_group(worker), worker)

    broker.kill()
    broker.users[USER] = "a new secret"
    broker.start()
    assert worker._process is not None
    assert worker._process.wait(90) == 1, worker.tail()
    tail = " ".join(worker.tail().split())
    assert "check name and password in sasl.jaas.config" in tail
    assert "has stopped" in tail and PASSWORD not in tail


@pytest.mark.parametrize("client", first(1, ["producer", "consumer"]))
@pytest.mark.exhaustive
def test_a_connector_whose_client_is_not_let_in_fails(
    client: str,
    secured: Secured,
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """The task is not started again and again. Connect's task fails with the broker's answer,
    too."""
    create_topic(secured.broker.address, kafka_name)
    security = secured.login("SCRAM-SHA-256", "jks")
    worker = headgate_worker(
        security["bootstrap.servers"], kafka_name, settings(kafka_name, security)
    )
    file = tmp_path / "lines.txt"
    file.write_text("a\n")
    wrong = secured.login("SCRAM-SHA-256", "jks", "another secret")["sasl.jaas.config"]
    kinds = {
        "producer": {"connector.class": "FileStreamSource", "topic": kafka_name},
        "consumer": {"connector.class": "FileStreamSink", "topics": kafka_name},
    }
    override = {f"{client}.override.sasl.jaas.config": wrong}
    config = {**kinds[client], "file": str(file), **override}
    assert worker.rest.create("one", config).status == 201
    until(lambda: [task["state"] for task in tasks(worker)] == ["FAILED"], worker)
    assert "check name and password" in tasks(worker)[0]["trace"]
    assert "another secret" not in worker.log.read_text() + tasks(worker)[0]["trace"]


def tasks(worker: HeadgateWorker) -> list[Any]:
    body: Any = worker.rest.status("one").body
    return list(body.get("tasks", ()))


def in_group(worker: HeadgateWorker) -> bool:
    """A request that only a member of the group can answer."""
    return worker.rest.put("/connectors/none/config", {"connector.class": "None"}).status == 400


def until(true: Callable[[], bool], worker: HeadgateWorker) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"not in time\n{worker.tail()}"
        time.sleep(0.1)
