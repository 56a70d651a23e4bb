"""Headgate workers call each other by gRPC, except while a Java worker is in their group.

Then they call by HTTP, and by gRPC again once it has gone. A leader that is Java's refuses what it
cannot do.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.java.mixed_group import asked
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate_grpc.client import HeadgateError, connect
from headgate_grpc.internal.peers import GrpcPeers
from headgate_grpc.v1 import connector_pb2
from headgate_rest.peer import PeerClient
from local_kafka.java_connect import JavaWorker, Rest

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

INTERNAL = {"headgate_grpc_listeners": "grpc://127.0.0.1:0", "headgate_grpc_internal": "true"}
SETTINGS = {
    "scheduled.rebalance.max.delay.ms": "0",
    "exactly.once.source.support": "enabled",
}
OF_EACH = 3
"""Calls of `changes` to each follower that its leader carries out: more than these are counted."""


@dataclass
class Counted:
    """Calls between workers of this process, as each was asked."""

    by_grpc: list[str] = field(default_factory=list)
    by_http: list[str] = field(default_factory=list)

    def clear(self) -> None:
        self.by_grpc.clear()
        self.by_http.clear()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    found = Counted()
    ask, call = GrpcPeers._ask, PeerClient.call

    async def by_grpc(self: GrpcPeers, address: str, *given: Any) -> object:
        found.by_grpc.append(address)
        return await ask(self, address, *given)

    def by_http(self: PeerClient, url: str, *given: Any) -> object:
        found.by_http.append(url)
        return call(self, url, *given)

    monkeypatch.setattr(GrpcPeers, "_ask", by_grpc)
    monkeypatch.setattr(PeerClient, "call", by_http)
    return found


def sink(topic: str) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": "/dev/null",
        "topics": topic,
        "tasks.max": "1",
    }


def changes(follower: Rest, topic: str, name: str) -> None:
    """Calls that only the leader carries out; none may fail."""
    created = asked(follower, "POST", "/connectors", {"name": name, "config": sink(topic)})
    assert created.status == 201, created
    follower.await_tasks(name, ["RUNNING"])
    path = f"/connectors/{name}"
    assert asked(follower, "PATCH", f"{path}/config", {"tasks.max": "2"}).status == 200
    assert asked(follower, "PUT", f"{path}/stop").status == 204
    assert asked(follower, "DELETE", path).status == 204


class Steady:
    """A user who changes a connector all the time, at one worker after the other."""

    def __init__(self, workers: Sequence[KafkaWorker], topic: str) -> None:
        self._workers, self._config = workers, sink(topic)
        self._over = threading.Event()
        self.done = 0
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with httpx.Client(timeout=90) as client:
            while not self._over.wait(0.02):
                worker = self._workers[self.done % len(self._workers)]
                url = f"{worker.url.rstrip('/')}/connectors/steady/config"
                answer = client.put(url, json={**self._config, "n": str(self.done)})
                if answer.status_code not in (200, 201):
                    self.refused.append(f"{self.done}: {answer.status_code} {answer.text}")
                self.done += 1

    def end(self) -> None:
        self._over.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


def settled(workers: Sequence[KafkaWorker]) -> None:
    await_true(
        "one leader, nothing pending",
        lambda: workers[0].leads and not any(each.pending for each in workers),
        60,
        lambda: str([each.pending for each in workers]),
    )


def test_they_go_by_http_as_long_as_it_is_there(
    tmp_path: Path,
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    counted: Counted,
) -> None:
    """Three of ours. Whatever is asked while it comes and goes is done."""
    create_topic(kafka_broker.address, kafka_name)
    address = kafka_broker.address
    with contextlib.ExitStack() as stack:
        ours = [
            stack.enter_context(kafka_worker(tmp_path / str(n), address, kafka_name, **INTERNAL))
            for n in range(3)
        ]
        settled(ours)
        followers = ours[1:]
        counted.clear()
        for n, follower in enumerate(followers):
            changes(follower.rest, kafka_name, f"before-{n}")
        assert len(counted.by_grpc) > OF_EACH * len(followers) and not counted.by_http
        steady = Steady(ours, kafka_name)
        stack.callback(steady.end)
        java = java_worker(address, kafka_name, SETTINGS)
        await_true("Java's protocol", lambda: protocols(ours) == {"sessioned"}, 60)
        counted.clear()
        for n, follower in enumerate((*followers, java)):
            changes(follower.rest, kafka_name, f"beside-{n}")
        assert len(counted.by_http) > OF_EACH * len(followers)
        assert not counted.by_grpc, "each went by HTTP"
        java.stop()
        await_true("our protocol", lambda: protocols(ours) == {"headgate"}, 60)
        counted.clear()
        for n, follower in enumerate(followers):
            changes(follower.rest, kafka_name, f"after-{n}")
        assert len(counted.by_grpc) > OF_EACH * len(followers) and not counted.by_http
        steady.end()
        assert not steady.refused and steady.done > 50, steady.done
        settled(ours)


def protocols(workers: Sequence[KafkaWorker]) -> set[str]:
    return {each.worker.herder.protocol for each in workers}


# -- led by Java --


def test_a_java_leader_is_not_asked_for_a_change_with_an_etag(
    tmp_path: Path,
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
) -> None:
    """Java would ignore the condition, and overwrite another user's change."""
    create_topic(kafka_broker.address, kafka_name)
    java = java_worker(kafka_broker.address, kafka_name, SETTINGS)
    listener = f"unix:{tmp_path}/s"
    more = {"headgate_grpc_listeners": listener}
    config = sink(kafka_name)
    with (
        kafka_worker(tmp_path / "ours", kafka_broker.address, kafka_name, **more) as ours,
        connect(listener) as client,
    ):
        await_true("Java leads", lambda: not ours.pending and not ours.leads, 60)
        client.create("c", config)
        client.wait("c", timeout_s=60)
        shown = client.get("c")
        etag = shown.etag
        refusals: list[Callable[[], object]] = [
            lambda: client.patch_config("c", {"tasks.max": "2"}, etag=etag),
            lambda: client.put_config("c", {**config, "tasks.max": "2"}, etag=etag),
            lambda: client.stop("c", etag=etag),
            lambda: client.delete("c", etag=etag),
        ]
        for change in refusals:
            with pytest.raises(HeadgateError) as caught:
                change()
            assert (caught.value.code, caught.value.reason) == ("INVALID_ARGUMENT", "BAD_REQUEST")
            assert "knows no etags" in caught.value.message
        path, body = f"{ours.url.rstrip('/')}/connectors/c/config", {"tasks.max": "2"}
        answer = httpx.patch(path, json=body, headers={"If-Match": f'"{etag}"'}, timeout=60)
        assert answer.status_code == 400 and "knows no etags" in answer.text
        assert java.rest.get("/connectors/c/config").body["tasks.max"] == "1"
        now = client.get("c")
        assert now.etag == etag and now.target_state == connector_pb2.TARGET_STATE_STARTED
        client.patch_config("c", body)
        assert java.rest.get("/connectors/c/config").body["tasks.max"] == "2"
