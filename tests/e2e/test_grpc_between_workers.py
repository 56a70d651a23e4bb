"""Workers on a real broker call each other by gRPC, in a group of ours, and also beside a worker
without gRPC."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.grpc.pem import make_pem
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate.herder import messages as m
from headgate.herder.herder import Herder
from headgate_grpc.internal.peers import GrpcPeers

pytestmark = pytest.mark.slow

INTERNAL = {"headgate_grpc_listeners": "grpc://127.0.0.1:0", "headgate_grpc_internal": "true"}


@pytest.fixture
def by_grpc(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Urls that were called by gRPC, in order."""
    called: list[str] = []
    ask = GrpcPeers._ask

    async def noted(self: GrpcPeers, address: str, *given: object) -> object:
        called.append(address)
        return await ask(self, address, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(GrpcPeers, "_ask", noted)
    return called


@pytest.fixture
def passed_on(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Urls of workers to whom herders of this process passed a call, in order."""
    urls: list[str] = []
    handle = Herder.handle

    def noted(self: Herder, now_ms: int, command: m.Command) -> list[m.Effect]:
        effects = handle(self, now_ms, command)
        urls.extend(each.url for each in effects if isinstance(each, m.CallPeer))
        return effects

    monkeypatch.setattr(Herder, "handle", noted)
    return urls


@contextlib.contextmanager
def group(
    folder: Path, broker: Found, name: str, *settings: dict[str, str]
) -> Iterator[list[KafkaWorker]]:
    """Workers with these settings, one after the other; the first one leads."""
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(kafka_worker(folder / str(n), broker.address, name, **each))
            for n, each in enumerate(settings)
        ]
        await_true(
            "one leader",
            lambda: workers[0].leads and all(not each.pending for each in workers),
            60,
            lambda: f"{[each.pending for each in workers]}",
        )
        yield workers


def life(worker: KafkaWorker, config: dict[str, str], name: str) -> None:
    """Calls that only the leader or the owner carries out, asked of `worker`."""
    assert worker.rest.create(name, config).status == 201
    worker.rest.await_tasks(name, ["RUNNING", "RUNNING"])
    with httpx.Client(base_url=worker.url, timeout=60) as client:
        path = f"/connectors/{name}"
        assert client.post("/connectors", json={"name": name, "config": config}).status_code == 409
        etag = {"If-Match": client.get(path).headers["ETag"]}
        changed = client.patch(f"{path}/config", json={"batch.size": "7"}, headers=etag)
        assert changed.status_code == 200 and changed.headers["ETag"] != etag["If-Match"]
        refused = client.put(f"{path}/config", json=config, headers=etag)
        assert refused.status_code == 412, "the status of where it was decided"
        assert client.put(f"{path}/config", json={"name": "x"}).status_code == 400
        assert client.post(f"{path}/restart").status_code == 204
        for task in (0, 1):
            assert client.post(f"{path}/tasks/{task}/restart").status_code == 204
        assert client.put(f"{path}/stop").status_code == 204
        assert client.delete(f"{path}/offsets").status_code == 200
        assert client.delete(path).status_code == 204


def sink(topic: str) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSink",
        "file": "/dev/null",
        "topics": topic,
        "tasks.max": "2",
    }


def test_a_group_of_ours_calls_by_grpc_alone(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, by_grpc: list[str],
    passed_on: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each call that one of three passes on, to the leader or to an owner, is one by gRPC."""
    create_topic(kafka_broker.address, kafka_name)
    with group(tmp_path, kafka_broker, kafka_name, *[INTERNAL] * 3) as (leader, *followers):
        from headgate_rest.peer import PeerClient

        by_http: list[str] = []
        monkeypatch.setattr(
            PeerClient, "call", lambda _self, url, *_: by_http.append(url) or pytest.fail(url)
        )
        by_grpc.clear()
        passed_on.clear()
        for number, worker in enumerate((*followers, leader)):
            life(worker, sink(kafka_name), f"c{number}")
        await_true(
            "each is one by gRPC",
            lambda: len(by_grpc) == len(passed_on),
            10,
            lambda: f"{len(passed_on)} passed on, {len(by_grpc)} by gRPC",
        )
        assert len(passed_on) >= 12 and not by_http
        assert len({*by_grpc}) == len({*passed_on}) >= 2, "each is called at its own address"


def test_one_without_it_is_called_by_http(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, by_grpc: list[str]
) -> None:
    create_topic(kafka_broker.address, kafka_name)
    with group(tmp_path, kafka_broker, kafka_name, {}, INTERNAL) as (_, follower):
        life(follower, sink(kafka_name), "c")
        assert not by_grpc


def with_tls(pem: Path, name: str) -> dict[str, str]:
    """A worker that shows the certificate `name`, and asks others for one of its authority."""
    return {
        "headgate_grpc_listeners": "grpcs://127.0.0.1:0",
        "headgate_grpc_internal": "true",
        "headgate_grpc_internal_ca_file": f"{pem}/ca.pem",
        "headgate_grpc_ssl_certificate_file": f"{pem}/{name}.pem",
        "headgate_grpc_ssl_key_file": f"{pem}/{name}.key",
        "headgate_grpc_ssl_client_ca_file": f"{pem}/ca.pem",
    }


def test_calls_have_tls_with_certificates_of_both(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, by_grpc: list[str]
) -> None:
    create_topic(kafka_broker.address, kafka_name)
    pem = make_pem(tmp_path)
    settings = (with_tls(pem, "server"), with_tls(pem, "client"))
    with group(tmp_path, kafka_broker, kafka_name, *settings) as (_, follower):
        life(follower, sink(kafka_name), "c")
        assert len(by_grpc) >= 6 and all(each.startswith("grpcs://127.0.0.1:") for each in by_grpc)


@pytest.mark.exhaustive
def test_one_without_tls_and_one_with_it_call_each_other_by_http(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, by_grpc: list[str]
) -> None:
    create_topic(kafka_broker.address, kafka_name)
    settings = (INTERNAL, with_tls(make_pem(tmp_path), "server"))
    with group(tmp_path, kafka_broker, kafka_name, *settings) as (_, follower):
        life(follower, sink(kafka_name), "c")
        assert not by_grpc


def test_a_certificate_of_another_authority_is_refused(
    tmp_path: Path, kafka_broker: Found, kafka_name: str
) -> None:
    create_topic(kafka_broker.address, kafka_name)
    pem = make_pem(tmp_path)
    settings = (with_tls(pem, "server"), with_tls(pem, "stranger"))
    with group(tmp_path, kafka_broker, kafka_name, *settings) as (_, follower):
        with httpx.Client(base_url=follower.url, timeout=60) as client:
            body = {"name": "c", "config": sink(kafka_name)}
            refused = client.post("/connectors", json=body)
        assert refused.status_code == 503, refused.text
        assert "are the certificates of both right?" in refused.json()["message"]
