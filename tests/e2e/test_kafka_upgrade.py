"""A cluster goes from at-least-once to exactly-once and back, worker by worker, while records flow.
Some source offsets are in a connector's own topic."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka.errors import CoordinatorNotAvailableError, TransactionalIdNotFoundError
from support.kafka.broker import Found
from support.kafka.cluster import (
    QUICK_GROUPS,
    KafkaCluster,
    Watcher,
    await_true,
    create_topic,
    kill,
    producer_epoch,
    quick_properties,
    read_committed,
    states_ever,
)
from support.kafka.worker import KafkaWorker, kafka_worker

from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SUPPORT = "exactly.once.source.support"
OFFSETS = "/connectors/c/offsets"


class Growing:
    """A file that lines are appended to all the time, until the block ends."""

    def __init__(self, file: Path) -> None:
        self.count = 0
        self._file = file
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        with self._file.open("a") as out:
            while not self._over.wait(0.02):
                out.writelines(f"line {n}\n" for n in range(self.count, self.count + 20))
                out.flush()
                self.count += 20

    def __enter__(self) -> "Growing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


class Upgrade:
    def __init__(self, broker: Broker, cluster: KafkaCluster, watcher: Watcher) -> None:
        self.broker = broker
        self.cluster = cluster
        self.watcher = watcher

    def flowing(self) -> None:
        before = self.watcher.count
        await_true("progress", lambda: self.watcher.count > before, 60, self.cluster.tail)

    def to(self, support: str) -> None:
        """Restart one worker after the other."""
        for worker in self.cluster.workers:
            self.flowing()
            worker.change({SUPPORT: support})
            self.flowing()

    def kill_the_task(self) -> None:
        self.flowing()
        for worker in self.cluster.workers:
            for task in worker.tasks("c-0"):
                kill(task)

    def kill_its_worker(self) -> None:
        self.flowing()
        for worker in self.cluster.workers:
            if worker.tasks("c-0"):
                kill(worker.worker())

    def claimed(self) -> bool:
        """Return whether a leader has used the transactional id that writes to the config topic.
        Brokers have no coordinator for it before the first transaction."""
        try:
            return producer_epoch(self.broker.address, "connect-cluster-g") is not None
        except (TransactionalIdNotFoundError, CoordinatorNotAvailableError):
            return False

    def counts(self) -> int:
        """Task count records there are."""
        found = read_committed(self.broker.address, "g-configs")
        return sum(key == b"tasks-fencing-c" for key, _ in found)


def test_upgrade_and_downgrade_worker_by_worker(
    own_broker: Callable[..., Broker], kafka_cluster: Callable[..., KafkaCluster], tmp_path: Path
) -> None:
    """No record is lost at any time. Records that were read while all workers had exactly-once are
    there once, whatever was killed."""
    broker = own_broker(settings=QUICK_GROUPS)
    create_topic(broker.address, "lines")
    more = {SUPPORT: "disabled", "offset.flush.interval.ms": "200"}
    cluster = kafka_cluster(broker.address, "g", 2, quick_properties(**more))
    watcher = Watcher(broker.address, "lines")
    upgrade = Upgrade(broker, cluster, watcher)
    config = {"connector.class": "FileStreamSource", "tasks.max": "1", "topic": "lines"}
    try:
        with Growing(tmp_path / "lines.txt") as file:
            cluster.create("c", {**config, "file": str(tmp_path / "lines.txt")})
            upgrade.flowing()
            assert not upgrade.claimed()
            upgrade.to("preparing")
            assert upgrade.counts() == 0
            await_true("a leader in transactions", upgrade.claimed, 20, cluster.tail)
            upgrade.to("enabled")
            assert upgrade.counts() > 0
            first = file.count
            for blow in (upgrade.kill_the_task, upgrade.kill_its_worker) * 2:
                blow()
            upgrade.flowing()
            last = file.count
            # All of these are read before any worker has it off.
            seen = b"line %d" % (last - 1)
            await_true("the last of them", lambda: seen in watcher.values, 60, cluster.tail)
            upgrade.to("disabled")
            upgrade.kill_the_task()
            upgrade.flowing()
        end = b"line %d" % (file.count - 1)
        await_true("last line", lambda: end in watcher.values, 60, cluster.tail)
        await_true("RUNNING", lambda: cluster.running("c", 1), 60, cluster.tail)
    finally:
        watcher.close()
    found = [value for _, value in read_committed(broker.address, "lines")]
    assert list(dict.fromkeys(found)) == [b"line %d" % n for n in range(file.count)]
    once = [v for v in found if first <= int(v.split()[1]) < last]
    assert once == [b"line %d" % n for n in range(first, last)]
    states = states_ever(broker.address, "g-status", 2)
    assert not any("FAILED" in each for each in states.values()), states


# -- a topic of its own --


class OwnOffsets:
    """Connector `c`, which reads a file of ten lines, and its two offsets topics."""

    def __init__(
        self, folder: Path, worker: KafkaWorker, group: str, global_at: str, own_at: str, own: str
    ) -> None:
        self.worker = worker
        self.topics = {"global": (global_at, f"{group}-offsets"), "own": (own_at, own)}
        self.file = str(folder / "lines.txt")
        self.written = 0
        self.write()
        self.data = f"{group}-t"
        self.config = {
            "connector.class": "FileStreamSource",
            "file": self.file,
            "topic": self.data,
            "tasks.max": "1",
        }

    def write(self) -> None:
        with Path(self.file).open("a") as out:
            out.writelines(f"line {n}\n" for n in range(self.written, self.written + 10))
        self.written += 10

    def put(self, config: dict[str, str]) -> None:
        reply = self.worker.rest.put("/connectors/c/config", config)
        assert reply.status in (200, 201), reply
        self.worker.rest.await_tasks("c", ["RUNNING"], 30)

    def last(self, which: str) -> Any:
        """The latest value of the connector's only key in a topic."""
        found = read_committed(*self.topics[which], self.partitions(which))
        return [value for key, value in found if key.startswith(b'["c",')][-1:]

    def partitions(self, which: str) -> int:
        address, topic = self.topics[which]
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        found = client.list_topics(timeout=20).topics
        return len(found[topic].partitions) if topic in found else 0

    def shown(self) -> list[Any]:
        reply = self.worker.rest.get(OFFSETS)
        assert reply.status == 200, reply
        return [each["offset"] for each in reply.body["offsets"]]

    def await_shown(self, position: int) -> None:
        await_true(f"position {position}", lambda: self.shown() == [{"position": position}], 20)

    def stop(self) -> None:
        assert self.worker.rest.put("/connectors/c/stop").status == 204
        self.worker.rest.await_tasks("c", [], 20)

    def resume(self) -> None:
        assert self.worker.rest.put("/connectors/c/resume").status == 202
        self.worker.rest.await_tasks("c", ["RUNNING"], 30)

    def values(self, address: str) -> list[bytes]:
        return [value for _, value in read_committed(address, self.data)]


@pytest.mark.parametrize("implied", [False, True], ids=["named", "other cluster"])
def test_offsets_of_its_own_topic_come_first_and_forgetting_uncovers_nothing(
    kafka_broker: Found,
    own_broker: Callable[..., Broker],
    kafka_name: str,
    tmp_path: Path,
    implied: bool,
) -> None:
    here = kafka_broker.address
    there = own_broker().address if implied else here
    own = f"{kafka_name}-offsets" if implied else f"{kafka_name}-own"
    clients = ("producer", "consumer", "admin") if implied else ()
    overrides = {f"{client}.override.bootstrap.servers": there for client in clients}
    if not implied:
        overrides["offsets.storage.topic"] = own
    create_topic(here, f"{kafka_name}-t")
    if implied:
        create_topic(there, f"{kafka_name}-t")
    with kafka_worker(tmp_path / "w", here, kafka_name) as worker:
        c = OwnOffsets(tmp_path, worker, kafka_name, here, there, own)
        c.put(c.config)
        c.await_shown(70)
        assert c.partitions("own") == 0 or implied
        # Its own topic is made; what the global one says holds until there is more.
        c.put({**c.config, **overrides})
        assert c.shown() == [{"position": 70}]
        c.write()
        c.await_shown(150)
        assert c.last("own") == [b'{"position":150}']
        await_true("copy", lambda: c.last("global") == [b'{"position":150}'], 20)
        c.stop()
        partition = {"filename": c.file}
        change = {"offsets": [{"partition": partition, "offset": {"position": 142}}]}
        reply = worker.rest.patch(OFFSETS, change)
        assert reply.status == 200, reply
        assert c.shown() == [{"position": 142}]
        assert c.last("own") == [b'{"position":142}']
        c.resume()
        c.await_shown(150)
        c.stop()
        reply = worker.rest.delete(OFFSETS)
        assert reply.status == 200, reply
        assert c.shown() == []
        assert (c.last("own"), c.last("global")) == ([None], [None])
        c.resume()
        c.await_shown(150)
        c.stop()
    first, second = range(10), range(10, 20)
    lines = [*second, 19, *first, *second] if implied else [*first, *second, 19, *first, *second]
    assert c.values(there) == [b"line %d" % n for n in lines]
