"""Workers that log in by tokens of an identity provider, which live shorter than they do."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from support.headgate_worker import HeadgateWorker, ended, headgate, headgate_worker  # noqa: F401
from support.kafka_cluster import await_true, create_topic, read_committed
from support.observing import observe
from support.token_endpoint import ALLOWED, TokenEndpoint, token_endpoint

from local_kafka.broker import Broker
from local_kafka.java_connect import JavaWorker
from local_kafka.jvm import QUICK

pytestmark = pytest.mark.slow
USER, SECRET = "connect", "a secret of connect"
STRING = "org.apache.kafka.connect.storage.StringConverter"
LIFE_S = 5.0
"""Of a token, and at the most of what a broker lets in by it."""
ROUND = 100
SECONDS = 60


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenEndpoint]:
    with token_endpoint({USER: SECRET}, LIFE_S) as made:
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
    """Of a worker and, as Connect wants it, of its connectors' clients once more."""
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
        self._address, self._topic, self._file = address, name, file
        self.written: list[str] = []
        create_topic(address, name)

    def create(self, worker: HeadgateWorker) -> None:
        self.write()
        config = {"connector.class": "FileStreamSource", "topic": self._topic}
        assert worker.rest.create("src", {**config, "file": str(self._file)}).status == 201
        worker.rest.await_tasks("src", ["RUNNING"])

    def write(self) -> None:
        lines = [f"line {len(self.written) + n}" for n in range(ROUND)]
        with self._file.open("a") as into:
            into.writelines(f"{line}\n" for line in lines)
        self.written.extend(lines)

    def arrived(self) -> list[str]:
        return [value.decode() for _, value in read_committed(self._address, self._topic)]

    def await_all(self, tail: Callable[[], str]) -> None:
        def there() -> bool:
            return len(self.arrived()) >= len(self.written)

        await_true("all lines", there, SECONDS, tail, pause_s=0.3)


def test_a_pipeline_outlives_its_tokens_and_java_takes_it_over(
    broker: Broker,
    endpoint: TokenEndpoint,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """Both libraries log in anew, again and again, and the worker stays in its group meanwhile."""
    given = settings(broker, endpoint.login(USER))
    worker = headgate_worker(broker.sasl_address, kafka_name, given)
    pipeline = Pipeline(broker.address, kafka_name, tmp_path / "in.txt")
    pipeline.create(worker)
    before = worker.rest.get("/headgate/worker").body["generation"]
    until = time.monotonic() + 4 * LIFE_S
    while time.monotonic() < until:
        pipeline.write()
        pipeline.await_all(worker.tail)
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
        pipeline.write()
        pipeline.await_all(java.jvm.tail)
    finally:
        java.kill()
        java.rest.close()
    assert pipeline.arrived() == pipeline.written


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
    pipeline.await_all(worker.tail)
    endpoint.away = True
    try:
        until = time.monotonic() + 4 * LIFE_S
        while time.monotonic() < until:
            pipeline.write()
            time.sleep(1)
    finally:
        endpoint.away = False
    pipeline.await_all(worker.tail)
    worker.rest.await_tasks("src", ["RUNNING"])
    assert pipeline.arrived() == pipeline.written
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
