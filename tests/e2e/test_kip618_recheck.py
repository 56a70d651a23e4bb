"""KIP-618's worker F has its fencing done, and blocks before its producer is initialised.

By the time it goes on, the connector has new task configs and its tasks are assigned to another
worker, of which F has not heard. Kafka still accepts F's producer, and so fences the rightful one.
Only the recheck of the config topic then keeps F's task from the topic.
"""

import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from support.kafka.cluster import (
    KafkaCluster,
    KeptWorker,
    await_true,
    create_topic,
    producer_epoch,
    quick_properties,
    read_committed,
    states_ever,
)
from support.kafka.held_port import HeldPort

from local_kafka.broker import Broker
from local_kafka.jvm import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

LINES = 50
BEFORE, AFTER = 4, 5
"""Tasks of the connector."""
STALE, IDLE = 2, 0
"""Tasks of F, as it knows them. Of the new ones of these names the first has something to commit
while F's producers are the newest, and the second has not."""
QUICK = {"session.timeout.ms": "60000", "rebalance.timeout.ms": "3000"}
"""Who hears nothing is out for it does not join, and does not know it."""
OF_F = {"heartbeat.interval.ms": "20000"}


class Input:
    """A directory, and what a topic has of it."""

    def __init__(self, folder: Path, address: str, topic: str) -> None:
        self._folder = folder
        self._address = address
        self._topic = topic
        self._written: dict[int, list[bytes]] = {}
        folder.mkdir()

    def write(self, number: int) -> None:
        """A file, or so many more lines of it."""
        lines = self._written.setdefault(number, [])
        more = [b"%d.%d" % (number, len(lines) + n) for n in range(LINES)]
        lines += more
        with (self._folder / f"{number}.txt").open("ab") as file:
            file.writelines(line + b"\n" for line in more)

    def await_delivery(self, why: Callable[[], str]) -> None:
        wanted = sum(len(lines) for lines in self._written.values())
        await_true("delivery", lambda: len(self._values()) >= wanted, 30, why)
        self.check()

    def check(self) -> None:
        """Every line is there once, and those of a file are in its order."""
        found: dict[int, list[bytes]] = {}
        for value in self._values():
            found.setdefault(int(value.split(b".")[0]), []).append(value)
        assert found == self._written

    def _values(self) -> list[bytes]:
        return [value for _, value in read_committed(self._address, self._topic)]


def numbers_of(before: Iterable[int], after: Iterable[int]) -> int:
    """A file that is read by one of these tasks before, and by one of those after."""
    return next(
        n
        for n in itertools.count()
        if (key := zlib.crc32(b"%d.txt" % n)) % BEFORE in before and key % AFTER in after
    )


class Ways:
    """A broker with two listeners: `broker.address`, and one that brokers advertise to clients that
    bootstrap at `worker.address`. F's tasks reach their producers by `producer`."""

    def __init__(self, own_broker: Callable[..., Broker]) -> None:
        plain, behind = free_ports(2)
        self.worker = HeldPort(f"127.0.0.1:{behind}")
        listeners = [f"PLAIN://127.0.0.1:{plain}", f"HELD://127.0.0.1:{behind}"]
        told = [listeners[0], f"HELD://{self.worker.address}"]
        kinds = [f"{name}:PLAINTEXT" for name in ("PLAIN", "HELD", "CONTROLLER")]
        settings = {
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(told),
            "listener.security.protocol.map": ",".join(kinds),
        }
        self.broker = own_broker(port=plain, settings=settings, own_controller=True)
        self.producer = HeldPort(self.broker.address)

    def close(self) -> None:
        self.worker.close()
        self.producer.close()


@pytest.fixture
def ways(own_broker: Callable[..., Broker]) -> Iterator[Ways]:
    made = Ways(own_broker)
    yield made
    made.close()


def test_a_task_that_blocked_before_its_producer_was_initialised_gives_up(
    ways: Ways, kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    address = ways.broker.address
    create_topic(address, "t")
    lines = Input(tmp_path / "in", address, "t")
    config = {
        "connector.class": "DirectorySource",
        "path": str(tmp_path / "in"),
        "topic": "t",
        "poll.interval.ms": "100",
        "offsets.storage.topic": "own-offsets",
        **{f"{role}.override.bootstrap.servers": address for role in ("admin", "consumer")},
    }
    blocking = {"producer.override.bootstrap.servers": ways.producer.address}
    cluster = two_workers(kafka_cluster, ways)
    o_worker, f_worker = cluster.workers
    cluster.create("c", {**config, **blocking, "tasks.max": str(BEFORE)})
    await_true("RUNNING", lambda: cluster.running("c", BEFORE), 60, cluster.tail)
    for number in range(BEFORE):
        lines.write(number)
    lines.await_delivery(cluster.tail)
    ways.worker.silence()
    ways.producer.shut()
    begun = block(f_worker, ways.producer)
    cluster.create("c", {**config, "tasks.max": str(AFTER)})
    await_true("RUNNING", lambda: runs_all(o_worker), 60, cluster.tail)
    rightful = producers(address)
    ways.producer.open()
    await_true("recheck", lambda: rechecks(f_worker), 20, f_worker.tail)
    stale = producers(address)
    assert all(stale[name] > rightful[name] for name in stale), "nobody was shut out"
    # The rightful task of one of the names commits, which it cannot, and is started anew.
    lines.write(numbers_of({1, 3}, {STALE}))
    lines.await_delivery(cluster.tail)
    told = o_worker.log.read_text()
    assert f"task c-{STALE} is RESTARTING" in told, told
    assert f"c-{STALE}: fenced: " in told, told
    await_true("RUNNING", lambda: runs_all(o_worker), 60, cluster.tail)
    # Of the other nobody has shut out F's: what it read now it could commit.
    lines.write(numbers_of({IDLE}, {1, 3, 4}))
    lines.await_delivery(cluster.tail)
    assert [name for name, made in producers(address).items() if made == stale[name]] == [
        f"g-c-{IDLE}"
    ]
    assert rechecks(f_worker)
    ways.worker.open()
    for task in (STALE, IDLE):
        gives_up(f_worker, task, begun)
    for number in range(2 * AFTER):
        lines.write(number)
    lines.await_delivery(cluster.tail)
    await_true("RUNNING", lambda: cluster.running("c", AFTER), 60, cluster.tail)
    lines.check()
    states = states_ever(address, "g-status", 2)
    assert states and not any("FAILED" in each for each in states.values()), states


def two_workers(kafka_cluster: Callable[..., KafkaCluster], ways: Ways) -> KafkaCluster:
    """Start O, which leads and has the connector, and F.

    The first member leads. Work is assigned by the order of the member ids, which begin with the
    client ids.
    """
    properties = quick_properties(**QUICK)
    cluster = kafka_cluster(ways.broker.address, "g", 1, {**properties, "client.id": "a"})
    of_f = {**properties, **OF_F, "client.id": "b"}
    more = kafka_cluster(ways.worker.address, "g", 1, of_f)
    cluster.workers += more.workers
    more.workers.clear()
    o_worker, f_worker = cluster.workers
    leader = o_worker.view()["member_id"]
    await_true("round of both", lambda: f_worker.view()["leader"] == leader, 30, cluster.tail)
    assert o_worker.leads
    return cluster


def block(worker: KeptWorker, port: HeldPort) -> int:
    """Start F's tasks again, and hold them before their producers are initialised.

    Returns:
        The length of the worker's log by then.
    """
    for task in (STALE, IDLE):
        reply = worker.rest.post(f"/connectors/c/tasks/{task}/restart")
        assert reply.status == 204, reply

    def blocked() -> bool:
        pending = worker.view()["pending"]
        return port.held >= 2 and all(f"initialising c-{n}" in pending for n in (STALE, IDLE))

    await_true("blocked tasks", blocked, 20, worker.tail)
    held = [each["task"]["task"] for each in worker.view()["tasks"]]
    assert held == sorted((STALE, IDLE)), held
    return len(worker.log.read_text())


def runs_all(worker: KeptWorker) -> bool:
    """All tasks of the new configs are RUNNING there."""
    body = worker.rest.status("c").body
    return [(t["state"], t["worker_id"]) for t in body["tasks"]] == [
        ("RUNNING", worker.worker_id)
    ] * AFTER


def producers(address: str) -> dict[str, tuple[int, int]]:
    """Return the producers that the brokers accept under the transactional ids of F's tasks."""
    names = [f"g-c-{task}" for task in (STALE, IDLE)]
    return {name: producer_epoch(address, name) for name in names}


def rechecks(worker: KeptWorker) -> bool:
    """F's tasks have their producers, and wait for their worker."""
    pending = worker.view()["pending"]
    return all(f"rechecking c-{task}" in pending for task in (STALE, IDLE))


def gives_up(worker: KeptWorker, task: int, begun: int) -> None:
    """The run of the task that had begun by `begun` ends as asked to, and was never RUNNING."""

    def told() -> str:
        return worker.log.read_text()[begun:]

    last_word = re.compile(rf"\bc-{task}: (stopped|abandoned|fenced|lost|failed)\b")
    await_true(f"last word of c-{task}", lambda: last_word.search(told()), 20, worker.tail)
    found = last_word.search(told())
    assert found is not None, told()
    assert found[1] in ("stopped", "abandoned"), found[0]
    before = told()[: found.start()]
    assert f"task c-{task} is RUNNING" not in before, before
