"""Control operations of two workers with exactly-once on, ours and Java's in turns on one broker.

The time is wall time from a request to its effect. The effect is seen in the workers' own answers,
which are requested every 5 ms. If the state before and after is the same, it is seen as a new
record of the status topic.
"""

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

from bench.kafka_workers import (
    JAVA,
    KINDS,
    OURS,
    Worker,
    Workers,
    cpu_of,
    pid_of,
    source,
    tail_of,
    workers,
)
from local_kafka.java_connect import Reply

REPEATS = 7
HUNDRED = 100
HUNDRED_REPEATS = 3
CLIENTS = 8
KILLS = 5
HEARTBEAT_S = 3.0
"""Default of heartbeat.interval.ms, in seconds. The kills are spread over it."""
LIMIT_S = 300.0
LOOK_S = 0.005
SETTLE_S = 0.5
"""Wait before each step, until the effects of the last one (a poll, a commit, a round) are over."""
TURNS = 20
"""Rounds, before anything else, that create and delete a connector twice. In the first rounds, the
broker and Java's workers spend as much time on compiling their code as on the requests."""
TURNS_COUNTED = 10
"""The last rounds of `TURNS` that are counted, of each only the second create."""
CREATES = 40
"""Number of connectors that are created, and stopped once they run. One create may take twice as
long as another, so the seven creates of `REPEATS` lives are too few to tell a third from a
quarter."""
REST_S = 1.5
"""Wait before each create of `CREATES`."""
STEPS = ("create", "pause", "resume", "changed config", "restart", "stop", "delete")
Took = dict[str, list[float]]


class Statuses:
    """Counts the RUNNING records of each task in the status topic."""

    def __init__(self, address: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "bench-statuses",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10_000,
            }
        )
        found = self._consumer.list_topics(topic).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in found])
        self._running: dict[str, int] = {}
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def count(self, connector: str) -> int:
        """Return how often the connector's task 0 has become RUNNING."""
        with self._changed:
            return self._running.get(f"status-task-{connector}-0", 0)

    def wait(self, connector: str, after: int) -> None:
        """Wait until the connector's task 0 has become RUNNING more often than `after` times."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.count(connector) > after, LIMIT_S):
                raise TimeoutError(f"{connector} is not RUNNING again")

    def close(self) -> None:
        """Close the consumer. It must not outlive its brokers, or it goes on looking for them."""
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(1.0)
            if message is None or message.error() or not message.value():
                continue
            if json.loads(message.value() or b"{}").get("state") == "RUNNING":
                key = (message.key() or b"").decode()
                with self._changed:
                    self._running[key] = self._running.get(key, 0) + 1
                    self._changed.notify_all()


class Pair:
    """Two workers of one kind in one group."""

    def __init__(self, made: Workers, kind: str, runner: str) -> None:
        self.kind = kind
        self.group = f"{kind.lower()}-{runner}"
        self._made = made
        self._properties = {"scheduled.rebalance.max.delay.ms": "0"}
        if kind == OURS:
            self._properties["headgate.task.runner"] = runner
        self.workers = [self._worker() for _ in range(2)]
        for worker in self.workers:
            worker.await_ready()
        self.file = made.folder / f"{self.group}.txt"
        self.file.write_text("a line\n" * 100)
        self.statuses = Statuses(made.broker.address, f"{self.group}-status")

    def _worker(self) -> Worker:
        worker = self._made.make(self.kind, self.group, self._properties)
        worker.launch()
        return worker

    def config(self, name: str, **more: str) -> dict[str, str]:
        return source(self.file, f"{self.group}-{name}", **more)

    def until(self, name: str, wanted: str, tasks: int = 1) -> None:
        """Wait until the connector and its tasks are in the state `wanted`."""
        rest = self.workers[0].rest

        def right(reply: Reply) -> bool:
            if reply.status != 200 or reply.body["connector"]["state"] != wanted:
                return False
            states = [task["state"] for task in reply.body["tasks"]]
            return states == [wanted] * tasks

        _ask(lambda: rest.status(name), right)

    def create_and_delete(self, name: str) -> float:
        """Create a connector after `SETTLE_S`, and delete it. Returns the seconds from create to
        RUNNING. Repeated calls begin `SETTLE_S` after the delete of the last one."""
        took = self._timed_create(name, SETTLE_S)
        _accepted(lambda: self._delete(name))
        rest = self.workers[0].rest
        _ask(lambda: rest.get(f"/connectors/{name}"), lambda reply: reply.status == 404)
        return took

    def create_and_stop(self, name: str) -> float:
        """Create a connector after `REST_S`, and stop it. Returns the seconds from create to
        RUNNING."""
        took = self._timed_create(name, REST_S)
        _accepted(lambda: self.workers[0].rest.put(f"/connectors/{name}/stop"))
        self.until(name, "STOPPED", 0)
        return took

    def _timed_create(self, name: str, wait_s: float) -> float:
        """Create a connector after a wait. Returns the seconds from create to RUNNING."""
        time.sleep(wait_s)
        began = time.perf_counter()
        _accepted(lambda: self.workers[0].rest.create(name, self.config(name)))
        self.until(name, "RUNNING")
        return time.perf_counter() - began

    def delete_all(self) -> None:
        """Delete all connectors. Returns when none is listed."""
        rest = self.workers[0].rest
        for name in rest.get("/connectors").body:
            _accepted(partial(self._delete, name))
        _ask(lambda: rest.get("/connectors"), lambda reply: reply.body == [])

    def life(self, name: str) -> dict[str, float]:
        """Take a new connector through all of `STEPS`. Returns the seconds of each."""
        rest = self.workers[0].rest
        path = f"/connectors/{name}"
        took = {}

        def timed(step: str, request: Callable[[], Reply], done: Callable[[], None]) -> None:
            time.sleep(SETTLE_S)
            began = time.perf_counter()
            reply = _accepted(request)
            if reply.status >= 300:
                raise RuntimeError(f"{self.kind}: {step} of {name}: {reply}")
            done()
            took[step] = time.perf_counter() - began

        def again(step: str, request: Callable[[], Reply]) -> None:
            time.sleep(SETTLE_S)
            before = self.statuses.count(name)
            timed(step, request, lambda: self.statuses.wait(name, before))

        timed(
            "create",
            lambda: rest.create(name, self.config(name)),
            lambda: self.until(name, "RUNNING"),
        )
        timed("pause", lambda: rest.put(f"{path}/pause"), lambda: self.until(name, "PAUSED"))
        timed("resume", lambda: rest.put(f"{path}/resume"), lambda: self.until(name, "RUNNING"))
        changed = self.config(name, **{"batch.size": "77"})
        again("changed config", lambda: rest.put(f"{path}/config", changed))
        again("restart", lambda: rest.post(f"{path}/tasks/0/restart"))
        timed("stop", lambda: rest.put(f"{path}/stop"), lambda: self.until(name, "STOPPED", 0))
        timed(
            "delete",
            lambda: rest.delete(path),
            lambda: _ask(lambda: rest.get(path), lambda reply: reply.status == 404),
        )
        return took

    def many(self, count: int, turn: int) -> tuple[float, float]:
        """Create `count` connectors by `CLIENTS` clients. Returns the seconds until all run, and
        the CPU seconds of both workers."""
        names = [f"many-{turn}-{number}" for number in range(count)]
        rest = self.workers[0].rest
        cpu = sum(map(cpu_of, self.workers))
        began = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(self._create, names))

        def running(reply: Reply) -> bool:
            if reply.status != 200:
                return False
            found = [reply.body.get(name, {}).get("status") for name in names]
            return all(_runs(status) for status in found)

        _ask(lambda: rest.get("/connectors?expand=status"), running, 0.05)
        took = time.perf_counter() - began, sum(map(cpu_of, self.workers)) - cpu
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda name: _accepted(lambda: self._delete(name)), names))
        _ask(lambda: rest.get("/connectors"), lambda reply: reply.body == [])
        return took

    def _create(self, name: str) -> None:
        reply = _accepted(lambda: self.workers[hash(name) % 2].rest.create(name, self.config(name)))
        if reply.status not in (201, 409):  # 409: an earlier attempt has created it after all
            raise RuntimeError(f"{self.kind}: create of {name}: {reply}")

    def _delete(self, name: str) -> Reply:
        return self.workers[0].rest.delete(f"/connectors/{name}")

    def kill(self, name: str, after_s: float) -> float:
        """Kill the worker with the task (SIGKILL). Returns the seconds until the task runs on the
        other worker.

        The session of the dead worker ends 10 s after its last heartbeat, and the other one learns
        of that with its own next heartbeat. So the result depends on the time between heartbeats at
        which the kill comes.

        Args:
            after_s: wait between RUNNING and the kill.
        """
        rest = self.workers[0].rest
        _accepted(lambda: rest.create(name, self.config(name)))
        self.until(name, "RUNNING")
        owner = rest.status(name).body["tasks"][0]["worker_id"]
        index = next(n for n, worker in enumerate(self.workers) if worker.url.endswith(owner))
        killed, left = self.workers[index], self.workers[1 - index]
        time.sleep(after_s)
        began = time.perf_counter()
        os.kill(pid_of(killed), signal.SIGKILL)
        _ask(
            lambda: self._status_of_left(left, name),
            lambda reply: (
                reply.status == 200
                and _runs(reply.body)
                and all(task["worker_id"] != owner for task in reply.body["tasks"])
                and reply.body["connector"]["worker_id"] != owner
            ),
        )
        took = time.perf_counter() - began
        self.workers = [left, self._worker()]
        self.workers[1].await_ready()
        _accepted(lambda: left.rest.delete(f"/connectors/{name}"))
        return took

    def _status_of_left(self, worker: Worker, name: str) -> Reply:
        try:
            return worker.rest.status(name)
        except httpx.TransportError as error:
            told = f"{self.kind}: the worker that is left does not answer ({error})"
            raise RuntimeError(f"{told}: {tail_of(worker)}") from None


def _runs(status: Mapping[str, Any] | None) -> bool:
    return (
        status is not None
        and status["connector"]["state"] == "RUNNING"
        and [task["state"] for task in status["tasks"]] == ["RUNNING"]
    )


def _ask(
    ask: Callable[[], Reply], wanted: Callable[[Reply], bool], pause_s: float = LOOK_S
) -> None:
    until = time.monotonic() + LIMIT_S
    while not wanted(reply := ask()):
        if time.monotonic() > until:
            raise TimeoutError(f"after {LIMIT_S:g} s the last reply was {reply}")
        time.sleep(pause_s)


def _accepted(request: Callable[[], Reply]) -> Reply:
    """Repeat a request while Connect answers that it rebalances, as users do. Returns the reply."""
    until = time.monotonic() + LIMIT_S
    while True:
        reply = request()
        if reply.status not in (409, 500, 503) or "rebalance" not in str(reply.body).lower():
            return reply
        if time.monotonic() > until:
            raise TimeoutError(f"still refused: {reply}")
        time.sleep(LOOK_S)


def run(runner: str = "process") -> Iterator[str]:
    """Yield report lines: a create after a delete, a connector's life, the hundred, a kill."""
    with workers() as made:
        pairs = {kind: Pair(made, kind, runner) for kind in KINDS}
        yield (
            f"two workers, exactly-once on, runner {runner}; medians of {REPEATS} lives of a "
            f"connector with one task, in seconds (smallest-largest)"
        )
        yield f"{'':24}{'ours':>26}{'Java':>26}{'of Java':>10}"
        creates: Took = {kind: [] for kind in KINDS}
        for turn in range(TURNS):
            for kind, pair in pairs.items():
                pair.create_and_delete(f"first-{turn}")
                creates[kind].append(pair.create_and_delete(f"again-{turn}"))
        counted = {kind: took[-TURNS_COUNTED:] for kind, took in creates.items()}
        yield _line("create after a delete", counted)
        for pair in pairs.values():
            pair.life("warm-up")
        lives: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for turn in range(REPEATS):
            for kind, pair in pairs.items():
                lives[kind].append(pair.life(f"life-{turn}"))
        for step in STEPS:
            yield _line(step, {kind: [life[step] for life in lives[kind]] for kind in KINDS})
        alone: Took = {kind: [] for kind in KINDS}
        for turn in range(CREATES):
            for kind, pair in pairs.items():
                alone[kind].append(pair.create_and_stop(f"alone-{turn}"))
        for pair in pairs.values():
            pair.delete_all()
        yield _line(f"create, of {CREATES}", alone)
        hundred: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for turn in range(HUNDRED_REPEATS):
            for kind, pair in pairs.items():
                hundred[kind].append(pair.many(HUNDRED, turn))
        for index, what in enumerate(("until all run", "CPU")):
            each = {kind: [took[index] for took in hundred[kind]] for kind in KINDS}
            yield _line(f"{HUNDRED} by {CLIENTS}: {what}", each)
        kills: Took = {kind: [] for kind in KINDS}
        for turn in range(KILLS):
            for kind, pair in pairs.items():
                kills[kind].append(pair.kill(f"killed-{turn}", HEARTBEAT_S * turn / KILLS))
        for pair in pairs.values():
            pair.statuses.close()
        yield _line("kill -9", kills)
        yield "(of the kill, session.timeout.ms is 10 s: nobody can know before)"


def _line(what: str, each: Took) -> str:
    told = {
        kind: f"{statistics.median(took):.3f} ({min(took):.2f}-{max(took):.2f})"
        for kind, took in each.items()
    }
    ratio = statistics.median(each[OURS]) / statistics.median(each[JAVA])
    return f"{what:24}{told[OURS]:>26}{told[JAVA]:>26}{ratio:>10.2f}"
