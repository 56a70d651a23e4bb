"""Three workers are in one group, two of one kind and one of the other.

The worker that takes the call neither leads nor owns what is to be restarted. So the call is passed
on twice: to the leader, and to the owner that only the leader knows. Failed tasks and levels of
loggers concern every worker as well.
"""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.worker import HeadgateWorker
from support.java.mixed_group import AnyWorker, MixedGroup, asked
from support.java.twin_source import FAILS_WHILE, NAME
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic

from local_kafka.java_connect import JavaWorker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

TEXT = "org.apache.kafka.connect.storage.StringConverter"
SETTINGS = {
    "key.converter": TEXT,
    "value.converter": TEXT,
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
}
CONNECTORS = ("one", "two", "three")
TASKS = 3
"""Of each: as many connectors and as many tasks for each worker."""
REST_S = 1.5
"""Longer than a round waits for the one after it."""
SECONDS = 60
FAILED = "?includeTasks=true&onlyFailed=true"
Make = Callable[[], AnyWorker]
Part = tuple[str, int | None]
"""A connector, or a task of it."""


def worker_id(worker: AnyWorker) -> str:
    return worker.url.removeprefix("http://")


def kind(worker: AnyWorker) -> str:
    return "java" if isinstance(worker, JavaWorker) else "ours"


def key(part: Part) -> str:
    """Return the key of the task's status."""
    name, task = part
    return f"status-connector-{name}" if task is None else f"status-task-{name}-{task}"


class Three(MixedGroup):
    """
    Args:
        odd: the worker of the one kind, `pair`: those of the other.
        folder: for files that make tasks fail while they are there.
    """

    def __init__(
        self, address: str, group: str, odd: AnyWorker, pair: list[AnyWorker], folder: Path
    ) -> None:
        super().__init__(address, group)
        self.odd, self.workers, self.folder = odd, [odd, *pair], folder

    def create(self) -> None:
        for name in CONNECTORS:
            create_topic(self.address, f"{self.group}-{name}")
            config = {
                "connector.class": NAME,
                "topic": f"{self.group}-{name}",
                "pause.s": "0.2",
                "tasks.max": str(TASKS),
                FAILS_WHILE: str(self.folder / name),
            }
            body = {"name": name, "config": config}
            assert asked(self.odd.rest, "POST", "/connectors", body).status == 201

    def held(self) -> dict[str, list[Part]]:
        """Return what runs, by the worker that says so."""
        found: dict[str, list[Part]] = {}
        for name in CONNECTORS:
            body: Any = self.odd.rest.status(name).body
            parts = [(None, body.get("connector")), *((t["id"], t) for t in body.get("tasks", ()))]
            for task, told in parts:
                if told and told["state"] == "RUNNING":
                    found.setdefault(told["worker_id"], []).append((name, task))
        return found

    def await_spread(self) -> None:
        """Wait until each of the three workers runs a connector and three tasks, and nothing
        changes any more."""
        seen: object = None
        since = 0.0

        def rests() -> bool:
            nonlocal seen, since
            held = self.held()
            shares = [sorted(task is None for _, task in parts) for parts in held.values()]
            now = (self.described(), held)
            if now != seen:
                seen, since = now, time.monotonic()
            even = shares == [[False] * TASKS + [True]] * len(self.workers)
            return even and now[0] is not None and time.monotonic() - since > REST_S

        await_true("rest after a spread", rests, SECONDS, lambda: str(seen))

    def leading(self) -> AnyWorker:
        leader = self.leader()
        (found,) = (worker for worker in self.workers if worker.url == leader)
        return found

    def await_ran(self, wanted: Counter[tuple[str, str]]) -> None:
        """Exactly so often."""
        await_true(
            "restarts",
            lambda: self.ran() >= wanted,
            SECONDS,
            lambda: f"ran but not wanted: {self.ran() - wanted}; missing: {wanted - self.ran()}",
        )
        assert self.ran() == wanted


def restart_twice_removed(group: Three, leader: AnyWorker) -> set[tuple[str, str]]:
    """Each of two workers is asked for what the other has. Kinds of leader and owner."""
    followers = [worker for worker in group.workers if worker is not leader]
    found = set()
    for asking, owner in itertools.permutations(followers):
        owned = group.held()[worker_id(owner)]
        connector = next(part for part in owned if part[1] is None)
        task = next(part for part in owned if part[1] is not None)
        for part, path in (
            (connector, f"/connectors/{connector[0]}/restart"),
            (task, f"/connectors/{task[0]}/tasks/{task[1]}/restart"),
        ):
            wanted = group.ran() + Counter([(key(part), worker_id(owner))])
            reply = asked(asking.rest, "POST", path)
            assert (reply.status, reply.body) == (204, None), (kind(asking), kind(owner), reply)
            group.await_ran(wanted)
        found.add((kind(leader), kind(owner)))
    return found


def restart_the_failed(group: Three, asking: AnyWorker, leader: AnyWorker) -> None:
    """A task of each kind has failed: it alone is started again, nothing else of its connector.

    A Java leader writes the order first and makes the plan of what it has read after that
    (DistributedHerder.restartConnectorAndTasks), so a quick owner's RUNNING can be in it. Ours
    makes the plan before it writes."""
    again = {"RESTARTING"} if kind(leader) == "ours" else {"RESTARTING", "RUNNING"}
    for owner in group.workers[:2]:
        name, task = next(part for part in group.held()[worker_id(owner)] if part[1] is not None)
        while_there = group.folder / f"{name}-{task}"
        states = ["RUNNING"] * TASKS
        assert task is not None
        states[task] = "FAILED"
        while_there.touch()
        for each in group.workers:  # the leader plans by what it has read itself
            each.rest.await_tasks(name, states, SECONDS)
        while_there.unlink()
        wanted = group.ran() + Counter([(key((name, task)), worker_id(owner))])
        reply = asked(asking.rest, "POST", f"/connectors/{name}/restart{FAILED}")
        planned = {each["id"]: each["state"] for each in reply.body["tasks"]}
        assert (reply.status, reply.body["connector"]["state"]) == (202, "RUNNING")
        assert planned.pop(task) in again
        states.pop(task)
        assert list(planned.values()) == states
        asking.rest.await_tasks(name, ["RUNNING"] * TASKS, SECONDS)
        group.await_ran(wanted)


def set_levels(group: Three, name: str) -> None:
    """Any worker is told the level of a logger, and it is everybody's."""
    for setting in group.workers:
        logger = f"/admin/loggers/org.acme.{name}-{group.workers.index(setting)}"
        reply = setting.rest.put(f"{logger}?scope=cluster", {"level": "WARN"})
        assert (reply.status, reply.body) == (204, None)
        for reading in group.workers:
            reading.rest.await_reply(
                lambda reading=reading, logger=logger: reading.rest.get(logger),
                lambda reply: reply.status == 200 and reply.body["level"] == "WARN",
                SECONDS,
            )


@pytest.fixture
def makes(
    kafka_broker: Found,
    kafka_name: str,
    places: Path,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
) -> dict[str, Make]:
    at = (kafka_broker.address, kafka_name)
    return {
        "java": lambda: java_worker(*at, {**SETTINGS, "plugin.path": str(places)}),
        "ours": lambda: headgate_worker(*at, SETTINGS),
    }


@pytest.fixture(params=["java", "ours"])
def group(
    request: pytest.FixtureRequest,
    makes: dict[str, Make],
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> Iterator[Three]:
    """The worker that is the only one of its kind was there first, so it leads."""
    (other,) = makes.keys() - {request.param}
    odd, *pair = (makes[each]() for each in (request.param, other, other))
    made = Three(kafka_broker.address, kafka_name, odd, pair, tmp_path)
    with contextlib.closing(made):
        yield made


def test_the_leader_passes_on_what_only_an_owner_does(group: Three) -> None:
    group.create()
    found = set()
    for led_by in ("the odd one", "one of a pair"):
        group.await_spread()
        leader = group.leading()
        assert (leader is group.odd) == (led_by == "the odd one")
        found |= restart_twice_removed(group, leader)
        followers = [worker for worker in group.workers if worker is not leader]
        restart_the_failed(group, followers[0], leader)
        set_levels(group, led_by.replace(" ", "-"))
        if leader is group.odd:
            leader.stop()
            leader.start()
    odd, pair = kind(group.odd), kind(group.workers[1])
    assert found == {(odd, pair), (pair, odd), (pair, pair)}
