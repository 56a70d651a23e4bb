"""The listing of all connectors by REST, with status and info, by our worker and by Java's.

They take turns on one broker. The connectors are STOPPED sinks, so the rows have no tasks. A
thousand running sinks would measure their consumers.

Our worker keeps the rows of a listing. "After a change of all" is the first listing after a target
state was written for each connector, for which our worker makes every row again.
HEADGATE_BENCH_CONNECTORS sets another number. With 10,000, Java's worker has not answered after two
minutes.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
from confluent_kafka.admin import AdminClient

from bench.kafka_topics import create_topic, fill
from bench.kafka_workers import (
    JAVA,
    KINDS,
    OURS,
    Worker,
    Workers,
    beside_java,
    cpu_of,
    workers,
)
from headgate.ids import TargetState
from headgate.topics import config_records as records

CONNECTORS = int(os.environ.get("HEADGATE_BENCH_CONNECTORS", "1000"))
ROUNDS = 15
WARM = 5
CHANGES = 5
START_S = 300.0
SETTLE_S = 5.0
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
LISTINGS = {
    "status and info": (("expand", "status"), ("expand", "info")),
    "status": (("expand", "status"),),
    "names": (),
}
Took = dict[str, dict[str, list[tuple[float, float]]]]


def run() -> Iterator[str]:
    """Yield report lines: time and CPU of a listing, ours beside Java's."""
    with workers() as made:
        found = {kind: _started(made, kind) for kind in KINDS}
        clients = {
            kind: httpx.Client(base_url=worker.url, trust_env=False, timeout=120)
            for kind, worker in found.items()
        }
        _same(clients)
        took: Took = {what: {kind: [] for kind in KINDS} for what in LISTINGS}
        for turn in range(WARM + ROUNDS):
            for what in LISTINGS:
                for kind in KINDS:
                    spent = _listed(found[kind], clients[kind], what)
                    if turn >= WARM:
                        took[what][kind].append(spent)
        yield (
            f"{CONNECTORS:,} STOPPED connectors by REST; medians of {ROUNDS} listings, after {WARM}"
        )
        for what, some in took.items():
            yield from beside_java(what, some, "ms", "7.0f")
        what = "status and info"
        changed: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for _ in range(CHANGES):
            for kind in KINDS:
                _change_all(made, kind)
            time.sleep(SETTLE_S)
            for kind in KINDS:
                changed[kind].append(_listed(found[kind], clients[kind], what))
        yield f"the same after a change of all; medians of {CHANGES}"
        yield from beside_java(what, changed, "ms", "7.0f")


def _listed(worker: Worker, client: httpx.Client, what: str) -> tuple[float, float]:
    """Return the milliseconds until the last byte has come, and those of the worker's CPU."""
    used, began = cpu_of(worker), time.perf_counter()
    answer = client.get("/connectors", params=LISTINGS[what])
    wall, cpu = time.perf_counter() - began, cpu_of(worker) - used
    assert len(answer.json()) == CONNECTORS
    return wall * 1000, cpu * 1000


def _group(kind: str) -> str:
    return f"listing-{kind.lower()}"


def _started(made: Workers, kind: str) -> Worker:
    """Start a worker, alone in its group, that has reported the status of all connectors."""
    _write_configs(made, kind)
    properties = {"exactly.once.source.support": "disabled"}
    worker: Worker = made.make(kind, _group(kind), properties)
    worker.launch()
    _until_stopped(worker, kind)
    time.sleep(SETTLE_S)
    return worker


def _until_stopped(worker: Worker, kind: str) -> None:
    until, states = time.monotonic() + START_S, Counter[str]()
    while time.monotonic() < until:
        time.sleep(1)
        try:
            reply = worker.rest.get("/connectors?expand=status")
        except httpx.TransportError:
            continue
        if reply.status == 200:
            shown = reply.body.values()
            states = Counter(each["status"]["connector"]["state"] for each in shown)
        if states["STOPPED"] == CONNECTORS:
            return
    raise TimeoutError(f"{kind}: after {START_S:g} s the connectors are {dict(states)}")


def _same(clients: dict[str, httpx.Client]) -> None:
    """Raise an error unless both answers are the same except for versions and addresses."""

    def told(client: httpx.Client) -> Any:
        body = client.get("/connectors", params=LISTINGS["status and info"]).json()
        for each in body.values():
            status = each["status"]
            for item in (status["connector"], *status["tasks"]):
                item.pop("worker_id")
                item.pop("version", None)
        return body

    ours = told(clients[OURS])
    java = told(clients[JAVA])
    if ours != java:
        name = next(name for name in java if ours.get(name) != java[name])
        raise RuntimeError(f"ours: {json.dumps(ours.get(name))}; Java: {json.dumps(java[name])}")


def _name(number: int) -> str:
    return f"orders-of-region-{number:05}"


def _write_configs(made: Workers, kind: str) -> None:
    topic = f"{_group(kind)}-configs"
    admin = AdminClient({"bootstrap.servers": made.broker.address})
    create_topic(admin, topic, settings={"cleanup.policy": "compact"})
    written: list[tuple[str, bytes | None]] = []
    for number in range(CONNECTORS):
        name = _name(number)
        config = {"name": name, "connector.class": SINK, "tasks.max": "1", "topics": name}
        config["file"] = f"/dev/{name}"
        written.append(records.encode_target_state(name, TargetState.STOPPED))
        written.append(records.encode_connector(name, config))
        written.append(records.encode_commit(name, 0))
    _fill(made, topic, written)


def _change_all(made: Workers, kind: str) -> None:
    states = [
        records.encode_target_state(_name(number), TargetState.STOPPED)
        for number in range(CONNECTORS)
    ]
    _fill(made, f"{_group(kind)}-configs", states)


def _fill(made: Workers, topic: str, written: list[tuple[str, bytes | None]]) -> None:
    records = ({"key": key.encode(), "value": value} for key, value in written)
    fill(made.broker.address, topic, records)
