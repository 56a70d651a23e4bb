"""Workers log in with tokens of an identity provider that expire before the workers end."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,
    AdminClient,
    ResourceType,
)
from support.commands.observing import observe
from support.commands.worker import HeadgateWorker, ended, headgate, headgate_worker  # noqa: F401
from support.kafka.cluster import await_true, create_topic, read_committed
from support.kafka.rights import allow
from support.kafka.token_endpoint import ALLOWED, TokenEndpoint, token_endpoint
from support.task.growing_file import GrowingFile

from local_kafka.broker import Broker
from local_kafka.certificates import Authority
from local_kafka.java_connect import JavaWorker
from local_kafka.jvm import QUICK

pytestmark = pytest.mark.slow
USER, SECRET = "connect", "a secret of connect"
STRING = "org.apache.kafka.connect.storage.StringConverter"
LIFE_S = 5.0
"""Of a token, and at the most of what a broker lets in by it."""
SECONDS = 60


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenEndpoint]:
    """A token endpoint whose certificate is not signed by an authority that the system trusts."""
    authority = Authority(tmp_path_factory.mktemp("endpoint"))
    with token_endpoint({USER: SECRET}, LIFE_S, authority) as made:
        yield made


@pytest.fixture(scope="module")
def broker(endpoint: TokenEndpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Users by name it has none: those that log in at its second address do so by a token."""
    made = Broker(
        tmp_path_factory.mktemp("oauth") / "broker",
        users={"nobody": "logs in so"},
        settings={
            "super.users": f"User:ANONYMOUS;User:{USER}",
            "connections.max.reauth.ms": str(int(LIFE_S * 1000)),
            **endpoint.broker_settings(),
        },
        flags=(*QUICK, f"{ALLOWED}={endpoint.keys_url}"),
    )
    try:
        made.start()
        yield made
    finally:
        made.kill()


def settings(broker: Broker, login: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a worker. Those of its connectors' clients repeat them, as Connect
    requires."""
    security = {"security.protocol": "SASL_PLAINTEXT", **login}
    of_clients = {
        f"{client}.{key}": value
        for client in ("producer", "consumer")
        for key, value in security.items()
    }
    return {
        "bootstrap.servers": broker.sasl_address,
        "key.converter": STRING,
        "value.converter": STRING,
        "exactly.once.source.support": "enabled",
        "session.timeout.ms": "6000",
        **security,
        **of_clients,
    }


class Pipeline:
    """A source of a file that grows, exactly once."""

    def __init__(self, address: str, name: str, file: Path) -> None:
        self._address, self._topic = address, name
        self.file = GrowingFile(file, per_second=500)
        create_topic(address, name)

    def create(self, worker: HeadgateWorker) -> None:
        config = {"connector.class": "FileStreamSource", "topic": self._topic}
        assert worker.rest.create("src", {**config, "file": str(self.file.path)}).status == 201
        worker.rest.await_tasks("src", ["RUNNING"])

    def arrived(self) -> list[str]:
        return [value.decode() for _, value in read_committed(self._address, self._topic)]

    def await_written(self, tail: Callable[[], str]) -> None:
        """Wait until all that was written so far has arrived."""
        written = len(self.file.lines)
        await_true("lines", lambda: len(self.arrived()) >= written, SECONDS, tail, pause_s=0.3)

    def check(self, tail: Callable[[], str]) -> None:
        """All arrived, once and in order."""
        written = self.file.stop()
        self.await_written(tail)
        assert self.arrived() == written


@pytest.mark.exhaustive
def test_a_pipeline_outlives_its_tokens_and_java_takes_it_over(
    broker: Broker,
    endpoint: TokenEndpoint,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """Both libraries log in again and again, while the worker stays in its group."""
    given = settings(broker, endpoint.login(USER))
    worker = headgate_worker(broker.sasl_address, kafka_name, given)
    pipeline = Pipeline(broker.address, kafka_name, tmp_path / "in.txt")
    pipeline.create(worker)
    before = worker.rest.get("/headgate/worker").body["generation"]
    until = time.monotonic() + 4 * LIFE_S
    while time.monotonic() < until:
        pipeline.await_written(worker.tail)
    assert worker.rest.get("/headgate/worker").body["generation"] == before
    assert len(endpoint.asked) > 12, "at the least three clients, four times"
    seen = observe("--properties", str(worker.file), "--json")
    assert seen.returncode == 0, seen.stderr
    assert f'"{worker.url}/"' in seen.stdout
    advice = headgate("doctor", str(worker.file))
    assert advice.returncode == 0, advice.stdout + advice.stderr
    worker.stop()
    text = worker.log.read_text()
    assert "Traceback" not in text and SECRET not in text

    flags = (*QUICK, f"{ALLOWED}={endpoint.url}")
    java = JavaWorker(tmp_path / "java", worker.properties, file=worker.file, flags=flags)
    try:
        java.start()
        java.rest.await_tasks("src", ["RUNNING"])
        pipeline.await_written(java.jvm.tail)
        pipeline.check(java.jvm.tail)
    finally:
        java.kill()
        java.rest.close()


@pytest.mark.exhaustive
def test_an_endpoint_that_is_away_is_waited_for(
    broker: Broker,
    endpoint: TokenEndpoint,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """Longer than tokens live: nobody is let in any more, and that is no refusal."""
    given = settings(broker, endpoint.login(USER))
    worker = headgate_worker(broker.sasl_address, kafka_name, given)
    pipeline = Pipeline(broker.address, kafka_name, tmp_path / "in.txt")
    pipeline.create(worker)
    pipeline.await_written(worker.tail)
    endpoint.away = True
    try:
        time.sleep(4 * LIFE_S)
    finally:
        endpoint.away = False
    pipeline.await_written(worker.tail)
    worker.rest.await_tasks("src", ["RUNNING"])
    pipeline.check(worker.tail)
    assert "Traceback" not in worker.log.read_text()


def test_who_is_refused_ends_at_once(
    broker: Broker, endpoint: TokenEndpoint, kafka_name: str, tmp_path: Path
) -> None:
    login = endpoint.login(USER, "another secret")
    done, took_s = ended(tmp_path, {"group.id": kafka_name, **settings(broker, login)})
    assert took_s < SECONDS / 2
    said = " ".join(done.stderr.split())
    assert "who is that?" in said and "check clientId, clientSecret" in said
    assert "another secret" not in said


@pytest.mark.exhaustive
def test_a_task_that_is_refused_a_token_fails_soon(
    broker: Broker,
    endpoint: TokenEndpoint,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """A task that waits for its endpoint would wait for ever."""
    given = settings(broker, endpoint.login(USER)) | {"exactly.once.source.support": "disabled"}
    worker = headgate_worker(broker.sasl_address, kafka_name, given)
    create_topic(broker.address, kafka_name)
    file = tmp_path / "in.txt"
    file.write_text("a line\n")
    wrong = endpoint.login(USER, "another secret")["sasl.jaas.config"]
    for kind, config in {
        "producer": {"connector.class": "FileStreamSource", "topic": kafka_name},
        "consumer": {"connector.class": "FileStreamSink", "topics": kafka_name},
    }.items():
        own = {f"{kind}.override.sasl.jaas.config": wrong, "file": str(file)}
        assert worker.rest.create(kind, {**config, **own}).status == 201
        status = worker.rest.await_tasks(kind, ["FAILED"], SECONDS / 2)
        trace = status.body["tasks"][0]["trace"]
        assert "who is that?" in trace and "check clientId, clientSecret" in trace
        assert "another secret" not in trace
    advice = headgate("doctor", str(worker.file))
    told = f"no token for client {USER}: the endpoint {endpoint.url} answers 401"
    assert told in " ".join(advice.stdout.split()), advice.stdout


@pytest.mark.exhaustive
def test_a_sink_has_the_rights_of_its_own_tokens_user(
    broker: Broker,
    endpoint: TokenEndpoint,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """The missing rights are named one after the other. No setting says which principal brokers
    see."""
    reader, topic, group = f"reader-{kafka_name}", kafka_name, f"connect-snk-{kafka_name}"
    endpoint.clients[reader] = "a secret of reader"
    worker = headgate_worker(
        broker.sasl_address, kafka_name, settings(broker, endpoint.login(USER))
    )
    create_topic(broker.address, topic)
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"a line")
    assert producer.flush(15) == 0
    out, name = tmp_path / "out.txt", f"snk-{kafka_name}"
    login = endpoint.login(reader)["sasl.jaas.config"]
    config = {"connector.class": "FileStreamSink", "topics": topic, "file": str(out)}
    created = worker.rest.create(name, {**config, "consumer.override.sasl.jaas.config": login})
    assert created.status == 201, created.body

    admin = AdminClient({"bootstrap.servers": broker.address})
    for kind, resource, option, what, said in (
        (ResourceType.GROUP, group, "--group", f"Group:{group}", f"Group:{group}"),
        (ResourceType.TOPIC, topic, "--topic", f"Topic:{topic}", "that topic"),
    ):
        lacks = f"the principal that logs in by OAUTHBEARER lacks Read on {said}"
        worker.rest.await_reply(
            lambda: worker.rest.status(name),
            lambda reply, lacks=lacks: lacks in str(reply.body),
            SECONDS,
        )
        advice = " ".join(headgate("doctor", str(worker.file)).stdout.split())
        assert f"denied: Read on {what}" in advice
        grant = f"--allow-principal User:... --operation Read {option} {resource}"
        assert grant in advice
        allow(admin, (kind, resource, AclOperation.READ), user=reader)
        assert worker.rest.post(f"/connectors/{name}/tasks/0/restart").status == 204
    worker.rest.await_tasks(name, ["RUNNING"])
    await_true("the line", lambda: out.exists() and out.read_text() == "a line\n", SECONDS)
    advice = headgate("doctor", str(worker.file))
    assert advice.returncode == 0, advice.stdout + advice.stderr
    # Its offsets are looked at and reset by the worker's own user.
    assert worker.rest.put(f"/connectors/{name}/stop").status == 204
    worker.rest.await_tasks(name, [])
    await_true(
        "offsets", lambda: worker.rest.get(f"/connectors/{name}/offsets").body["offsets"], SECONDS
    )
    assert worker.rest.delete(f"/connectors/{name}/offsets").status == 200
    text = worker.log.read_text()
    assert "a secret of reader" not in text and SECRET not in text


@pytest.mark.exhaustive
@pytest.mark.parametrize("status", [503, 404])
def test_an_endpoint_that_gives_no_token_is_told_with_its_status(
    broker: Broker, endpoint: TokenEndpoint, kafka_name: str, tmp_path: Path, status: int
) -> None:
    """In the end no client hangs on the endpoint, whether the worker waits for it or not."""
    given = {"group.id": kafka_name, **settings(broker, endpoint.login(USER))}
    endpoint.status = status
    try:
        done, took_s = ended(tmp_path, {**given, "default.api.timeout.ms": "3000"})
        file = str(tmp_path / "worker.properties")
        advice, seen = headgate("doctor", file), headgate("observe", "--properties", file)
    finally:
        endpoint.status = None
    told = f"no token for client {USER}: the endpoint {endpoint.url} answers {status}"
    waited = status == 503
    assert ("; trying for " in done.stderr) is waited
    assert ("Gave up after 3 s" in done.stderr) is waited
    assert took_s > 3 or not waited
    assert took_s < SECONDS / 2
    for said in (done.stderr, advice.stdout, seen.stderr):
        said = " ".join(said.split())
        assert told in said
        assert ("check clientId, clientSecret" in said) is not waited
    assert (advice.returncode, seen.returncode) == (1, 2)


@pytest.mark.exhaustive
def test_who_has_tokens_that_brokers_find_wrong_ends_when_it_gives_up(
    broker: Broker, kafka_name: str, tmp_path: Path
) -> None:
    """The worker does not end at once, because brokers give the same answer for a token that has
    just expired."""
    patience_s = 6.0
    patience = {"default.api.timeout.ms": str(int(patience_s * 1000))}
    with token_endpoint({USER: SECRET}) as other:
        given = settings(broker, other.login(USER)) | patience
        done, took_s = ended(tmp_path, {"group.id": kafka_name, **given})
    assert other.asked
    assert patience_s < took_s < SECONDS / 2
    assert "invalid_token" in done.stderr
