"""A cluster of whole Headgate workers beside Java's: what it runs, and what its topics say about
it."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.commands.worker import HeadgateWorker
from support.java.mixed_group import AnyWorker, MixedGroup, Told
from support.kafka.broker import Found
from support.kafka.cluster import Watcher, await_true, create_topic
from support.task.growing_file import GrowingFile

from local_kafka.java_connect import SINK, SOURCE, JavaWorker

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
HOLDS = ("RUNNING", "PAUSED")
MORE_SOURCES = ("one", "two", "three")
"""Names of three more sources. With two tasks that are no sources, each of two workers has three
tasks, so each has a source."""
SOURCES = ("src", *MORE_SOURCES)
AT_REST = ("paused", "stopped")
"""Sources that a user has paused and stopped."""
JAVAS_OWN = "org.apache.kafka.common.errors.InvalidTxnStateException"
"""An error that may fail a Java task that has just begun, on a busy machine. The broker knows of
nothing that its producer could commit (clients and broker 4.3.1). Connect leaves the restart to the
user."""
RESTART_S = 5
"""Seconds between two restarts of a task."""
RESTARTS_MAX = 3
"""Most restarts in a test: more are no accident."""
SECONDS = 90
REST_S = 1.5
"""Seconds of rest: longer than a round waits for the one after it, and than
`scheduled.rebalance.max.delay.ms`."""
Kill = tuple[str, float]
"""URL of a worker; when, in seconds since the epoch."""
MakeJava = Callable[..., JavaWorker]
MakeHeadgate = Callable[..., HeadgateWorker]


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingFile]:
    file = GrowingFile(tmp_path / "in.txt", per_second=500)
    yield file
    file.stop()


def task_states(status: Any) -> list[str]:
    """Return the states of the tasks in a connector's status, as a worker answers it."""
    return [task["state"] for task in status.get("tasks", [])]


class Cluster(MixedGroup):
    def __init__(self, address: str, group: str, file: Path) -> None:
        super().__init__(address, group)
        self.topic = f"{group}-lines"
        self.file = file
        self.out = file.with_name("out.txt")
        self.watcher: Watcher | None = None
        self.sources = [*SOURCES, *AT_REST]
        """Whose tasks are restarted where Java has let them fail."""
        self._restarted: dict[str, float] = {}
        self._restarts = 0

    def create(self, worker: AnyWorker) -> None:
        """Create a source, its sink, and two connectors that a user has paused and stopped."""
        source = {"connector.class": SOURCE, "file": str(self.file), "topic": self.topic}
        sink = {"connector.class": SINK, "file": str(self.out), "topics": self.topic}
        for name, config in (
            ("src", source),
            ("snk", sink),
            ("paused", {**source, "topic": f"{self.group}-p"}),
            ("stopped", {**source, "topic": f"{self.group}-s"}),
        ):
            if name != "snk":
                self.make_topic(config["topic"])
            assert worker.rest.create(name, {**config, "tasks.max": "1"}).status == 201
        for name in AT_REST:
            self.await_running(worker, name)
        assert worker.rest.put("/connectors/paused/pause").status == 202
        assert worker.rest.put("/connectors/stopped/stop").status == 204
        self.watcher = Watcher(self.address, self.topic)

    def make_topic(self, topic: str) -> None:
        """Create a topic before its source, as operators do. JAVAS_OWN was first seen where a
        broker created the topic on demand."""
        create_topic(self.address, topic)

    def seen(self) -> list[str]:
        assert self.watcher is not None
        return [value.decode() for value in list(self.watcher.values)]

    def grows(self, worker: AnyWorker, what: str) -> None:
        """Wait until new lines come out, while `worker` answers requests."""
        before = len(self.seen())
        self.await_true(
            worker,
            f"progress {what}",
            lambda: len(self.seen()) > before + 500,
            lambda: str(worker.rest.status("src")),
        )

    def await_true(
        self,
        worker: AnyWorker,
        what: str,
        true: Callable[[], bool],
        why: Callable[[], str] = str,
    ) -> None:
        """Wait until a condition holds, and restart the tasks that Java lets fail meanwhile."""
        await_true(what, lambda: true() or self.restart_failed(worker), SECONDS, why)

    def await_leader(self) -> str:
        """Return the URL of the worker that leads. During a rebalance there may be none yet, so
        wait for it."""
        seen: list[str] = []

        def leads() -> bool:
            if leader := self.leader():
                seen.append(leader)
            return bool(seen)

        await_true("leader", leads, SECONDS)
        return seen[0]

    def restart_failed(self, worker: AnyWorker) -> bool:
        """Restart the tasks that failed with JAVAS_OWN. Return False, since the caller has to wait
        on."""
        for name in self.sources:
            body: Any = worker.rest.status(name).body
            now = time.monotonic()
            for task in body.get("tasks", []):
                if JAVAS_OWN in task.get("trace", "") and now > self._restarted.get(name, 0):
                    self._restarted[name] = now + RESTART_S
                    self._restarts += 1
                    print(f"restarting {name}, which Java has let fail", flush=True)
                    assert self._restarts <= RESTARTS_MAX, task
                    worker.rest.post(f"/connectors/{name}/tasks/{task['id']}/restart")
        return False

    def states(self, worker: AnyWorker) -> dict[str, tuple[str, list[str]]]:
        found = {}
        for name in ("src", "snk", "paused", "stopped"):
            body: Any = worker.rest.status(name).body
            found[name] = (body.get("connector", {}).get("state", ""), task_states(body))
        return found

    def settled(self, worker: AnyWorker) -> None:
        wanted = {
            "src": ("RUNNING", ["RUNNING"]),
            "snk": ("RUNNING", ["RUNNING"]),
            "paused": ("PAUSED", ["PAUSED"]),
            "stopped": ("STOPPED", []),
        }
        self.await_true(
            worker,
            "settled cluster",
            lambda: self.states(worker) == wanted,
            lambda: str(self.states(worker)),
        )

    def runs_all(self, worker: AnyWorker) -> bool:
        """Return whether all statuses are of this worker alone."""
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

    def reconfigure(self, worker: AnyWorker, number: int) -> None:
        """Give a source another config. Only a leader writes its task configs, and its task is
        fenced for.

        (A small batch.size would not do. Java's FileStreamSource reads more lines than a batch
        takes, and holds the rest until the file grows.)
        """
        name = MORE_SOURCES[0]
        commits = self.commits(name)
        config = {
            **worker.rest.get(f"/connectors/{name}/config").body,
            "batch.size": str(3_000 + number),
        }
        assert worker.rest.put(f"/connectors/{name}/config", config).status == 200
        await_true("commit", lambda: self.commits(name) > commits, SECONDS)
        self.await_running(worker, name)

    def await_running(self, worker: AnyWorker, name: str) -> None:
        self.await_true(
            worker,
            f"running {name}",
            lambda: task_states(worker.rest.status(name).body) == ["RUNNING"],
        )

    def check(self, worker: AnyWorker, lines: list[str]) -> None:
        """Assert that all lines are in the topic once and in order, and that they reach the sink's
        file."""
        self.await_true(
            worker,
            "last line",
            lambda: len(self.seen()) >= len(lines),
            lambda: f"{len(self.seen())} of {len(lines)} lines",
        )
        time.sleep(1)  # what is there twice may come late
        assert self.seen() == lines
        await_true("sink", lambda: set(self.sunk()) == set(lines), SECONDS)

    def await_spread(self, worker: AnyWorker) -> None:
        """Wait until both workers run a source and nothing has changed for a while.

        A task that asks for fencing while the leader goes would disturb a test of leaders that go.
        Java does not ask again, so its task fails (DistributedHerder.fenceZombieSourceTasks).
        """
        seen: object = None
        since = 0.0

        def rests() -> bool:
            nonlocal seen, since
            bodies: list[Any] = [worker.rest.status(name).body for name in SOURCES]
            states = [state for body in bodies for state in task_states(body)]
            all_run = states == ["RUNNING"] * len(SOURCES)
            runs = all_run and len(self.owners(worker, *SOURCES)) == 2
            now = (self.described(), bodies)
            if now != seen:
                seen, since = now, time.monotonic()
            return runs and now[0] is not None and time.monotonic() - since > REST_S

        self.await_true(worker, "rest after a spread", rests, lambda: str(seen))

    def more(self, worker: AnyWorker) -> None:
        """Create MORE_SOURCES, which read the same file, each into a topic of its own."""
        for name in MORE_SOURCES:
            config = {"connector.class": SOURCE, "file": str(self.file), "tasks.max": "1"}
            topic = f"{self.topic}-{name}"
            self.make_topic(topic)
            assert worker.rest.create(name, {**config, "topic": topic}).status == 201

    def check_more(self, worker: AnyWorker, lines: list[str]) -> None:
        """Assert that each of MORE_SOURCES has written all lines once and in order."""

        def come(topic: str) -> bool:
            return len(self.read(topic)) >= len(lines)

        for name in MORE_SOURCES:
            topic = f"{self.topic}-{name}"
            self.await_true(worker, f"all lines of {name}", partial(come, topic))
            assert self.read(topic) == lines

    def read(self, topic: str) -> list[str]:
        """Return all values that a committed reader now sees in a topic of one partition."""
        return [(message.value() or b"").decode() for message in self.messages(topic)]

    def sunk(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []

    def close(self) -> None:
        super().close()
        if self.watcher is not None:
            self.watcher.close()


@pytest.fixture
def cluster(kafka_broker: Found, kafka_name: str, growing: GrowingFile) -> Iterator[Cluster]:
    made = Cluster(kafka_broker.address, kafka_name, growing.path)
    yield made
    made.close()


def overlaps(history: Sequence[Told], killed: Sequence[Kill]) -> list[Told]:
    """Return the statuses by which a worker says that it runs or has paused the task while another
    worker still holds it.

    A worker that was killed since its last status no longer holds the task.
    """
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


def check_nobody_ran_twice(cluster: Cluster, killed: Sequence[Kill]) -> None:
    histories = cluster.told_of_tasks()
    twice = {key: found for key, told in histories.items() if (found := overlaps(told, killed))}
    assert not twice
    # A killed worker does not let go, so the search below would find an overlap.
    assert any(overlaps(told, ()) for told in histories.values())
    all_told = [(key, told) for key, history in histories.items() for told in history]
    failed = [told for told in all_told if told[1].state == "FAILED"]
    assert all(JAVAS_OWN in told.trace for _, told in failed), failed
    assert {told.state for _, told in all_told} - {"FAILED"} == {"RUNNING", "PAUSED", "UNASSIGNED"}
