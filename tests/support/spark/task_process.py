"""A process that runs a task on the embedded log and on Spark, and stands still on the way.

Run as ``python task_process.py '{"which", "remote", "folder", "stops", "wanted"}'``. `which` is one
of `KINDS`. `stops` are steps with counts: the process stops when it comes to the step for that time
since the stop before. There it prints ``at STEP`` and waits for a line.

It ends when `wanted` rows are in the output, or when its task ends, and prints how. Each outage of
Spark that the task waits for is a line of the file `OUTAGES`.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[2]))
from support.task.body_bench import BodyBench, visible
from support.task.sink_records import fill

from headgate.connector import api
from headgate.task.messages import TaskKind, TaskSpec
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.tasks import sink_body
from headgate_spark.file_sink import SparkFileSinkTask
from headgate_spark.files import LocalFiles
from headgate_spark.folder_log import FolderLog
from headgate_spark.manifest import Manifest
from headgate_spark.sessions import START_TIMEOUT
from headgate_spark.sink_target import FolderTarget, SparkWriter
from headgate_spark.source import SparkSource, SparkSourceTask
from headgate_spark.spark_sink import SparkSinkTask

SOURCE_STEPS = ("init", "started", "polled", "staged", "commit", "in the commit", "committed")
"""Steps in the order of a run: before it fences its predecessors, before it looks up where to go
on, with rows that are not staged, with staged rows, before the commit, in its transaction, and
after it."""
SINK_STEPS = ("batch", "stage", "staged", "commit", "created", "committed")
"""Steps in the order of a run: before it looks at the folder, before Spark writes files, with
staged files, before the commit, with a commit whose files are not published, and after that."""
TOPIC = "rows"
BATCH = 100
"""Rows in one commit of a sink."""
LOOK_S = 0.3
PATIENCE_MS = 3_600_000
"""Limit of the lifeline's silence, since the process has no worker."""
SESSION_MS = "5000"
"""Time after which another task gets the partitions of a sink that is killed or stands still."""
OUTAGES = "outages"
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
PLAIN = {"value.converter.schemas.enable": "false"}
COLUMN = {"type": "int64", "optional": True, "field": "id"}
ENVELOPE = {"type": "struct", "fields": [COLUMN]}


class Stops:
    """The steps at which the process stands still, in order."""

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

    def around(self, owner: Any, name: str, before: str = "", after: str = "") -> None:
        """Pass a step before each call of a method, and another after each call that returned
        something."""
        plain = getattr(owner, name)

        def called(*given: Any, **named: Any) -> Any:
            self.come_by(before)
            found = plain(*given, **named)
            if found is None or found:
                self.come_by(after)
            return found

        setattr(owner, name, called)


def hook_source(stops: Stops) -> None:
    init = EmbeddedProducer.__init__

    def made(self: Any, *given: Any, **named: Any) -> None:
        init(self, *given, **named)
        self._membership = None  # there is no worker

    EmbeddedProducer.__init__ = made  # type: ignore[method-assign]
    stops.around(EmbeddedProducer, "init", "init")
    stops.around(EmbeddedProducer, "send", after="staged")
    stops.around(EmbeddedProducer, "send_batch", after="staged")
    stops.around(EmbeddedProducer, "commit", "commit", "committed")
    stops.around(EmbeddedProducer, "_check_epoch", after="in the commit")
    stops.around(SparkSourceTask, "start", "started")
    stops.around(SparkSourceTask, "_read", after="polled")


def hook_file_sink(stops: Stops) -> None:
    stops.around(SparkFileSinkTask, "run_batch", "batch")
    stops.around(SparkFileSinkTask, "_execute", "stage", "staged")
    stops.around(Manifest, "commit", "commit", "committed")
    stops.around(Manifest, "_create", after="created")


def hook_sink(stops: Stops) -> None:
    sink_body.BATCH_RECORDS = BATCH
    stops.around(FolderTarget, "commit", "batch")
    stops.around(SparkWriter, "write", "stage", "staged")
    stops.around(FolderLog, "commit", "commit", "committed")
    stops.around(LocalFiles, "create", after="created")


def source_bench(folder: Path, settings: Mapping[str, str]) -> BodyBench:
    connector = SparkSource()
    config = {"topic": TOPIC, "format": "parquet", "mode": "files", "path": str(folder / "in")}
    quick = {"batch.rows": "50", "poll.interval.ms": "50", "files.settle.ms": "0"}
    connector.start({**config, **quick})
    (given,) = connector.task_configs(1)
    settings = {**settings, **PLAIN}
    return BodyBench(
        folder / "log", SparkSourceTask, given, settings=settings, limit_ms=PATIENCE_MS
    )


def sink_bench(task: Any, folder: Path, settings: Mapping[str, str]) -> BodyBench:
    """Return the bench of either sink. Each takes the settings that it knows."""
    config = {"name": "c", "topics": "t", "path": str(folder / "out"), "format": "parquet"}
    config |= {"batch.records.max": str(BATCH), "batch.interval.ms": "0"}
    config |= {"rotate.records": str(BATCH), "rotate.interval.ms": "100"}
    given: dict[str, Any] = {"kind": TaskKind.SINK, "settings": settings, "limit_ms": PATIENCE_MS}
    return BodyBench(folder / "log", task, config, open_transport=opened, **given)


def opened(spec: TaskSpec) -> EmbeddedTransport:
    return open_transport({**spec.transport, "consumer.session.timeout.ms": SESSION_MS})


def given_to_sinks(folder: Path, rows: int) -> None:
    values = [json.dumps({"schema": ENVELOPE, "payload": {"id": n}}) for n in range(rows)]
    fill(folder / "log", [value.encode() for value in values])


def given_to_source(folder: Path, rows: int) -> None:
    """Write the rows into four files, a quarter into each."""
    (folder / "in").mkdir()
    for number, first in enumerate(range(0, rows, rows // 4)):
        ids = range(first, first + rows // 4)
        pq.write_table(pa.table({"id": ids}), folder / "in" / f"{number}.parquet")
    log = open_transport(transport_settings(folder / "log"))
    log.record_log.create_topic(TOPIC, 1)
    log.close()


def in_the_log(folder: Path) -> list[int]:
    return [json.loads(value)["id"] for value in visible(folder / "log", TOPIC)]


def in_the_folder(folder: Path) -> list[int]:
    """Return the ids in the published files."""
    files = [str(path) for path in (folder / "out").glob("*.parquet")]
    if not files:
        return []
    found: list[int] = ds.dataset(files).to_table(columns=["id"])["id"].to_pylist()
    return found


@dataclass(frozen=True)
class Kind:
    """A connector that runs on Spark."""

    steps: Sequence[str]
    hook: Callable[[Stops], None]
    bench: Callable[[Path, Mapping[str, str]], BodyBench]
    given: Callable[[Path, int], None]
    """Makes this many rows of input."""
    ids: Callable[[Path], list[int]]
    """Returns the rows of the output."""
    rows: int
    """Rows of a test's input: enough for commits at each step, since a source reads fast."""


KINDS = {
    "SparkSource": Kind(
        SOURCE_STEPS, hook_source, source_bench, given_to_source, in_the_log, 20_000
    ),
    "SparkFileSink": Kind(
        SINK_STEPS,
        hook_file_sink,
        partial(sink_bench, SparkFileSinkTask),
        given_to_sinks,
        in_the_folder,
        5_000,
    ),
    "SparkSink": Kind(
        SINK_STEPS,
        hook_sink,
        partial(sink_bench, SparkSinkTask),
        given_to_sinks,
        in_the_folder,
        5_000,
    ),
}


def tell_outages(file: Path) -> None:
    init = api.RetriableError.__init__

    def told(self: Any, *given: Any) -> None:
        init(self, *given)
        with file.open("a") as out:
            out.write(" ".join(map(str, given)).replace("\n", " ") + "\n")

    api.RetriableError.__init__ = told  # type: ignore[method-assign]


def main(
    which: str, remote: str, folder: str, stops: Sequence[tuple[str, int]], wanted: int
) -> None:
    kind, place = KINDS[which], Path(folder)
    tell_outages(place / OUTAGES)
    kind.hook(Stops(stops))
    settings = {**JSON, "spark.remote": remote, START_TIMEOUT: "300"}
    bench = kind.bench(place, settings).start()
    while bench.ended is None and len(kind.ids(place)) < wanted:
        time.sleep(LOOK_S)
    ended = bench.ended or bench.stop()
    print(f"ended {ended.outcome.name} {ended.reason}", flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
