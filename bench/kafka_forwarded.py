"""Forwarding a call from a follower to its leader: by gRPC, by HTTP, and between Java workers.

They take turns on one broker. The bench also measures what a gRPC listener costs a worker in
memory.

The call creates a connector that exists already, so the leader refuses it without writing. So the
time is that of the way there and back, and of the read of the config topic before each refusal. The
same call to the leader itself is measured beside it.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

from bench.kafka_workers import JAVA, OURS, Worker, Workers, pid_of, workers
from bench.processes import pss_mib
from local_kafka.jvm import free_ports

CALLS = 300
WARM = 100
TURNS = 3
SETTLE_S = 3.0
HTTP, GRPC = "ours, HTTP", "ours, gRPC"
CONFIG = {"connector.class": "FileStreamSink", "file": "/dev/null", "topics": "t", "tasks.max": "1"}


def _listener() -> dict[str, str]:
    return {"headgate.grpc.listeners": f"grpc://127.0.0.1:{free_ports(1)[0]}"}


def _properties(kind: str) -> dict[str, str]:
    return {**_listener(), "headgate.grpc.internal": "true"} if kind == GRPC else {}


def _pair(made: Workers, kind: str, group: str) -> tuple[Worker, Worker]:
    """Start two workers of a group, and return them. The first one is its leader."""
    found = []
    for _ in range(2):
        worker = made.make(JAVA if kind == JAVA else OURS, group, _properties(kind))
        worker.start()
        found.append(worker)
    time.sleep(SETTLE_S)
    return found[0], found[1]


def _timed(worker: Worker, body: dict[str, Any]) -> list[float]:
    """Return the milliseconds of each call."""
    took = []
    for _ in range(WARM + CALLS):
        began = time.perf_counter()
        reply = worker.rest.post("/connectors", body)
        took.append((time.perf_counter() - began) * 1000)
        assert reply.status == 409, reply
    return took[WARM:]


def run() -> Iterator[str]:
    """Yield report lines: the calls by way of forwarding, then the memory."""
    with workers() as made:
        took: dict[str, list[tuple[float, float]]] = {kind: [] for kind in (HTTP, GRPC, JAVA)}
        for turn in range(TURNS):
            for kind, some in took.items():
                group = f"forwarded-{turn}-{list(took).index(kind)}"
                leader, follower = _pair(made, kind, group)
                body = {"name": "there", "config": CONFIG}
                assert leader.rest.create("there", CONFIG).status == 201
                leader.rest.await_tasks("there", ["RUNNING"])
                direct, passed = _timed(leader, body), _timed(follower, body)
                some.append((statistics.median(direct), statistics.median(passed)))
                made.close()
        yield f"p50 of {CALLS} refused creates in ms; medians of {TURNS} turns"
        yield f"{'':14}{'of the leader':>16}{'passed on':>12}{'the way':>10}"
        for kind, some in took.items():
            direct, passed = (statistics.median(each) for each in zip(*some, strict=True))
            way = statistics.median(b - a for a, b in some)
            yield f"{kind:14}{direct:>16.2f}{passed:>12.2f}{way:>10.2f}"
        yield from _memory(made)


def _memory(made: Workers) -> Iterator[str]:
    idle: dict[str, list[float]] = {"without a gRPC listener": [], "with one": []}
    for turn in range(TURNS):
        for what, some in idle.items():
            properties = _listener() if what == "with one" else {}
            worker = made.make(OURS, f"memory-{turn}-{len(what)}", properties)
            worker.start()
            time.sleep(SETTLE_S)
            some.append(pss_mib(pid_of(worker)))
            made.close()
    for what, some in idle.items():
        yield f"PSS of a worker {what}: {statistics.median(some):.1f} MiB"
