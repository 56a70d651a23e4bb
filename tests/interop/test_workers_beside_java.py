"""Whole workers beside Java's: one takes over the other's cluster and hands it back, and both live
in one group while leadership moves, by leaves and by kills. Records under exactly-once are there
once, in order."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from support.headgate_worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka_broker import Found
from support.kafka_cluster import Watcher, await_true, committed_reader

from headgate.membership.codec import CODECS
from headgate_kafka.group_describe import GroupDescriber
from local_kafka.java_connect import SINK, SOURCE, JavaWorker

pytestmark = pytest.mark.slow

CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
SETTINGS = {
    "key.converter": CONVERTER,
    "value.converter": CONVERTER,
    "exactly.once.source.support": "enabled",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "500",
    "offset.flush.interval.ms": "500",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "500",
}
STATUS_PARTITIONS = 2
HOLDS = ("RUNNING", "PAUSED")
LEADERSHIP_MOVES = 5
LEADERS_KILLED = 3
MORE_SOURCES = ("one", "two", "three")
"""With two tasks that are no sources there are three for each of two workers: each has a source."""
SECONDS = 90
Worker = JavaWorker | HeadgateWorker
Kill = tuple[str, float]
"""URL of a worker; when, in seconds since the epoch."""
MakeJava = Callable[..., JavaWorker]
MakeHeadgate = Callable[..., HeadgateWorker]


class GrowingFile:
    """Lines that go on being appended until told to stop: what a source reads all the while."""

    def __init__(self, path: Path, per_second: int) -> None:
        self.path = path
        self.lines: list[str] = []
        self._pause_s = 1 / per_second * 10
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        path.touch()
        self._thread.start()

    def _write(self) -> None:
        with self.path.open("a") as file:
            while not self._over.wait(self._pause_s):
                new = [f"line {len(self.lines) + n}" for n in range(10)]
                self.lines += new
                file.write("".join(f"{line}\n" for line in new))
                file.flush()

    def stop(self) -> list[str]:
        self._over.set()
        self._thread.join()
        return self.lines


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingFile]:
    file = GrowingFile(tmp_path / "in.txt", per_second=500)
    yield file
    file.stop()


class Cluster:
    def __init__(self, address: str, group: str, file: Path) -> None:
        self.address, self.group = address, group
        self.topic = f"{group}-lines"
        self.file = file
        self.out = file.with_name("out.txt")
        self.describer = GroupDescriber({"bootstrap_servers": [address]})
        self.watcher: Watcher | None = None

    def create(self, worker: Worker) -> None:
        """A source, its sink, and two connectors that a user has paused and stopped."""
        source = {"connector.class": SOURCE, "file": str(self.file), "topic": self.topic}
        sink = {"connector.class": SINK, "file": str(self.out), "topics": self.topic}
        for name, config in (
            ("src", source),
            ("snk", sink),
            ("paused", {**source, "topic": f"{self.group}-p"}),
            ("stopped", {**source, "topic": f"{self.group}-s"}),
        ):
            assert worker.rest.create(name, {**config, "tasks.max": "1"}).status == 201
        for name in ("paused", "stopped"):
            worker.rest.await_tasks(name, ["RUNNING"], SECONDS)
        assert worker.rest.put("/connectors/paused/pause").status == 202
        assert worker.rest.put("/connectors/stopped/stop").status == 204
        self.watcher = Watcher(self.address, self.topic)

    def seen(self) -> list[str]:
        assert self.watcher is not None
        return [value.decode() for value in list(self.watcher.values)]

    def grows(self, worker: Worker, what: str) -> None:
        """New lines come out while `worker` is asked about it."""
        before = len(self.seen())
        await_true(
            f"progress {what}",
            lambda: len(self.seen()) > before + 500,
            SECONDS,
            lambda: str(worker.rest.status("src")),
        )

    def states(self, worker: Worker) -> dict[str, tuple[str, list[str]]]:
        found = {}
        for name in ("src", "snk", "paused", "stopped"):
            body: Any = worker.rest.status(name).body
            found[name] = (
                body.get("connector", {}).get("state", ""),
                [task["state"] for task in body.get("tasks", [])],
            )
        return found

    def settled(self, worker: Worker) -> None:
        wanted = {
            "src": ("RUNNING", ["RUNNING"]),
            "snk": ("RUNNING", ["RUNNING"]),
            "paused": ("PAUSED", ["PAUSED"]),
            "stopped": ("STOPPED", []),
        }
        await_true(
            "settled cluster",
            lambda: self.states(worker) == wanted,
            SECONDS,
            lambda: str(self.states(worker)),
        )

    def runs_all(self, worker: Worker) -> bool:
        """No status tells of another worker any more."""
        bodies: list[Any] = [
            worker.rest.status(name).body for name in ("src", "snk", "paused", *MORE_SOURCES)
        ]
        told = {
            part["worker_id"]
            for body in bodies
            for part in (body.get("connector", {}), *body.get("tasks", []))
            if "worker_id" in part
        }
        return told == {worker.url.removeprefix("http://")}

    def reconfigure(self, worker: Worker, number: int) -> None:
        """A source gets another config: what only a leader writes, and its task is fenced for.

        (A small batch.size would not do: Java's FileStreamSource keeps what it has read of a line
        too many for itself until the file grows.)
        """
        name = MORE_SOURCES[0]
        commits = self.commits(name)
        config = {
            **worker.rest.get(f"/connectors/{name}/config").body,
            "batch.size": str(3_000 + number),
        }
        assert worker.rest.put(f"/connectors/{name}/config", config).status == 200
        await_true("commit", lambda: self.commits(name) > commits, SECONDS)
        worker.rest.await_tasks(name, ["RUNNING"], SECONDS)

    def leader(self) -> str | None:
        """Address of the worker that leads, once the group is stable."""
        group = self.describer.describe(self.group)
        if group.state != "Stable":
            return None
        codec = CODECS[group.protocol]
        names = {m.member_id: codec.decode_metadata(m.metadata).url for m in group.members}
        leaders = {codec.decode_assignment(m.assignment).leader for m in group.members}
        return names.get(next(iter(leaders)), "").rstrip("/") if len(leaders) == 1 else None

    def members(self) -> int:
        group = self.describer.describe(self.group)
        return len(group.members) if group.state == "Stable" else 0

    def check(self, lines: list[str]) -> None:
        """All that was written is in the topic once, in order, and reaches the sink's file."""
        await_true(
            "last line",
            lambda: len(self.seen()) >= len(lines),
            SECONDS,
            lambda: f"{len(self.seen())} of {len(lines)} lines",
        )
        time.sleep(1)  # what is there twice may come late
        assert self.seen() == lines
        await_true("sink", lambda: set(self.sunk()) == set(lines), SECONDS)

    def owners(self, worker: Worker, *connectors: str) -> set[str]:
        """URLs of the workers that run tasks of these connectors."""
        bodies: list[Any] = [worker.rest.status(name).body for name in connectors]
        return {
            f"http://{task['worker_id']}"
            for body in bodies
            for task in body.get("tasks", [])
            if task["state"] == "RUNNING"
        }

    def spread(self, worker: Worker, sources: tuple[str, ...]) -> bool:
        """Both workers run a source."""
        return len(self.owners(worker, *sources)) == 2

    def more(self, worker: Worker) -> None:
        """MORE_SOURCES, which read the same file, each into a topic of its own."""
        for name in MORE_SOURCES:
            config = {"connector.class": SOURCE, "file": str(self.file), "tasks.max": "1"}
            topic = f"{self.topic}-{name}"
            assert worker.rest.create(name, {**config, "topic": topic}).status == 201

    def check_more(self, lines: list[str]) -> None:
        """As `check`, of MORE_SOURCES."""
        for name in MORE_SOURCES:
            topic = f"{self.topic}-{name}"
            await_true(name, lambda topic=topic: len(self.read(topic)) >= len(lines), SECONDS)
            assert self.read(topic) == lines

    def read(self, topic: str) -> list[str]:
        """All values of a topic of one partition that a committed reader sees now."""
        return [(message.value() or b"").decode() for message in self.messages(topic)]

    def messages(self, topic: str, partition: int = 0) -> list[Message]:
        """All that a committed reader sees now."""
        reader = committed_reader(self.address, **{"enable.partition.eof": True})
        reader.assign([TopicPartition(topic, partition, 0)])
        found = []
        while (message := reader.poll(10)) is not None and message.error() is None:
            found.append(message)
        reader.close()
        return found

    def commits(self, name: str) -> int:
        """How often task configs of a connector were written."""
        written = self.messages(f"{self.group}-configs")
        return sum(message.key() == f"commit-{name}".encode() for message in written)

    def sunk(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []

    def close(self) -> None:
        self.describer.close()
        if self.watcher is not None:
            self.watcher.close()


@pytest.fixture
def cluster(kafka_broker: Found, kafka_name: str, growing: GrowingFile) -> Iterator[Cluster]:
    made = Cluster(kafka_broker.address, kafka_name, growing.path)
    yield made
    made.close()


def test_a_cluster_is_taken_over_from_java_and_handed_back(
    cluster: Cluster,
    growing: GrowingFile,
    java_worker: MakeJava,
    headgate_worker: MakeHeadgate,  # noqa: F811
) -> None:
    java = java_worker(cluster.address, cluster.group, SETTINGS)
    cluster.create(java)
    cluster.settled(java)
    cluster.grows(java, "under Java")
    configs = java.rest.get("/connectors?expand=info").body
    java.stop()

    ours = headgate_worker(cluster.address, cluster.group, SETTINGS)
    cluster.settled(ours)
    cluster.grows(ours, "after the take-over")
    assert ours.rest.get("/connectors?expand=info").body == configs
    (offset,) = ours.rest.get("/connectors/src/offsets").body["offsets"]
    assert offset["partition"] == {"filename": str(growing.path)}
    ours.stop()

    java.start()
    cluster.settled(java)
    cluster.grows(java, "handed back")
    assert java.rest.get("/connectors?expand=info").body == configs
    cluster.check(growing.stop())
    assert cluster.sunk() == growing.lines
    assert cluster.commits("src") == 1, "either's task configs are the other's"


def test_leadership_moves_between_java_and_ours_while_records_flow(
    cluster: Cluster,
    growing: GrowingFile,
    java_worker: MakeJava,
    headgate_worker: MakeHeadgate,  # noqa: F811
) -> None:
    java = java_worker(cluster.address, cluster.group, SETTINGS)
    ours = headgate_worker(cluster.address, cluster.group, SETTINGS)
    cluster.create(java)
    cluster.settled(ours)
    workers: dict[str, Worker] = {java.url: java, ours.url: ours}
    cluster.more(ours)
    sources = ("src", *MORE_SOURCES)
    moves = 0
    led_and_ran: set[tuple[str, str]] = set()
    while moves < LEADERSHIP_MOVES:
        await_true("two members", lambda: cluster.members() == 2, SECONDS)
        await_true("leader", cluster.leader, SECONDS)
        leader = cluster.leader()
        assert leader is not None
        leading = workers[leader]
        (following,) = (worker for url, worker in workers.items() if url != leader)
        await_true("spread", partial(cluster.spread, following, sources), SECONDS)
        cluster.grows(following, f"under leader {leader}")
        led_and_ran |= {(leader, owner) for owner in cluster.owners(following, *sources)}
        leading.stop()
        await_true("other leader", lambda other=following: cluster.leader() == other.url, SECONDS)
        moves += 1
        cluster.settled(following)
        cluster.grows(following, f"after move {moves}, alone")
        leading.start()
        # Either can be asked, about what either does.
        assert leading.rest.get("/connectors").status == 200
    await_true("two members", lambda: cluster.members() == 2, SECONDS)
    cluster.settled(java)
    assert cluster.states(java) == cluster.states(ours)
    lines = growing.stop()
    cluster.check(lines)
    cluster.check_more(lines)
    # Exactly-once tasks of each were started under the fence of the other, too.
    assert {(ours.url, java.url), (java.url, ours.url)} <= led_and_ran


@dataclass(frozen=True, slots=True)
class Told:
    """A record of the status topic of a task."""

    at_ms: int
    worker: str
    state: str


def told_of_tasks(cluster: Cluster) -> dict[str, list[Told]]:
    """All that the status topic was told of each task, in order."""
    found: dict[str, list[Told]] = {}
    topic = f"{cluster.group}-status"
    for partition in range(STATUS_PARTITIONS):
        for message in cluster.messages(topic, partition):
            key = (message.key() or b"").decode()
            if key.startswith("status-task-") and message.value():
                value = json.loads(message.value() or b"")
                said = Told(message.timestamp()[1], value["worker_id"], value["state"])
                found.setdefault(key, []).append(said)
    return found


def overlaps(history: Sequence[Told], killed: Sequence[Kill]) -> list[Told]:
    """Where a worker says that it runs the task, or has paused it, while another that was not
    killed has not yet let go of it."""
    holders: dict[str, int] = {}
    found = []
    for told in history:
        if told.state not in HOLDS:
            holders.pop(told.worker, None)
            continue
        for other, since_ms in holders.items():
            dead = any(
                url.endswith(other) and since_ms <= at * 1000 <= told.at_ms for url, at in killed
            )
            if other != told.worker and not dead:
                found.append(told)
        holders = {told.worker: told.at_ms}
    return found


def test_leaders_are_killed_while_records_flow(
    cluster: Cluster,
    growing: GrowingFile,
    java_worker: MakeJava,
    headgate_worker: MakeHeadgate,  # noqa: F811
) -> None:
    """Ours under a Java follower, Java's under a follower of ours, and ours again, whose cluster
    was Java's and ours before. A new worker joins each time."""
    ours = headgate_worker(cluster.address, cluster.group, SETTINGS)
    await_true("leader", lambda: cluster.leader() == ours.url, SECONDS)
    java = java_worker(cluster.address, cluster.group, SETTINGS)
    cluster.create(ours)
    cluster.more(java)
    sources = ("src", *MORE_SOURCES)
    leading: Worker = ours
    following: Worker = java
    killed: list[Kill] = []
    while len(killed) < LEADERS_KILLED:
        await_true("two members", lambda: cluster.members() == 2, SECONDS)
        await_true("leader", lambda url=leading.url: cluster.leader() == url, SECONDS)
        # A source of the follower was fenced for by the leader, which heard so from the other kind.
        await_true("spread", partial(cluster.spread, following, sources), SECONDS)
        cluster.grows(following, f"under leader {leading.url}")
        leading.kill()
        killed.append((leading.url, time.time()))
        await_true("other leader", lambda other=following: cluster.leader() == other.url, SECONDS)
        await_true("all work", partial(cluster.runs_all, following), SECONDS)
        cluster.settled(following)
        cluster.grows(following, f"after kill {len(killed)}, alone")
        cluster.reconfigure(following, len(killed))
        if leading is java:
            java.start()
            leading, following = following, java
        else:
            new = headgate_worker(cluster.address, cluster.group, SETTINGS)
            leading, following = following, new
    await_true("two members", lambda: cluster.members() == 2, SECONDS)
    await_true("spread", partial(cluster.spread, following, sources), SECONDS)
    cluster.settled(leading)
    assert cluster.states(leading) == cluster.states(following)
    histories = told_of_tasks(cluster)
    twice = {key: found for key, told in histories.items() if (found := overlaps(told, killed))}
    assert not twice
    # Who is killed does not let go: what is looked for would be found.
    assert any(overlaps(told, ()) for told in histories.values())
    states = {told.state for history in histories.values() for told in history}
    assert states == {"RUNNING", "PAUSED", "UNASSIGNED"}
    lines = growing.stop()
    cluster.check(lines)
    cluster.check_more(lines)
