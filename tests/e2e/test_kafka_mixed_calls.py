"""Users make 2,000 mixed calls by gRPC and REST at random workers of three, one of which is killed
and one stopped for a while.

Each call is answered once, nothing acknowledged is lost, and nothing is done twice.
"""

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from support.kafka.cluster import (
    QUICK_GROUPS,
    KafkaCluster,
    KeptWorker,
    await_true,
    create_topic,
    kill,
    quick_properties,
    read_committed,
)
from support.kafka.histories import CALL_S, SHARED, SINK, Caller, check

from headgate.topics.config_records import decode
from headgate.topics.config_reducer import fold
from headgate.topics.config_state import ConfigState
from local_kafka.broker import Broker
from local_kafka.jvm import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

CALLS = 2_000
CALLERS = 6
STOPPED_S = 12.0
"""Longer than a session: others lead meanwhile."""
SEED = int(os.environ.get("HEADGATE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1 << 31)
GROUP = "g"
BEHIND = 1_000_000
"""Offsets of the records as they are counted here: behind those that they name."""


def leader(workers: list[KeptWorker]) -> KeptWorker:
    """The worker that leads, once there is one."""
    found: list[KeptWorker] = []

    def look() -> bool:
        for worker in workers:
            try:
                if worker.leads:
                    found.append(worker)
                    return True
            except (httpx.HTTPError, KeyError, ValueError):
                continue  # it starts, or is stopped: it does not answer, or not with a view
        return False

    await_true("leader", look, 60)
    return found[0]


class Blows:
    """What happens to leaders while calls go on."""

    def __init__(self, workers: list[KeptWorker], callers: list[Caller]) -> None:
        self._workers, self._callers = workers, callers
        self._thread = threading.Thread(target=self._run)
        self.landed: list[str] = []
        self._thread.start()

    def over(self) -> None:
        self._thread.join(180)
        assert self.landed == ["killed", "stopped", "continued"]

    def _made(self) -> int:
        return sum(each.calls["grpc"] + each.calls["rest"] for each in self._callers)

    def _run(self) -> None:
        await_true("some calls", lambda: self._made() >= CALLS // 5, 300)
        assert kill(leader(self._workers).worker())
        self.landed.append("killed")
        await_true("more calls", lambda: self._made() >= CALLS // 2, 300)
        process = leader(self._workers).worker()
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        self.landed.append("stopped")
        time.sleep(STOPPED_S)
        os.kill(process.pid, signal.SIGCONT)
        self.landed.append("continued")


def test_each_call_is_answered_once_and_the_topics_agree(
    own_broker: Callable[..., Broker],
    kafka_cluster: Callable[..., KafkaCluster],
    say: Callable[[str], None],
    tmp_path: Path,
) -> None:
    say(f"seed {SEED}; run it again with HEADGATE_CHAOS_SEED={SEED}")
    broker = own_broker(settings=QUICK_GROUPS)
    create_topic(broker.address, "t")
    workers = [
        worker
        for port in free_ports(3)
        for worker in kafka_cluster(broker.address, GROUP, 1, properties(port)).workers
    ]
    shared = {**SINK, "number": "0"}
    leader(workers)
    assert workers[0].rest.create(SHARED, shared).status == 201
    # Part of a line is no record: a source that runs writes no offsets of its own.
    (tmp_path / "line").write_text("x" * 2 * CALLS)
    source = {"connector.class": "FileStreamSource", "topic": "t", "file": f"{tmp_path}/line"}
    callers = [Caller(number, workers, SEED, source) for number in range(CALLERS)]
    begun = time.monotonic()
    blows = Blows(workers, callers)
    try:
        with ThreadPoolExecutor(CALLERS) as pool:
            list(pool.map(make_calls, callers))
        blows.over()
    finally:
        for caller in callers:
            caller.close()
    calls = sum((caller.calls for caller in callers), Counter[str]())
    others = sum((caller.other.calls for caller in callers), Counter[str]())
    say(f"{time.monotonic() - begun:.0f} s, {dict(calls)}, {dict(others)}")
    assert calls["grpc"] + calls["rest"] >= CALLS
    assert max(caller.longest_s for caller in callers) < 2 * CALL_S + 5, "each is answered"
    assert calls["done"] > CALLS // 4 and calls["shared done"] > 20 and calls["read back"] > 20
    for word in ("stop", "pause", "resume", "restart", "alter", "reset"):
        assert others[f"{word} done"] > 5, word
    records = read_committed(broker.address, f"{GROUP}-configs")
    events = [decode(BEHIND + n, key, value) for n, (key, value) in enumerate(records)]
    check(callers, events, told_offsets(broker.address))
    state = fold(ConfigState(), events)
    for worker in workers:
        await_true("all read", lambda worker=worker: shown(worker) == configured(state), 60)
        await_true("obeyed", lambda worker=worker: states(worker) == wanted(state), 60)


def properties(port: int) -> dict[str, str]:
    return quick_properties(
        **{
            "headgate.task.runner": "thread",
            "headgate.grpc.listeners": f"grpc://127.0.0.1:{port}",
            "headgate.grpc.internal": "true",
        }
    )


def make_calls(caller: Caller) -> None:
    for _ in range(-(-CALLS // CALLERS)):
        caller.call()


def shown(worker: KeptWorker) -> dict[str, str]:
    found = worker.rest.get("/connectors?expand=info").body
    return {name: each["info"]["config"]["number"] for name, each in found.items()}


def states(worker: KeptWorker) -> dict[str, str]:
    reply = worker.rest.get("/connectors?expand=status")
    if reply.status != 200:
        return {}
    return {name: each["status"]["connector"]["state"] for name, each in reply.body.items()}


def wanted(state: ConfigState) -> dict[str, str]:
    """Return the state that each connector must reach."""
    targets = {name: state.target_state(name).value for name in state.connector_names()}
    return {name: "RUNNING" if each == "STARTED" else each for name, each in targets.items()}


def told_offsets(address: str) -> list[tuple[str, Any]]:
    """Connector and position of all that its offsets topic says; None: a reset."""
    topic = f"{GROUP}-offsets"
    admin = AdminClient({"bootstrap.servers": address})
    partitions = len(admin.list_topics(topic, timeout=20).topics[topic].partitions)
    found = []
    for key, value in read_committed(address, topic, partitions):
        connector, _ = json.loads(key)
        found.append((connector, None if value is None else json.loads(value)["position"]))
    return found


def configured(state: ConfigState) -> dict[str, str | None]:
    entries = {name: state.entry(name) for name in state.connector_names()}
    return {
        name: entry.config["number"] for name, entry in entries.items() if entry and entry.config
    }
