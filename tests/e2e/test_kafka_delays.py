"""`scheduled.rebalance.max.delay.ms` holds on a real broker, also when the leader that set the
delay is lost."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.kafka.cluster import (
    QUICK_GROUPS,
    KafkaCluster,
    KeptWorker,
    await_true,
    quick_properties,
)

from headgate.membership.codec import CODECS
from headgate_kafka.group.describe import GroupDescriber
from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

GROUP = "g"
TASKS = 8
DELAY_S = 9.0
SESSION_S = 3.0
SLOW_S = 1.0
"""Between a round and our hearing of it."""


class Group:
    """The workers' group, as its coordinator describes it."""

    def __init__(self, describer: GroupDescriber, cluster: KafkaCluster) -> None:
        self._describer = describer
        self._cluster = cluster

    def round_of(self, members: int) -> tuple[float, float]:
        """Return when the first round of this many members is over, and the rest of the delay in
        seconds."""
        left_ms: list[int] = []

        def over() -> bool:
            found = self._describer.describe(GROUP)
            if found.state == "Stable" and len(found.members) == members:
                assert found.protocol == "headgate"
                codec = CODECS[found.protocol]
                left_ms[:] = [codec.decode_assignment(m.assignment).delay_ms for m in found.members]
            return bool(left_ms)

        await_true(f"round of {members}", over, 30, self._cluster.tail)
        assert len(set(left_ms)) == 1, left_ms
        return time.monotonic(), left_ms[0] / 1000


@pytest.fixture
def cluster(
    own_broker: Callable[..., Broker], kafka_cluster: Callable[..., KafkaCluster]
) -> KafkaCluster:
    broker = own_broker(settings=QUICK_GROUPS)
    more = {
        "session.timeout.ms": str(int(SESSION_S * 1000)),
        "scheduled.rebalance.max.delay.ms": str(int(DELAY_S * 1000)),
        "headgate.task.runner": "thread",
    }
    return kafka_cluster(broker.address, GROUP, 3, quick_properties(**more))


@pytest.fixture
def group(cluster: KafkaCluster) -> Iterator[Group]:
    address = cluster.workers[0].properties["bootstrap.servers"]
    describer = GroupDescriber({"bootstrap_servers": [address]})
    with contextlib.closing(describer):
        yield Group(describer, cluster)


def test_a_new_leader_goes_on_with_the_delay_of_the_one_that_is_killed_in_it(
    cluster: KafkaCluster, group: Group, tmp_path: Path
) -> None:
    """A worker is lost; its tasks wait for it. The leader is lost too while they do: they are given
    away when the time is up that was told first, and the leader's own with them."""
    path = tmp_path / "in"
    path.mkdir()
    config = {"connector.class": "DirectorySource", "path": str(path), "topic": "t"}
    cluster.create("c", {**config, "tasks.max": str(TASKS)})
    await_true("RUNNING", lambda: cluster.running("c", TASKS), 60, cluster.tail)
    await_true("shares", lambda: all(tasks(w) for w in cluster.workers), 30, cluster.tail)
    [leader] = [worker for worker in cluster.workers if worker.leads]
    lost, left = [worker for worker in cluster.workers if worker is not leader]
    kept = tasks(left)
    lose(cluster, lost)
    first, delay_s = group.round_of(2)
    assert 0 < DELAY_S - delay_s + SLOW_S < 2 * SLOW_S
    assert tasks(left) == kept
    lose(cluster, leader)
    second, left_s = group.round_of(1)
    assert left.leads
    assert second - first > SESSION_S / 2, "too soon after the first round to tell them apart"
    assert abs(second + left_s - (first + delay_s)) < SLOW_S
    while (held := tasks(left)) == kept:
        assert time.monotonic() < second + DELAY_S, "they wait a second time"
        time.sleep(0.05)
    assert time.monotonic() > first + delay_s - SLOW_S, "they have not waited"
    assert held == list(range(TASKS)), "all that was free at once"
    await_true("RUNNING", lambda: cluster.running("c", TASKS), 30, cluster.tail)
    starts = [left.log.read_text().count(f"task c-{n} starts") for n in kept]
    assert starts == [1] * len(kept), "what was there went on"


def lose(cluster: KafkaCluster, worker: KeptWorker) -> None:
    """Kill a worker for good."""
    worker.kill()
    cluster.workers.remove(worker)


def tasks(worker: KeptWorker) -> list[int]:
    """Return the tasks of `c` that the member holds."""
    return sorted(int(each["task"]["task"]) for each in worker.view()["tasks"])
