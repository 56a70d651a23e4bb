"""Two clusters on one broker have the same group.id by mistake. Each must report the other."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands.observing import observed
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.kafka.cluster import await_true, read_committed

from local_kafka.java_connect import SOURCE, JavaWorker

pytestmark = pytest.mark.slow

SECONDS = 60
LOOKED_S = 180
TURN_S = 1.2
"""From one coming of a worker that has no place in a group to the next, nearly."""
QUICK = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "500",
}


def said(worker: HeadgateWorker, words: str) -> str:
    """The first line of its log that has `words`."""
    until = time.monotonic() + SECONDS
    while True:
        for line in worker.log.read_text().splitlines():
            if words in line:
                return line
        assert time.monotonic() < until, f"{words!r} is not in the log:\n{worker.tail()}"
        time.sleep(0.2)


def others(name: str) -> dict[str, str]:
    """Topics of the second cluster."""
    return {
        f"{kind}.storage.topic": f"{name}-other-{kind}" for kind in ("config", "offset", "status")
    }


@pytest.mark.exhaustive
def test_clusters_with_config_topics_of_one_length_are_told_of_each_other(
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """The topics were made in the same way and have connectors of the same name. Only what members
    report of their topics tells them apart."""
    settings = (QUICK, {**QUICK, **others(kafka_name)})
    for number, each in enumerate(settings):
        worker = headgate_worker(kafka_broker.address, kafka_name, each)
        put_source(worker, kafka_name, tmp_path / f"in-{number}")
        worker.stop()
    first, second = (headgate_worker(kafka_broker.address, kafka_name, each) for each in settings)
    told = said(second, f"the leader {first.url}/ reads config topic '")
    assert f"this worker '{kafka_name}-other-config' (id " in told
    assert "Compare config.storage.topic and bootstrap.servers" in told
    assert f"{second.url}/ reads '{kafka_name}-other" in said(first, "this worker leads and reads")
    first.rest.await_tasks(kafka_name, ["RUNNING"])
    (task,) = first.rest.get(f"/connectors/{kafka_name}/status").body["tasks"]
    assert (task["state"], task["worker_id"]) == ("RUNNING", first.url.removeprefix("http://"))
    assert first.rest.get(f"/connectors/{kafka_name}/config").body["file"].endswith("in-0")
    assert_seen_from_outside(second.file)


@pytest.mark.exhaustive
def test_clusters_in_connects_own_protocol_are_told_of_each_other(
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """In this protocol a member cannot say which config topic it reads, only how far."""
    settings = {**QUICK, "connect.protocol": "compatible"}
    first = headgate_worker(kafka_broker.address, kafka_name, settings)
    put_source(first, kafka_name, tmp_path / "in")
    second = headgate_worker(kafka_broker.address, kafka_name, {**settings, **others(kafka_name)})
    told = said(second, "this worker's config topic has nothing after")
    assert f"but the leader {first.url}/ has read up to" in told
    assert "Compare config.storage.topic and bootstrap.servers" in told
    assert f"{second.url}/ never read as far as this leader" in said(first, "never read as far")
    assert first.rest.get(f"/connectors/{kafka_name}/status").status == 200
    for file in (first.file, second.file):
        assert_seen_from_outside(file)


@pytest.mark.exhaustive
@pytest.mark.parametrize("java_leads", [True, False])
def test_ours_takes_nothing_of_a_java_cluster_with_its_group_id(
    java_leads: bool,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """Java's worker has read further than our topic goes. Whichever leads, our worker reports it
    and starts nothing."""
    java = java_worker(kafka_broker.address, kafka_name, QUICK)
    names = [f"{kafka_name}-{n}" for n in range(2)]
    for name in names:
        file = tmp_path / name
        file.touch()
        config = {"connector.class": SOURCE, "file": str(file), "topic": "t"}
        assert java.rest.create(name, config).status == 201
        java.rest.await_tasks(name, ["RUNNING"])
    if not java_leads:
        java.stop()
    settings = {**QUICK, **others(kafka_name)}
    ours = headgate_worker(kafka_broker.address, kafka_name, settings)
    if not java_leads:
        said(ours, "leader this worker")
        java.launch()  # in such a group it need not become ready
    told = said(ours, "this worker's config topic has nothing after")
    who = f"the leader {java.url}/" if java_leads else f"member {java.url}/"
    assert f"but {who} has read up to" in told
    assert "Compare config.storage.topic and bootstrap.servers" in told
    takes_nothing(ours, java, kafka_broker.address, kafka_name)
    assert_seen_from_outside(ours.file)


def takes_nothing(ours: HeadgateWorker, java: JavaWorker, address: str, name: str) -> None:
    """Assert that the worker takes no work while some more rounds pass."""
    rounds = rounds_of(ours)
    await_true("more rounds", lambda: rounds_of(ours) > rounds + 3, SECONDS, ours.tail)
    view = ours.rest.get("/headgate/worker").body
    assert (view["connectors"], view["tasks"]) == ({}, [])
    assert ours.rest.get("/connectors").body == []
    assert "starts as run" not in ours.log.read_text()
    # Neither status topic has heard of ours.
    for topic in (f"{name}-status", f"{name}-other-status"):
        told = str(read_committed(address, topic, 2))
        assert ours.url.removeprefix("http://") not in told
    assert java.url.removeprefix("http://") in str(read_committed(address, f"{name}-status", 2))


def rounds_of(worker: HeadgateWorker) -> int:
    """Return the number of rounds of the worker's group."""
    return int(worker.rest.get("/headgate/worker").body["rebalances"])


def put_source(worker: HeadgateWorker, name: str, file: Path) -> None:
    """Create a source, and return when its task has run."""
    body = {"connector.class": "FileStreamSource", "file": str(file), "topic": "t"}
    assert worker.rest.put(f"/connectors/{name}/config", body).status == 201
    said(worker, f"task {name}-0 is RUNNING")


def assert_seen_from_outside(file: Path) -> None:
    """Soon: one look in six falls on a moment in which both are in the group. They come and go at a
    steady pace, with which looks must not keep step."""
    until = time.monotonic() + LOOKED_S
    while True:
        findings = observed("--properties", str(file))["findings"]
        if any("config.storage.topic" in each or "other topics" in each for each in findings):
            return
        assert time.monotonic() < until, findings
        time.sleep(random.uniform(0, TURN_S))
