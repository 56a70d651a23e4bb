"""Calls between our workers while a Java worker is in their group: by HTTP; by gRPC before it comes
and when it has gone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.java.mixed_group import asked
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate_grpc.internal.peers import GrpcPeers
from local_kafka.java_connect import JavaWorker, Rest

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

INTERNAL = {"headgate_grpc_listeners": "grpc://127.0.0.1:0", "headgate_grpc_internal": "true"}
SETTINGS = {
    "scheduled.rebalance.max.delay.ms": "0",
    "exactly.once.source.support": "enabled",
}


def changes(follower: Rest, topic: str, name: str) -> None:
    """Calls that only the leader carries out; none may fail."""
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "file": "/dev/null",
        "topics": topic,
        "tasks.max": "1",
    }
    created = asked(follower, "POST", "/connectors", {"name": name, "config": config})
    assert created.status == 201, created
    follower.await_tasks(name, ["RUNNING"])
    path = f"/connectors/{name}"
    assert asked(follower, "PATCH", f"{path}/config", {"tasks.max": "2"}).status == 200
    assert asked(follower, "PUT", f"{path}/stop").status == 204
    assert asked(follower, "DELETE", path).status == 204


def settled(workers: tuple[KafkaWorker, ...]) -> None:
    await_true(
        "one leader, nothing pending",
        lambda: workers[0].leads and not any(each.pending for each in workers),
        60,
    )


def test_they_go_by_http_as_long_as_it_is_there(
    tmp_path: Path,
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_grpc: list[str] = []
    ask = GrpcPeers._ask

    async def noted(self: GrpcPeers, address: str, *given: object) -> object:
        by_grpc.append(address)
        return await ask(self, address, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(GrpcPeers, "_ask", noted)
    create_topic(kafka_broker.address, kafka_name)
    address = kafka_broker.address
    with (
        kafka_worker(tmp_path / "1", address, kafka_name, **INTERNAL) as leader,
        kafka_worker(tmp_path / "2", address, kafka_name, **INTERNAL) as follower,
    ):
        settled((leader, follower))
        changes(follower.rest, kafka_name, "before")
        assert len(by_grpc) >= 4
        java = java_worker(address, kafka_name, SETTINGS)
        await_true("Java's protocol", lambda: protocols(leader, follower) == {"sessioned"}, 60)
        settled((leader, follower))
        by_grpc.clear()
        for asker, name in ((follower.rest, "beside"), (java.rest, "of-java")):
            changes(asker, kafka_name, name)
        assert not by_grpc, "each went by HTTP"
        java.stop()
        await_true("our protocol", lambda: protocols(leader, follower) == {"headgate"}, 60)
        settled((leader, follower))
        changes(follower.rest, kafka_name, "after")
        assert len(by_grpc) >= 4


def protocols(*workers: KafkaWorker) -> set[str]:
    return {each.worker.herder.protocol for each in workers}
