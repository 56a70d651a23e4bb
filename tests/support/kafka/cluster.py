"""Workers on Kafka as processes that a supervisor keeps alive, and the state of their cluster."""

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import KafkaAdminClient
from support.commands.processes import Process, descendants, signal_if_alive
from support.commands.worker import HeadgateWorker

_KEPT = 'while :; do "$@"; sleep 0.3; done'
_ASK_S = 3.0

Described: TypeAlias = Callable[[str], Any]
"""A function from a transactional id to what its coordinator knows of it."""


class KeptWorker(HeadgateWorker):
    """A `headgate worker` under a supervisor that starts it again whenever it ends.

    Its tasks outlive a killed worker for as long as they would outside a test.
    """

    def command(self) -> list[str]:
        return ["/bin/sh", "-c", _KEPT, "keeper", *super().command()]

    def look(self) -> list[Process]:
        """Return all processes below the supervisor, orphans included."""
        return [] if self._process is None else descendants(self._process.guard_pid)

    def worker(self) -> Process | None:
        """Return the worker's own process, or None if there is none."""
        found = [p for p in self.look() if "headgate_runtime.cli worker" in p.command]
        return next((p for p in found if not p.command.startswith("/bin/sh") and p.alive()), None)

    def tasks(self, task: str) -> list[Process]:
        """Return the processes of the runs of `task`, those of earlier worker processes
        included."""
        below = [p for p in self.look() if "headgate_runtime.tasks." in p.command and p.alive()]
        return [p for p in below if p.command.rstrip().endswith(f" {task}")]

    def zygote(self) -> Process | None:
        """Return the process from which the worker's tasks are forked."""
        worker = self.worker()
        found = [p for p in self.look() if "headgate_runtime.tasks.zygote" in p.command]
        return next((p for p in found if worker is not None and p.parent == worker.pid), None)

    def change(self, properties: Mapping[str, str]) -> None:
        """Stop the worker cleanly, and return when it is ready again with these properties."""
        before = self.worker()
        assert before is not None, self.tail()
        self.properties.update(properties)
        self._write_properties()
        os.kill(before.pid, signal.SIGTERM)
        await_true("clean stop", lambda: not before.alive(), 30, self.tail)
        self.await_ready()

    def view(self) -> Any:
        """Return the worker's view of itself, of its group and of what it runs."""
        return self.rest.get("/headgate/worker").body

    @property
    def leads(self) -> bool:
        view = self.view()
        return bool(view["leader"]) and view["leader"] == view["member_id"]

    @property
    def worker_id(self) -> str:
        return self.url.removeprefix("http://")


class KafkaCluster:
    """Workers of one group. A request goes to the first of them that answers."""

    def __init__(self, workers: list[KeptWorker]) -> None:
        self.workers = workers
        self._client = httpx.Client(timeout=_ASK_S, trust_env=False)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any] | None:
        """Return status and body of the first answer, or None if no worker answers."""
        for worker in self.workers:
            with contextlib.suppress(httpx.TransportError):
                content = {} if body is None else {"json": body}
                answer = self._client.request(method, worker.url + path, **content)  # type: ignore[arg-type]
                return answer.status_code, answer.json() if answer.content else None
        return None

    def create(self, name: str, config: Mapping[str, str]) -> None:
        until = time.monotonic() + 30
        while (answer := self.ask("PUT", f"/connectors/{name}/config", dict(config))) is None or (
            answer[0] not in (200, 201)
        ):
            assert time.monotonic() < until, answer
            time.sleep(0.2)

    def status(self, name: str) -> Any:
        """Return the body of Connect's status, or None if no worker answers with one."""
        answer = self.ask("GET", f"/connectors/{name}/status")
        return answer[1] if answer is not None and answer[0] == 200 else None

    def running(self, name: str, tasks: int) -> bool:
        """Return whether the connector and `tasks` tasks of it are RUNNING."""
        body = self.status(name)
        if body is None:
            return False
        states = [body["connector"]["state"], *(task["state"] for task in body["tasks"])]
        return bool(states == ["RUNNING"] * (tasks + 1))

    def tail(self) -> str:
        return "\n".join(f"== {w.worker_id}\n{w.tail()}" for w in self.workers)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self._client.close()


def await_true(
    what: str,
    true: Callable[[], object],
    seconds: float,
    why: Callable[[], str] = str,
    pause_s: float = 0.05,
) -> None:
    """Wait until a condition holds. Raises AssertionError with the text of `why()` after
    `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"no {what} within {seconds:g} s\n{why()}")
        time.sleep(pause_s)


class Watcher:
    """A thread that reads a topic of one partition, as a committed reader does."""

    def __init__(self, address: str, topic: str) -> None:
        self.values: list[bytes] = []
        self._consumer = committed_reader(address)
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return len(self.values)

    def _read(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(10_000, 0.05):
                if message.error() is None:
                    self.values.append(message.value())

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()


def committed_reader(address: str, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 5,
            "log_level": 0,
            **more,
        }
    )


def read_committed(address: str, topic: str, partitions: int = 1) -> list[tuple[bytes, Any]]:
    """Return (key, value) of all that a new committed reader now sees in `topic`, partition by
    partition. Raises AssertionError while a transaction is open."""
    consumer = committed_reader(address, **{"enable.partition.eof": True})
    found: list[tuple[bytes, Any]] = []
    try:
        for number in range(partitions):
            end = end_offset(address, topic, number)
            consumer.assign([TopicPartition(topic, number, 0)])
            deadline = time.monotonic() + 60
            over = end == 0
            while not over:
                assert time.monotonic() < deadline, f"{topic} cannot be read to {end}"
                for message in consumer.consume(10_000, 0.05):
                    if message.error() is None:
                        found.append((message.key(), message.value()))
                    else:
                        over = over or message.offset() >= end
    finally:
        consumer.close()
    return found


def end_offset(address: str, topic: str, partition: int = 0, *, stable: bool = False) -> int:
    """Return the high watermark, which is after the records of open transactions. With `stable`,
    return the end for committed readers."""
    level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    place = TopicPartition(topic, partition)
    asked = client.list_offsets({place: OffsetSpec.latest()}, isolation_level=level)
    return int(asked[place].result(20).offset)


def has_open_transaction(address: str, topic: str, partitions: int = 1) -> bool:
    """Return whether committed readers of `topic` wait for an open transaction."""
    return any(
        end_offset(address, topic, n, stable=True) < end_offset(address, topic, n)
        for n in range(partitions)
    )


def producer_epoch(address: str, transactional_id: str) -> tuple[int, int]:
    """Return the producer id and epoch that the brokers accept. Every earlier epoch is fenced."""
    found = described_transaction(address, transactional_id)
    return int(found.producer_id), int(found.producer_epoch)


def described_transaction(address: str, transactional_id: str) -> Any:
    """Return what the coordinator knows of a transactional id, as kafka-python gives it."""
    with transactions(address) as described:
        return described(transactional_id)


@contextlib.contextmanager
def transactions(address: str) -> Iterator[Described]:
    """Yield `described_transaction` over one open client, with which several looks take
    milliseconds."""
    client = KafkaAdminClient(bootstrap_servers=address)
    try:
        yield lambda name: client.describe_transactions([name])[name]
    finally:
        client.close()


def create_topic(address: str, topic: str, partitions: int = 1, replicas: int = 1) -> None:
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for future in client.create_topics([NewTopic(topic, partitions, replicas)]).values():
        future.result(20)


def alter_topic(address: str, topic: str, settings: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    client.incremental_alter_configs([resource])[resource].result(10)


def states_ever(address: str, status_topic: str, partitions: int) -> dict[str, set[str]]:
    """Return by key every state that is still in the status topic."""
    found: dict[str, set[str]] = {}
    for key, value in read_committed(address, status_topic, partitions):
        if value is not None and key.startswith((b"status-connector-", b"status-task-")):
            found.setdefault(key.decode(), set()).add(json.loads(value)["state"])
    return found


def quick_properties(**more: str) -> dict[str, str]:
    """Return properties of a worker whose death its group notices within seconds. The broker needs
    `QUICK_GROUPS`."""
    return {
        "exactly.once.source.support": "enabled",
        "headgate.task.runner": "process",
        "session.timeout.ms": "3000",
        "heartbeat.interval.ms": "500",
        "rebalance.timeout.ms": "5000",
        "scheduled.rebalance.max.delay.ms": "500",
        "task.shutdown.graceful.timeout.ms": "2000",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        **more,
    }


QUICK_GROUPS = {"group.min.session.timeout.ms": "1000"}


@pytest.fixture
def kafka_cluster(tmp_path: Path) -> Iterator[Callable[..., KafkaCluster]]:
    """``make(address, group, count, properties)`` starts workers, which end with the test."""
    made: list[KafkaCluster] = []

    def make(address: str, group: str, count: int, properties: Mapping[str, str]) -> KafkaCluster:
        fixed = {"bootstrap.servers": address, "group.id": group}
        start = sum(len(cluster.workers) for cluster in made)
        cluster = KafkaCluster(
            [
                KeptWorker(tmp_path / f"worker-{start + n}", {**fixed, **properties})
                for n in range(count)
            ]
        )
        made.append(cluster)
        for worker in cluster.workers:
            worker.launch()
        for worker in cluster.workers:
            worker.await_ready()
        return cluster

    yield make
    for cluster in made:
        cluster.close()


def kill(process: Process | None) -> bool:
    """Kill a process. Return whether there was one to kill."""
    if process is None or not process.alive():
        return False
    return signal_if_alive(process.pid, signal.SIGKILL)
