"""SparkSource and SparkSink tell errors of Spark itself from errors of the data."""

import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.task.source_tasks import Offsets, Run

from headgate.connector.api import RetriableError, SourceItem, SourceRecord
from headgate_connectors.tables.sink import TableError
from headgate_runtime.spark.launcher import spark_launcher
from headgate_spark.file_sink import SparkFileSinkTask
from headgate_spark.sessions import (
    OUTAGE,
    Sessions,
    executors_lost,
    first_line,
    session_is_over,
)
from headgate_spark.sink_target import SparkWriter
from headgate_spark.source import SparkError, SparkSource
from headgate_spark.source_files import FilesReader, Seen
from headgate_spark.spark_sink import SparkSinkTask

LOST = (
    "Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, most recent failure: "
    "Lost task 1.3 in stage 0.0 (TID 4) (127.0.0.1 executor 2): ExecutorLostFailure (executor 2 "
    "exited caused by one of the running tasks) Reason: Command exited with code 3."
)
"""As Spark 4.3 says it."""
NO_CONTEXT = "(org.apache.spark.SparkException) Job 5 cancelled because SparkContext was shut down"
NO_DRIVER = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNKNOWN
\tdetails = "Application error processing RPC"
\tdebug_error_string = "UNKNOWN:Error received from peer ipv4:127.0.0.1:1"
>"""
"""What a driver answers whose application was ended, until it is ended itself."""
OTHER = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file"


def test_errors_are_told_apart() -> None:
    told = [(session_is_over(error), executors_lost(error)) for error in map(
        RuntimeError, (LOST, NO_CONTEXT, NO_DRIVER, OTHER)
    )]  # fmt: skip
    assert told == [(False, True), (True, False), (True, False), (False, False)]


def test_a_connection_that_broke_is_told_in_a_line() -> None:
    """The text is gRPC's, which begins with the name of a class."""
    assert first_line(RuntimeError(BROKEN)) == "RuntimeError: UNAVAILABLE: Socket closed"
    assert session_is_over(RuntimeError(BROKEN))


class Files:
    """A task in the mode files, of two files of which the first fails with `errors`, in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *errors: str) -> None:
        self.errors = list(errors)
        monkeypatch.setattr(FilesReader, "_listing", lambda _self, _session: self.listed())
        monkeypatch.setattr(FilesReader, "_of_file", self._of_file)
        config = {"topic": "t", "format": "csv", "mode": "files", "path": "/in"}
        config |= {"poll.interval.ms": "10", "files.settle.ms": "0"}
        self.run = Run(SparkSource, config, Offsets(), start=False)
        self.run.context.worker_settings = {"spark.remote": "sc://nowhere"}
        self.run.task.start(self.run.config)
        self.run.task._sessions = self  # type: ignore[attr-defined]
        self.run.task._prepared = self  # type: ignore[attr-defined]

    def get(self) -> Any:
        return self

    def drop(self, _session: Any) -> None: ...

    def why(self, error: BaseException) -> str:
        return first_line(error)

    def listed(self) -> list[Seen]:
        return [Seen("/in/a", 1, 1), Seen("/in/b", 1, 1)]

    def _of_file(self, _session: Any, seen: Seen) -> list[SourceItem]:
        reader: Any = self.run.task._readers[0]  # type: ignore[attr-defined]
        if seen.path == "/in/a" and self.errors:
            raise RuntimeError(self.errors.pop(0))
        reader._done[seen.path] = seen
        reader._close()
        return [SourceRecord({}, {}, "t", seen.path)]

    def poll(self) -> list[str]:
        """Return what a poll gives, or what it raises. Files are listed when there are none
        left."""
        self.run.task._readers[0]._listed_at = float("-inf")  # type: ignore[attr-defined]
        try:
            return [item.value for item in self.run.poll() or [] if isinstance(item, SourceRecord)]
        except RetriableError as error:
            return [str(error).partition(":")[0]]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LOST, "Spark has lost executors"),
        (NO_CONTEXT, "Spark is out of reach"),
        (NO_DRIVER, "Spark is out of reach"),
    ],
)
def test_an_outage_is_waited_for(monkeypatch: pytest.MonkeyPatch, error: str, told: str) -> None:
    task = Files(monkeypatch, error, error)
    assert [task.poll() for _ in range(4)] == [[told], [told], ["/in/a"], ["/in/b"]]
    assert task.run.context.quarantined == []


def test_a_file_that_may_kill_executors_itself_lets_its_neighbours_by_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Files(monkeypatch, *(4 * [LOST]))
    assert [task.poll() for _ in range(4)] == 3 * [["Spark has lost executors"]] + [["/in/b"]]
    reader: Any = task.run.task._readers[0]  # type: ignore[attr-defined]
    assert "ExecutorLostFailure" in reader._aside["/in/a"][1]
    assert task.poll() == ["/in/a"]
    assert task.poll() == [] and task.run.context.quarantined == []


def test_a_file_that_cannot_be_read_is_set_aside_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Files(monkeypatch, OTHER)
    assert [task.poll() for _ in range(3)] == [["/in/b"], [], []]
    assert task.run.context.quarantined == [f"/in/a: RuntimeError: {OTHER}"]


@pytest.mark.parametrize("mode", ["bulk", "incrementing"])
def test_rows_of_a_share_are_waited_for(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    own = {"incrementing.column": "n"} if mode == "incrementing" else {}
    config = {"topic": "t", "format": "csv", "mode": mode, "path": "/in", **own}
    run = Run(SparkSource, config, Offsets(), start=False)
    run.context.worker_settings = {"spark.remote": "sc://nowhere"}
    run.task.start(run.config)
    task: Any = run.task
    waited_for = [(text, RetriableError) for text in (LOST, NO_CONTEXT, NO_DRIVER)]
    for text, kind in (*waited_for, (OTHER, SparkError)):
        monkeypatch.setattr(task._sessions, "get", lambda: task)
        task._prepared = task
        monkeypatch.setattr(task._readers[0], "next_batch", failing(text))
        with pytest.raises(kind):
            run.poll()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        *((text, RetriableError) for text in (LOST, NO_CONTEXT, NO_DRIVER)),
        (OTHER, TableError),
    ],
)
def test_a_batch_of_a_sink_is_waited_for(text: str, kind: type[Exception]) -> None:
    writer: Any = SparkWriter.__new__(SparkWriter)
    writer._session = object
    writer._sessions = SimpleNamespace(drop=lambda _session: None, why=first_line)
    with pytest.raises(kind), writer._spark("the batch was not written"):
        raise RuntimeError(text)


OUT = "Spark's driver (pid 7) has not answered for 60 s and was ended"
BROKEN = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "Socket closed"
\tdebug_error_string = "UNKNOWN:Error received from peer ipv4:127.0.0.1:1"
>"""


@pytest.fixture
def note(tmp_path: Path) -> str:
    """The file in which the worker has said what became of the driver."""
    file = tmp_path / "outage"
    file.write_text(OUT)
    return str(file)


def out_of_reach(sessions: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "get", lambda *_given: failing("Socket closed")(None))


def test_a_source_says_what_became_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    config = {"topic": "t", "format": "csv", "mode": "bulk", "path": "/in"}
    run = Run(SparkSource, config, Offsets(), start=False)
    run.context.worker_settings = {"spark.remote": "sc://nowhere", OUTAGE: note}
    run.task.start(run.config)
    out_of_reach(run.task._sessions, monkeypatch)  # type: ignore[attr-defined]
    with pytest.raises(RetriableError) as caught:
        run.poll()
    assert str(caught.value) == f"Spark is out of reach: {OUT}"


def test_a_sink_says_what_became_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, note: str, tmp_path: Path
) -> None:
    task: Any = SparkSinkTask()
    settings = {"spark.remote": "sc://nowhere", OUTAGE: note}
    task.context = SimpleNamespace(worker_settings=settings)
    _, target = task.open_target({"name": "c", "format": "csv", "path": str(tmp_path / "out")})
    out_of_reach(target._writer._sessions, monkeypatch)
    with pytest.raises(RetriableError) as caught:
        target._writer.write(pa.table({"n": [1]}), "")
    assert str(caught.value) == f"Spark is out of reach: {OUT}"


def test_a_file_sink_says_what_became_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    task: Any = SparkFileSinkTask()
    task.context = SimpleNamespace(log_elsewhere=("", ""))
    task._sessions = Sessions.of_task("sc://nowhere", {OUTAGE: note}, shares=True)
    out_of_reach(task._sessions, monkeypatch)
    with pytest.raises(RetriableError) as caught:
        task._execute([])
    assert str(caught.value) == f"Spark did not finish the batch: {OUT}"


def test_a_job_of_a_resident_task_says_what_became_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    launcher: Any = spark_launcher({"remote": "sc://nowhere", "outage.file": note})
    out_of_reach(launcher._sessions, monkeypatch)
    told: queue.Queue[str | None] = queue.Queue()
    launcher.launch("run", "", told.put)
    assert told.get(timeout=20) == f"Spark: {OUT}"
    launcher.close()


def failing(text: str) -> Any:
    def raised(_session: Any) -> None:
        raise RuntimeError(text)

    return raised
