"""Replay of a config topic, from records to events to state.

It is measured with the standard library's JSON parser and with orjson, each in a process of its
own, so that peak memory is measured for each alone.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from headgate.ids import TargetState, TaskId
from headgate.topics import config_records as records
from headgate.topics.config_reducer import REPLAY_BATCH, fold
from headgate.topics.config_state import ConfigState
from headgate_runtime.worker import collector

RECORDS = 1_000_000
CONNECTORS = 1_000
TASKS = 100

Bytes = tuple[int, bytes, bytes | None]


def run() -> list[str]:
    """Return a report line for each JSON parser on the same records."""
    return [_measured(parser) for parser in ("json", "orjson")]


def _measured(parser: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench.replay", parser],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return (
        f"{RECORDS:,} records ({CONNECTORS:,} connectors x {TASKS} tasks), {parser}: "
        f"{found['cpu_s']:.2f} s CPU (decode {found['decode_s']:.2f}, fold {found['fold_s']:.2f}), "
        f"{found['wall_s']:.2f} s wall, peak memory {found['peak_mib']:.0f} MiB "
        f"({found['base_mib']:.0f} before)"
    )


def config_topic() -> Iterator[Bytes]:
    """Yield the records of a config topic. In each round, each connector gets a config, task
    configs, a commit record and a task count record."""
    offset = 0
    version = 0
    while True:
        version += 1
        for number in range(CONNECTORS):
            for key, value in _rewritten(f"connector-{number}", version):
                yield offset, key.encode(), value
                offset += 1
            offset += 3  # transaction markers


def _rewritten(name: str, version: int) -> Iterator[records.Record]:
    config: dict[str, str | None] = {
        "connector.class": "io.example.connect.jdbc.JdbcSourceConnector",
        "tasks.max": str(TASKS),
        "connection.url": f"jdbc:postgresql://db-{name}.example.net:5432/orders",
        "mode": "incrementing",
        "topic.prefix": f"{name}-",
        "poll.interval.ms": "5000",
        "version": str(version),
        "name": name,
    }
    yield records.encode_connector(name, config)
    for task in range(TASKS):
        own = {**config, "task.class": "io.example.connect.jdbc.JdbcSourceTask"}
        own["tables"] = f"public.orders_{task}"
        yield records.encode_task(TaskId(name, task), own)
    yield records.encode_commit(name, TASKS)
    yield records.encode_task_count(name, TASKS)
    if version % 4 == 0:
        yield records.encode_target_state(name, TargetState.PAUSED)


def measure(parser: str) -> dict[str, float]:
    """Replay the records in batches. Making the records is not measured."""
    parse = None
    if parser == "orjson":
        import orjson

        parse = orjson.loads
    collector.settle()  # as a worker does
    base_mib = _peak_mib()
    source = islice(config_topic(), RECORDS)
    state = ConfigState()
    decode_s = fold_s = wall_s = 0.0
    while batch := list(islice(source, REPLAY_BATCH)):
        began, wall = time.process_time(), time.perf_counter()
        events = records.decode_all(batch, parse)
        decoded = time.process_time()
        state = fold(state, events)
        folded = time.process_time()
        decode_s += decoded - began
        fold_s += folded - decoded
        wall_s += time.perf_counter() - wall
    held = sum(len(state.tasks(name)) for name in state.connector_names())
    if held < CONNECTORS * TASKS - TASKS:
        raise AssertionError(f"{held} tasks held, expected about {CONNECTORS * TASKS}")
    return {
        "cpu_s": decode_s + fold_s,
        "decode_s": decode_s,
        "fold_s": fold_s,
        "wall_s": wall_s,
        "peak_mib": _peak_mib(),
        "base_mib": base_mib,
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
