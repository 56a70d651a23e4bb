"""One kind of worker takes over the other's cluster, started on the other's own properties file.

Each reads the other's configs, target states, statuses and offsets, and goes on with the other's
changes. Records under exactly-once are there once, in order.
"""

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.commands.observing import observed
from support.commands.worker import HeadgateWorker
from support.java.beside_java import (
    SECONDS,
    SETTINGS,
    Cluster,
    MakeHeadgate,
    MakeJava,
    task_states,
)
from support.java.mixed_group import AnyWorker, asked
from support.kafka.cluster import await_true, read_committed
from support.task.growing_file import GrowingFile

from local_kafka.java_connect import SOURCE, JavaWorker

pytestmark = pytest.mark.slow

LINES = 20
OWN_OFFSETS = "offsets.storage.topic"


class Lines:
    """A source that reads a file of its own into a topic of its own."""

    def __init__(self, cluster: Cluster, name: str, **more: str) -> None:
        self.cluster, self.name = cluster, name
        self.topic = f"{cluster.group}-{name}"
        self.file = cluster.file.with_name(f"{name}.txt")
        self.config = {
            "connector.class": SOURCE,
            "file": str(self.file),
            "topic": self.topic,
            "tasks.max": "1",
            **more,
        }
        self.lines: list[str] = []
        self.wanted: list[str] = []
        """What its topic is to have."""
        cluster.make_topic(self.topic)
        cluster.sources.append(name)
        self.write(LINES)

    def write(self, count: int) -> list[str]:
        new = [f"{self.name} {len(self.lines) + n}" for n in range(count)]
        with self.file.open("a") as file:
            file.write("".join(f"{line}\n" for line in new))
        self.lines += new
        self.wanted += new
        return new

    def offset(self, lines: int) -> dict[str, Any]:
        """Return the offset after this many lines, as workers show and take it."""
        position = sum(len(line) + 1 for line in self.lines[:lines])
        return {"partition": {"filename": str(self.file)}, "offset": {"position": position}}

    def create(self, worker: AnyWorker) -> None:
        created = asked(
            worker.rest, "POST", "/connectors", {"name": self.name, "config": self.config}
        )
        assert created.status == 201, created
        self.cluster.await_running(worker, self.name)

    def ask(self, worker: AnyWorker, method: str, what: str, body: Any = None) -> tuple[int, Any]:
        reply = asked(worker.rest, method, f"/connectors/{self.name}{what}", body)
        return reply.status, reply.body

    def await_state(self, worker: AnyWorker, state: str, tasks: list[str]) -> None:
        def there() -> bool:
            body: Any = worker.rest.status(self.name).body
            return body.get("connector", {}).get("state") == state and task_states(body) == tasks

        self.cluster.await_true(
            worker, f"{state} {self.name}", there, lambda: str(worker.rest.status(self.name))
        )

    def await_lines(self, worker: AnyWorker) -> None:
        """All that is wanted, once and in order, and that it is committed."""
        topic = self.cluster.read
        self.cluster.await_true(
            worker,
            f"lines of {self.name}",
            lambda: len(topic(self.topic)) >= len(self.wanted),
            lambda: f"{topic(self.topic)} of {self.wanted}; {worker.rest.status(self.name)}",
        )
        assert topic(self.topic) == self.wanted


def position(worker: AnyWorker, cluster: Cluster) -> int:
    """Return how far the growing file is read."""
    (found,) = asked(worker.rest, "GET", "/connectors/src/offsets").body["offsets"]
    assert found["partition"] == {"filename": str(cluster.file)}
    return int(found["offset"]["position"])


def infos(worker: AnyWorker) -> Any:
    return asked(worker.rest, "GET", "/connectors?expand=info").body


class Changes:
    """Changes of a cluster while one kind of worker leads it alone, which the other kind must
    find."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        made = partial(Lines, cluster)
        self.own_offsets = f"{cluster.group}-own-offsets"
        more = {OWN_OFFSETS: self.own_offsets, "exactly.once.support": "required"}
        self.own = made("own", **more)
        self.again, self.moved, self.rested = made("again"), made("moved"), made("rested")
        self.altered, self.gone = made("altered"), made("gone")
        self.older = (self.again, self.moved, self.rested, self.altered, self.gone)

    def prepare(self, worker: AnyWorker) -> None:
        """All but the one that is made later have read their files."""
        for each in self.older:
            each.create(worker)
        for each in self.older:
            each.await_lines(worker)

    def make(self, worker: AnyWorker) -> None:
        self.own.create(worker)
        self._reconfigure(worker)
        moved, rested, altered = self.moved, self.rested, self.altered
        for each in (moved, altered):
            assert each.ask(worker, "PUT", "/stop") == (204, None)
            each.await_state(worker, "STOPPED", [])
        moved.write(LINES)
        assert moved.ask(worker, "PUT", "/resume")[0] == 202
        moved.await_state(worker, "RUNNING", ["RUNNING"])
        assert rested.ask(worker, "PUT", "/pause")[0] == 202
        rested.await_state(worker, "PAUSED", ["PAUSED"])
        half = altered.offset(LINES // 2)
        assert altered.ask(worker, "PATCH", "/offsets", {"offsets": [half]})[0] == 200
        assert altered.ask(worker, "GET", "/offsets") == (200, {"offsets": [half]})
        assert self.gone.ask(worker, "DELETE", "") == (204, None)
        for each in (self.own, moved):
            each.await_lines(worker)
        offsets = read_committed(self.cluster.address, self.own_offsets, 2)
        assert {json.loads(key)[0] for key, _ in offsets} == {"own"}

    def _reconfigure(self, worker: AnyWorker) -> None:
        """Let the connector write to another topic from here on, without repeating a line."""
        again = self.again
        commits = self.cluster.commits(again.name)
        again.topic = again.config["topic"] = f"{again.topic}-2"
        self.cluster.make_topic(again.topic)
        status, body = again.ask(worker, "PUT", "/config", again.config)
        assert (status, body["config"]["topic"]) == (200, again.topic)
        await_true("commit", lambda: self.cluster.commits(again.name) > commits, SECONDS)
        self.cluster.await_running(worker, again.name)
        again.wanted = []
        again.write(LINES)
        again.await_lines(worker)

    def check(self, worker: AnyWorker) -> None:
        """The other kind has it all, and goes on where each of them stands."""
        own, again, moved = self.own, self.again, self.moved
        for each in (own, again, moved):
            each.await_state(worker, "RUNNING", ["RUNNING"])
        self.rested.await_state(worker, "PAUSED", ["PAUSED"])
        self.altered.await_state(worker, "STOPPED", [])
        assert self.gone.ask(worker, "GET", "")[0] == 404
        half = LINES // 2
        for each, lines in (
            (own, LINES),
            (again, 2 * LINES),
            (moved, 2 * LINES),
            (self.altered, half),
        ):
            assert each.ask(worker, "GET", "/offsets") == (200, {"offsets": [each.offset(lines)]})
        self.altered.wanted += self.altered.lines[half:]
        for each in (self.rested, self.altered):
            assert each.ask(worker, "PUT", "/resume")[0] == 202
        for each in (own, again, moved, self.rested, self.altered):
            each.write(LINES)
        for each in (own, again, moved, self.rested, self.altered):
            each.await_lines(worker)


def test_a_cluster_is_taken_over_from_java_and_handed_back(
    cluster: Cluster, growing: GrowingFile, java_worker: MakeJava, tmp_path: Path
) -> None:
    # The file has keys that mean something to one kind alone.
    (tmp_path / "plugins").mkdir()
    settings = {
        **SETTINGS,
        "plugin.path": str(tmp_path / "plugins"),
        "headgate.task.runner": "process",
    }
    java = java_worker(cluster.address, cluster.group, settings)
    cluster.create(java)
    cluster.settled(java)
    changes = Changes(cluster)
    changes.prepare(java)
    cluster.grows(java, "under Java")
    configs, read = infos(java), position(java, cluster)
    java.stop()
    check_told(java)

    with contextlib.closing(HeadgateWorker.on(tmp_path / "ours", java.file)) as ours:
        ours.start()
        check_warned(ours)
        cluster.settled(ours)
        assert position(ours, cluster) >= read
        cluster.grows(ours, "after the take-over")
        assert infos(ours) == configs
        changes.make(ours)
        configs, read = infos(ours), position(ours, cluster)
        assert configs.keys() >= {"src", "own", "again"}
        ours.stop()

    java.start()
    cluster.settled(java)
    assert infos(java) == configs
    assert position(java, cluster) >= read
    cluster.grows(java, "handed back")
    changes.check(java)
    cluster.check(java, growing.stop())
    assert cluster.sunk() == growing.lines
    assert cluster.commits("src") == 1, "either's task configs are the other's"


def check_told(java: AnyWorker) -> None:
    """The last statuses of Java's worker are readable with its own properties file, before any
    other worker has written one."""
    view = observed("--properties", str(java.file))
    for name in ("src", "snk", "paused", "stopped", "again"):
        one = view["connectors"][name]
        for part in (one, *one["tasks"]):
            assert part["worker_id"] == java.url.removeprefix("http://"), (name, one)


def check_warned(ours: HeadgateWorker) -> None:
    """One line warns of all keys that only Java knows."""
    warned = [line for line in ours.log.read_text().splitlines() if "are not used here" in line]
    assert len(warned) == 1, warned
    assert warned[0].endswith("these keys are not used here: plugin.discovery, plugin.path")


@pytest.mark.exhaustive
def test_java_takes_over_a_cluster_of_ours(
    cluster: Cluster,
    growing: GrowingFile,
    headgate_worker: MakeHeadgate,
    tmp_path: Path,
) -> None:
    ours = headgate_worker(cluster.address, cluster.group, SETTINGS)
    cluster.create(ours)
    cluster.settled(ours)
    cluster.grows(ours, "under ours")
    configs, read = infos(ours), position(ours, cluster)
    ours.stop()

    java = JavaWorker.on(tmp_path / "java", ours.file)
    with contextlib.ExitStack() as stack:
        stack.callback(java.rest.close)
        stack.callback(java.kill)
        java.start()
        cluster.settled(java)
        assert infos(java) == configs
        assert position(java, cluster) >= read
        cluster.check(java, growing.stop())
        assert cluster.sunk() == growing.lines
        assert cluster.commits("src") == 1
