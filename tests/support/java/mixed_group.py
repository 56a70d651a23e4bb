"""A group of Java workers and ours on Kafka: its leader, the owners of its tasks, and its
topics."""

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message, TopicPartition
from support.commands.worker import HeadgateWorker
from support.kafka.cluster import await_true, committed_reader, end_offset

from headgate.membership.codec import CODECS
from headgate_kafka.group.describe import DescribedGroup, GroupDescriber
from local_kafka.java_connect import JavaWorker, Reply, Rest

AnyWorker = JavaWorker | HeadgateWorker
STABLE_S = 90.0
"""Seconds for several rounds, in which workers wait for each other's tasks."""
ASK_S = 60.0


@dataclass(frozen=True, slots=True)
class Told:
    """A status of a connector or task, from a record of the status topic."""

    at_ms: int
    worker: str
    state: str
    trace: str = ""
    """The trace of a status FAILED."""
    config_offset: int | None = None
    """The config offset up to which the worker had taken account of the config topic. None: the
    status is from a Java worker."""
    repeated: bool = False
    """The status repeats the one before it, with a later config offset."""


def asked(rest: Rest, method: str, path: str, body: Any = None) -> Reply:
    """Send a request, and send it again while Java answers that a rebalance is under way."""
    until = time.monotonic() + ASK_S
    while True:
        reply = rest.call(method, path, body)
        if reply.status not in (409, 503) or "already exists" in str(reply.body):
            return reply
        assert time.monotonic() < until, reply
        time.sleep(0.05)


class MixedGroup:
    """One group. Its internal topics have the names of `local_kafka.java_connect.defaults`."""

    STATUS_PARTITIONS = 2

    def __init__(self, address: str, group: str) -> None:
        self.address, self.group = address, group
        self.describer = GroupDescriber({"bootstrap_servers": [address]})

    def described(self) -> DescribedGroup | None:
        """Return the group's description, or None unless the group is stable."""
        group = self.describer.describe(self.group)
        return group if group.state == "Stable" else None

    def leader(self) -> str | None:
        """Return the URL of the worker that leads, or None while the group is not stable."""
        group = self.described()
        if group is None:
            return None
        codec = CODECS[group.protocol]
        names = {m.member_id: codec.decode_metadata(m.metadata).url for m in group.members}
        leaders = {codec.decode_assignment(m.assignment).leader for m in group.members}
        return names.get(next(iter(leaders)), "").rstrip("/") if len(leaders) == 1 else None

    def members(self) -> int:
        group = self.described()
        return 0 if group is None else len(group.members)

    def protocol(self) -> str:
        """Return the protocol of the newest round.

        A round that is under way is waited for. With two members, another may follow at once.
        """
        until = time.monotonic() + STABLE_S
        while (group := self.described()) is None:
            assert time.monotonic() < until, f"no round was over within {STABLE_S:g} s"
            time.sleep(0.05)
        return group.protocol

    def owners(self, worker: AnyWorker, *connectors: str) -> set[str]:
        """Return the URLs of the workers that run tasks of these connectors."""
        bodies: list[Any] = [worker.rest.status(name).body for name in connectors]
        return {
            f"http://{task['worker_id']}"
            for body in bodies
            for task in body.get("tasks", [])
            if task["state"] == "RUNNING"
        }

    def messages(self, topic: str, partition: int = 0) -> list[Message]:
        """Return all messages of a partition that a committed reader sees now."""
        # Of a partition that never rests the client reports no end.
        end = end_offset(self.address, topic, partition, stable=True)
        quickly = {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        reader = committed_reader(self.address, **quickly)
        reader.assign([TopicPartition(topic, partition, 0)])
        found: list[Message] = []
        while (message := reader.poll(10)) is not None and (message.offset() or 0) < end:
            assert message.error() is None, message.error()
            found.append(message)
        reader.close()
        return found

    def config_records(self, key: str) -> list[Message]:
        """Return all records of a key that are now in the config topic."""
        written = self.messages(f"{self.group}-configs")
        return [message for message in written if message.key() == key.encode()]

    def commits(self, name: str) -> int:
        """Return how often task configs of a connector were committed."""
        return len(self.config_records(f"commit-{name}"))

    def told_of_tasks(self) -> dict[str, list[Told]]:
        """Return by key all statuses of tasks that were written to the status topic, in order."""
        return self.told("status-task-")

    def told(self, *beginnings: str) -> dict[str, list[Told]]:
        """Return by key all statuses of the connectors and tasks whose keys have one of these
        beginnings, in order."""
        found: dict[str, list[Told]] = {}
        before: dict[str, tuple[Any, int]] = {}
        for partition in range(self.STATUS_PARTITIONS):
            for message in self.messages(f"{self.group}-status", partition):
                key = (message.key() or b"").decode()
                if key.startswith(beginnings) and message.value():
                    value = json.loads(message.value() or b"")
                    offset = value.pop("config_offset", None)
                    known, earlier = before.get(key, (None, 0))
                    found.setdefault(key, []).append(
                        Told(
                            message.timestamp()[1],
                            value["worker_id"],
                            value["state"],
                            value.get("trace") or "",
                            offset,
                            offset is not None and value == known and offset > earlier,
                        )
                    )
                    before[key] = value, offset or 0
        return found

    def ran(self) -> Counter[tuple[str, str]]:
        """Count the runs of each connector or task on each worker, by the key of its status.

        A run that repeats RUNNING to take account of a later change or restart counts once.
        """
        told = self.told("status-connector-", "status-task-")
        return Counter(
            (key, each.worker)
            for key, history in told.items()
            for each in history
            if each.state == "RUNNING" and not each.repeated
        )

    @contextlib.contextmanager
    def runs_anew(self, key: str) -> Iterator[None]:
        """Wait, at the end of the block, until the connector or task has been started anew.

        Its state may say RUNNING all the while. A Java worker that is asked to stop work that is
        still starting may write RUNNING for it while another run is there, and never take that
        back.
        """
        before = self._runs(key)
        configs = end_offset(self.address, f"{self.group}-configs", 0, stable=True)

        def runs_anew() -> bool:
            # Ours waits with what it has to write, and then writes the last word of each key. So
            # RESTARTING may be missing between two RUNNING.
            later = any(
                each.state == "RUNNING" and (each.config_offset or 0) > configs
                for each in self.told(key).get(key, [])
            )
            return later or self._runs(key) > before

        yield
        await_true(f"another run of {key}", runs_anew, ASK_S)

    def _runs(self, key: str) -> int:
        return sum(count for (found, _), count in self.ran().items() if found == key)

    def close(self) -> None:
        self.describer.close()
