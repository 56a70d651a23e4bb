"""Exactly-once tasks of a Java worker and of ours run under one connector, which gets new task
configs while records flow.

The leader fences all producers that wrote before, and only then do tasks of either worker start
again. The brokers' own transaction log shows the fate of each transactional id.
"""

import contextlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from support.commands.worker import HeadgateWorker
from support.java.mixed_group import AnyWorker, MixedGroup, Told
from support.java.twin_source import NAME
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic

from headgate.java.hash import string_hash
from local_kafka.java_connect import JavaWorker

pytestmark = pytest.mark.slow

TEXT = "org.apache.kafka.connect.storage.StringConverter"
OF_TASKS_MS = 45_000
"""Limit of a task's transactions. Nobody who fences gives it, so the log tells them apart."""
SETTINGS = {
    "key.converter": TEXT,
    "value.converter": TEXT,
    "exactly.once.source.support": "enabled",
    "scheduled.rebalance.max.delay.ms": "0",
    "producer.transaction.timeout.ms": str(OF_TASKS_MS),
}
TASKS = (3, 2, 3)
"""Of one generation after the other."""
SECONDS = 60
FLOW = 100
TRANSACTIONS = "__transaction_state"
EMPTY = 0


@dataclass(frozen=True, slots=True)
class Initialised:
    """A request for a producer id, by a task or by the client that fences it."""

    at_ms: int
    by_task: bool


class Twins(MixedGroup):
    """Connector `twin` in a group of two workers, the first of which leads."""

    def __init__(self, address: str, group: str, workers: tuple[AnyWorker, AnyWorker]) -> None:
        super().__init__(address, group)
        self.ids = {worker.url.removeprefix("http://") for worker in workers}
        self.rest = workers[1].rest
        self.topic = f"{group}-numbers"
        create_topic(address, self.topic)

    def configure(self, tasks: int) -> "Generation":
        """Give new task configs, and return when `tasks` tasks run again, some of them on each
        worker."""
        config = {"connector.class": NAME, "topic": self.topic, "pause.s": "0.05"}
        body = {**config, "tasks.max": str(tasks)}
        commits = self.commits("twin")
        await_true(
            "answer",  # Java has none during a rebalance
            lambda: self.rest.put("/connectors/twin/config", body).status in (200, 201),
            SECONDS,
        )
        await_true("commit", lambda: self.commits("twin") > commits, SECONDS)
        await_true("task count record", self.counted, SECONDS)
        new = Generation(tasks, self.last("commit-twin"), self.last("tasks-fencing-twin"))
        assert json.loads(new.count.value() or b"") == {"task-count": tasks}
        await_true(
            "tasks on both workers",
            lambda: {told.worker for told in self.running(new)} == self.ids,
            SECONDS,
            lambda: str(self.told_of_tasks()),
        )
        self.flow(tasks)
        return new

    def last(self, key: str) -> Message:
        return self.config_records(key)[-1]

    def counted(self) -> bool:
        """The newest task configs have their task count record."""
        counts = self.config_records("tasks-fencing-twin")
        return bool(counts) and offset(counts[-1]) > offset(self.last("commit-twin"))

    def running(self, new: "Generation") -> list[Told]:
        """Return the last status of each task of a generation, or nothing unless all run."""
        told = self.told_of_tasks()
        found = [told.get(f"status-task-twin-{n}", [])[-1:] for n in range(new.tasks)]
        since = at_ms(new.count)
        run = all(one and one[0].state == "RUNNING" and one[0].at_ms >= since for one in found)
        return [told for one in found for told in one] if run else []

    def numbers(self) -> dict[str, list[str]]:
        """Return the numbers of each task that a committed reader sees, in order."""
        found: dict[str, list[str]] = {}
        for message in self.messages(self.topic):
            key, value = message.key() or b"", message.value() or b""
            found.setdefault(key.decode(), []).append(value.decode())
        return found

    def flow(self, tasks: int) -> None:
        """All of these go on."""
        before = self.numbers()

        def more() -> bool:
            now = self.numbers()
            keys = [str(n) for n in range(tasks)]
            return all(len(now.get(k, ())) > len(before.get(k, ())) + FLOW for k in keys)

        await_true("progress", more, SECONDS, lambda: str(self.rest.status("twin")))

    def initialised(self, task: int) -> list[Initialised]:
        """Return the clients that asked for a producer under a task's transactional id, in
        order."""
        wanted = f"{self.group}-twin-{task}".encode()
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        partitions = client.list_topics(TRANSACTIONS).topics[TRANSACTIONS].partitions
        unsigned = string_hash(wanted.decode())
        place = min(unsigned, 2**32 - unsigned) % len(partitions)  # of a Java int without its sign
        found = []
        for message in self.messages(TRANSACTIONS, place):
            if (message.key() or b"")[4:] != wanted:  # behind a version and a length
                continue
            _, _, _, limit_ms, state = struct.unpack_from(">hqhib", message.value() or b"")
            if state == EMPTY:  # nothing was sent yet
                found.append(Initialised(at_ms(message), limit_ms == OF_TASKS_MS))
        return found


@dataclass(frozen=True, slots=True)
class Generation:
    tasks: int
    commit: Message
    count: Message
    """The task count record that followed it."""


def at_ms(message: Message) -> int:
    return int(message.timestamp()[1])


def offset(message: Message) -> int:
    found = message.offset()
    assert found is not None
    return found


def check_fence(group: Twins, before: Generation, new: Generation) -> None:
    """All producers of `before` were shut out after the task configs and before the task count
    record of `new`; no task was given one in between, each of `new` after that."""
    for task in range(max(before.tasks, new.tasks)):
        asked = [each for each in group.initialised(task) if each.at_ms >= at_ms(new.commit)]
        until_count = [each for each in asked if each.at_ms <= at_ms(new.count)]
        assert [each.by_task for each in until_count] == [False] * (task < before.tasks), asked
        since = [each.by_task for each in asked[len(until_count) :]]
        assert since[: 1 if task < new.tasks else 0] == [True] * (task < new.tasks), asked


@pytest.mark.exhaustive
@pytest.mark.parametrize("java_leads", [False, True])
def test_all_producers_are_shut_out_before_anybodys_tasks_start_anew(
    java_leads: bool,
    kafka_broker: Found,
    kafka_name: str,
    places: Path,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
) -> None:
    makes: list[Callable[[], AnyWorker]] = [
        lambda: headgate_worker(kafka_broker.address, kafka_name, SETTINGS),
        lambda: java_worker(
            kafka_broker.address, kafka_name, {**SETTINGS, "plugin.path": str(places)}
        ),
    ]
    leader, follower = (make() for make in (reversed(makes) if java_leads else makes))
    with contextlib.closing(Twins(kafka_broker.address, kafka_name, (leader, follower))) as group:
        generations = []
        for tasks in TASKS:
            generations.append(group.configure(tasks))
            assert group.leader() == leader.url
        for before, new in pairwise(generations):
            check_fence(group, before, new)
        assert group.rest.put("/connectors/twin/stop").status == 204
        group.rest.await_tasks("twin", [], SECONDS)
        # Of each task every number once, in order, whoever wrote it.
        numbers = group.numbers()
        assert sorted(numbers) == [str(n) for n in range(max(TASKS))]
        for found in numbers.values():
            assert found == [str(n) for n in range(len(found))]
