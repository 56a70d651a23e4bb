"""Two clusters on one broker that were given the same group.id: each must be told of the other."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.headgate_worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka_broker import Found
from support.observing import observed

pytestmark = pytest.mark.slow

SECONDS = 60
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


def test_two_clusters_with_one_group_id_are_told_of_each_other(
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    first = headgate_worker(kafka_broker.address, kafka_name, QUICK)
    body = {"connector.class": "FileStreamSource", "file": str(tmp_path / "in"), "topic": "t"}
    assert first.rest.put(f"/connectors/{kafka_name}/config", body).status == 201
    said(first, f"status status-task-{kafka_name}-0")
    topics = {
        f"{kind}.storage.topic": f"{kafka_name}-other-{kind}"
        for kind in ("config", "offset", "status")
    }
    second = headgate_worker(kafka_broker.address, kafka_name, {**QUICK, **topics})
    told = said(second, "this worker's config topic has nothing after")
    assert f"but the leader {first.url}/ has read up to" in told
    assert "Compare config.storage.topic and bootstrap.servers" in told
    assert f"{second.url}/ never read as far as this leader" in said(first, "never read as far")
    assert first.rest.get(f"/connectors/{kafka_name}/status").status == 200
    for file in (first.file, second.file):
        assert_seen_from_outside(file)


def assert_seen_from_outside(file: Path) -> None:
    """Soon: a look may fall on a moment in which one of the two is alone in the group."""
    until = time.monotonic() + SECONDS
    while True:
        findings = observed("--properties", str(file))["findings"]
        if any("config.storage.topic" in each or "other topics" in each for each in findings):
            return
        assert time.monotonic() < until, findings
