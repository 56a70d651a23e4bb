"""A process that runs a task of SparkSource on the embedded log, and stands still on the way.

Run as ``python source_process.py '{"remote", "data", "config", "stops", "wanted"}'``. `stops` are
steps and how often each is to be come by since the one before; there it says ``at STEP`` and waits
for a line. It ends when the log has `wanted` records, or when its task does, and says how. A kill
at ``in the commit`` meets it inside the transaction of the file.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.task.body_bench import BodyBench

from headgate_embedded import open_reader
from headgate_embedded.producer import EmbeddedProducer
from headgate_spark.source import SparkSource, SparkSourceTask

STEPS = ("init", "started", "polled", "staged", "commit", "in the commit", "committed")
"""In the order of a run: before it shuts out its predecessors, before it looks where to go on, with
rows that are not staged, staged, before the commit, in it, and after it."""
TOPIC = "rows"
FLUSH_S = 0.05
PATIENCE_MS = 3_600_000
"""It has no worker that would be heard of."""
JSON = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


class Stops:
    """Where the process stands still, one after the other."""

    def __init__(self, stops: Sequence[tuple[str, int]]) -> None:
        self._left = [list(stop) for stop in stops]

    def come_by(self, step: str) -> None:
        if not self._left or self._left[0][0] != step:
            return
        self._left[0][1] -= 1
        if not self._left[0][1]:
            del self._left[0]
            print(f"at {step}", flush=True)
            sys.stdin.readline()


def around(owner: Any, name: str, before: Callable[[], None], after: Callable[..., None]) -> None:
    plain = getattr(owner, name)

    def called(self: Any, *given: Any, **named: Any) -> Any:
        before()
        found = plain(self, *given, **named)
        after(self, found)
        return found

    setattr(owner, name, called)


def hook(stops: Stops) -> None:
    at: dict[str, Callable[[], None]] = {
        step: (lambda step=step: stops.come_by(step))  # type: ignore[misc]
        for step in STEPS
    }

    def nothing(*_given: Any) -> None: ...

    def made(producer: Any, _found: Any) -> None:
        producer._membership = None  # there is no worker

    def polled(_task: Any, found: Any) -> None:
        if found:
            at["polled"]()

    def then(step: str) -> Callable[..., None]:
        return lambda *_given: at[step]()

    around(EmbeddedProducer, "__init__", nothing, made)
    around(EmbeddedProducer, "init", at["init"], nothing)
    around(EmbeddedProducer, "send", nothing, then("staged"))
    around(EmbeddedProducer, "send_batch", nothing, then("staged"))
    around(EmbeddedProducer, "commit", at["commit"], then("committed"))
    around(EmbeddedProducer, "_check_epoch", nothing, then("in the commit"))
    around(SparkSourceTask, "start", at["started"], nothing)
    around(SparkSourceTask, "poll", nothing, polled)


def records(data: Path) -> int:
    """How many the log has."""
    reader = open_reader(data)
    try:
        return sum(reader.record_log.end_offsets([TOPIC]).values())
    finally:
        reader.close()


def main(
    remote: str,
    data: str,
    config: Mapping[str, str],
    stops: Sequence[tuple[str, int]],
    wanted: int,
) -> None:
    hook(Stops(stops))
    connector = SparkSource()
    connector.start({"topic": TOPIC, **config})
    (given,) = connector.task_configs(1)
    settings = {**JSON, "spark.remote": remote}
    made = BodyBench(Path(data), SparkSourceTask, given, settings=settings, limit_ms=PATIENCE_MS)
    bench = made.start()
    while bench.ended is None and records(Path(data)) < wanted:
        time.sleep(FLUSH_S)
    ended = bench.ended or bench.stop()
    print(f"ended {ended.outcome.name} {ended.reason}", flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
