"""Where batches begin, on a log in memory. Slices run in this process instead of on Spark."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from headgate.connector.api import DataError, RetriableError, SinkRecord
from headgate.connector.config import ConfigError
from headgate.ports import ConsumerRecord, TopicPartition, TransportError
from headgate_spark.alterations import look
from headgate_spark.batches import SLICE_MIN
from headgate_spark.entries import STAGING
from headgate_spark.file_sink import RecordsGoneError, SparkFileSinkTask
from headgate_spark.files import LocalFiles
from headgate_spark.missing_output import OutputMissingError
from headgate_spark.slices import SliceResult, SliceTask, run_slice

PLACE = ("t", 0)


class Log:
    """A log of one topic-partition, of which retention has deleted everything before `first`."""

    def __init__(self, end: int, first: int = 0) -> None:
        self.first, self.end = first, end
        self.value: bytes | None = b"x"
        self.offsets: dict[TopicPartition, int] = {}

    def partitions(self, _topic: str) -> int:
        return 1

    def end_offsets(self, _topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        return {PLACE: self.end}

    def start_offsets(self, _topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        return {PLACE: self.first}

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        if start < self.first:
            raise TransportError(f"begins at offset {self.first}")
        return [
            ConsumerRecord(topic, partition, offset, None, self.value, (), 0)
            for offset in range(start, min(end, self.end, start + limit))
        ]

    def committed(self, _group: str) -> Mapping[TopicPartition, int]:
        return dict(self.offsets)

    def commit_unguarded(self, _group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        self.offsets.update({place: at for place, at in offsets.items() if at is not None})


class Context:
    stopping = False
    group = "connect-lake"
    topics = ("t",)
    worker_settings: Mapping[str, str] = {"spark.remote": "sc://nowhere"}
    log_elsewhere = ("", "")

    def __init__(self, log: Log) -> None:
        self.log: Any = log
        self.reporter: Any = None

    def errant_record_reporter(self) -> Any:
        return self.reporter

    def skipped(self, count: int, detail: str) -> None:
        raise AssertionError(detail)


class Here(SparkFileSinkTask):
    def _execute(self, slices: Sequence[SliceTask]) -> list[SliceResult]:
        return [run_slice(self.context.log, each) for each in slices]

    def _cores(self) -> int:
        return 2


def task(log: Log, target: Path, **config: str) -> SparkFileSinkTask:
    made = Here()
    made.context = Context(log)
    made.start({"path": str(target), "format": "json", "batch.interval.ms": "0", **config})
    return made


def entries(target: Path) -> list[tuple[int, int, int]]:
    """Start, end and records of each batch."""
    chain = look(LocalFiles(target)).entries(PLACE)
    return [(entry.start, entry.end, entry.records) for entry in chain]


@pytest.mark.parametrize(
    ("key", "more"), [("value.converter", {}), ("key.converter", {"columns.metadata": "key"})]
)
def test_a_worker_whose_converter_it_does_not_read_as_fails_it(
    tmp_path: Path, key: str, more: dict[str, str]
) -> None:
    """The config may name none, and then the worker's holds, which a validation does not see."""
    made = Here()
    made.context = Context(Log(end=1))
    made.context.worker_settings = {"spark.remote": "sc://nowhere", key: "AvroConverter"}
    with pytest.raises(ConfigError, match=f"AvroConverter for configuration {key}"):
        made.start({"path": str(tmp_path), **more})


def test_a_topic_that_has_lost_its_beginning_is_read_from_what_is_left(tmp_path: Path) -> None:
    """No empty batches lead up to there, and each entry begins where the last one ends."""
    sink = task(Log(end=1_010, first=1_000), tmp_path, **{"batch.records.max": "6"})
    assert [sink.run_batch() for _ in range(3)] == [6, 4, 0]
    assert entries(tmp_path) == [(0, 1_006, 6), (1_006, 1_010, 4)]
    assert (tmp_path / "t-0-0-0.json").read_text().count("\n") == 6
    # Who stages files of a batch names its start, or they could never be told from leftovers.
    first = look(LocalFiles(tmp_path)).entries(PLACE)[0]
    assert first.files[0][0].startswith(f"{STAGING}/t-0-0-")


def test_where_records_wait_batches_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate_spark.batches.FIRST", 10)
    sink = task(Log(end=140), tmp_path, **{"batch.records.max": "50"})
    assert [sink.run_batch() for _ in range(5)] == [10, 20, 40, 50, 20]


@pytest.mark.parametrize("how", ["committed", "written"])
def test_records_that_retention_took_before_they_were_written(tmp_path: Path, how: str) -> None:
    log = Log(end=10)
    if how == "committed":
        log.offsets[PLACE] = 10
    else:
        assert task(log, tmp_path).run_batch() == 10
    log.first, log.end = 15, 20
    sink = task(log, tmp_path, **{"on.missing.output": "accept"})
    with pytest.raises(RecordsGoneError, match=r"records 10 to 14 of t-0 .* offset of t-0 to 15$"):
        sink.run_batch()
    # All it has written is gone from the topic, and nothing else: it goes on.
    log.first = 10
    assert sink.run_batch() == 10


def test_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    log = Log(end=10)
    assert task(log, tmp_path).run_batch() == 10
    log.end = 4
    with pytest.raises(OutputMissingError, match="this is another log: it ends at offset 4"):
        task(Log(end=4), tmp_path).run_batch()
    with pytest.raises(RecordsGoneError, match=r"t-0 ends at offset 4, .* begin at 10: "):
        task(log, tmp_path).run_batch()
    # What an ended past of the task wrote meanwhile is no reason: ends were asked for before.
    late = Log(end=4)
    late.offsets = log.offsets
    asked = [4, 10]
    late.end_offsets = lambda _topics: {PLACE: asked.pop(0)}  # type: ignore[method-assign]
    assert task(late, tmp_path).run_batch() == 0


class Reporter:
    """A reporter that keeps what is reported. Letters are in the log while `reaches` is true."""

    def __init__(self, tolerate: bool = True) -> None:
        self.tolerate, self.reaches = tolerate, True
        self.told: list[tuple[int, Any, str]] = []
        self.settled = 0

    def report(self, record: SinkRecord, error: BaseException) -> "Reporter":
        assert record.original is not None
        self.told.append((record.offset, record.original.value, str(error)))
        if not self.tolerate:
            raise DataError(f"Tolerance exceeded in error handler: {error}")
        return self

    def done(self) -> bool:
        return self.settled == len(self.told)

    def result(self, timeout: float | None = None) -> None:
        if not self.reaches:
            raise TransportError("the log is out of reach")
        self.settled = len(self.told)


TOLERANT = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}


def bad_log(end: int, *bad: int) -> Log:
    log = Log(end)
    log.read = lambda topic, number, start, until, _limit: [  # type: ignore[method-assign]
        ConsumerRecord(topic, number, offset, None, b"\xff" if offset in bad else b"x", (), 0)
        for offset in range(start, until)
    ]
    return log


def reporting(log: Log, target: Path, reporter: Reporter, **config: str) -> SparkFileSinkTask:
    made = Here()
    made.context = context = Context(log)
    context.reporter = reporter
    made.start({"path": str(target), "format": "json", "batch.interval.ms": "0", **config})
    return made


def test_a_bad_record_is_reported_once_and_the_others_are_written(tmp_path: Path) -> None:
    log, reporter = bad_log(9_000, 1, 5_000, 8_999), Reporter()
    sink = reporting(log, tmp_path, reporter, **TOLERANT)
    assert [sink.run_batch(), sink.run_batch()] == [8_997, 0]
    assert [(offset, raw) for offset, raw, _ in reporter.told] == [
        (1, b"\xff"), (5_000, b"\xff"), (8_999, b"\xff"),
    ]  # fmt: skip
    assert "t-0 offset 1 is not UTF-8" in reporter.told[0][2]
    assert reporter.done()
    assert entries(tmp_path) == [(0, 9_000, 8_997)]


def test_a_batch_waits_for_its_dead_letters_and_repeats_none(tmp_path: Path) -> None:
    log, reporter = bad_log(4, 1, 2), Reporter()
    sink = reporting(log, tmp_path, reporter, **TOLERANT)
    reporter.reaches = False
    for _ in range(2):
        with pytest.raises(RetriableError, match="dead letters could not be written: the log is"):
            sink.run_batch()
    assert entries(tmp_path) == []
    assert log.offsets.get(PLACE, 0) == 0
    reporter.reaches = True
    assert sink.run_batch() == 2
    assert [offset for offset, _, _ in reporter.told] == [1, 2]
    assert reporter.done()


def test_a_bad_record_without_tolerance_is_reported_and_fails_the_task(tmp_path: Path) -> None:
    log, reporter = bad_log(3, 1, 2), Reporter(tolerate=False)
    letters = {"errors.deadletterqueue.topic.name": "letters"}
    with pytest.raises(DataError, match=r"^the value at t-0 offset 1 is not UTF-8"):
        reporting(log, tmp_path, reporter, **letters).run_batch()
    assert [offset for offset, _, _ in reporter.told] == [1]
    assert entries(tmp_path) == []


def _rows(target: Path) -> int:
    files = [
        path for path in target.rglob("*.json") if not path.is_relative_to(target / "_headgate")
    ]
    return sum(len(path.read_text().splitlines()) for path in files)


@pytest.mark.parametrize("restart", [True, False])
def test_a_folder_that_is_gone_is_found(tmp_path: Path, restart: bool) -> None:
    log, target = Log(3), tmp_path / "out"
    running = task(log, target)
    assert running.run_batch() == 3
    shutil.rmtree(target)
    log.end = 4
    if restart:
        running = task(log, target)
    for _ in range(2):
        with pytest.raises(OutputMissingError, match=r"committed to it: 3 of t-0\. .* rewrite"):
            running.run_batch()
    assert log.offsets == {PLACE: 3}


@pytest.mark.parametrize(("choice", "rows"), [("rewrite", 4), ("accept", 1)])
def test_a_folder_that_is_gone_is_written_anew_or_accepted(
    tmp_path: Path, choice: str, rows: int
) -> None:
    log, target = Log(3), tmp_path / "out"
    assert task(log, target).run_batch() == 3
    shutil.rmtree(target)
    log.end = 4
    again = task(log, target, **{"on.missing.output": choice})
    assert again.run_batch() == rows
    assert again.run_batch() == 0
    again.stop()
    assert _rows(target) == rows
    assert log.offsets == {PLACE: 4}
    assert task(log, target).run_batch() == 0


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("choice", ["fail", "rewrite"])
def test_files_that_are_gone_from_a_folder_that_is_there_are_found(
    tmp_path: Path, choice: str, restart: bool
) -> None:
    """For example, ``rm out/*.parquet`` leaves the manifest."""
    log, target = Log(3), tmp_path / "out"
    settings = {"on.missing.output": choice}
    running = task(log, target, **settings)
    assert running.run_batch() == 3
    log.end = 5
    assert running.run_batch() == 2
    for path in target.glob("t-*"):
        path.unlink()
    log.end = 6
    if restart:
        running = task(log, target, **settings)
    text = (
        r"2 files are gone from .*, such as t-0-0-0\.json, of 2 batches with 5 committed records\."
    )
    for _ in range(2):
        with pytest.raises(OutputMissingError, match=f"{text} Put them back; or stop .* accept"):
            running.run_batch()
    assert log.offsets == {PLACE: 5}


def test_one_batch_whose_files_are_gone_is_found_at_the_next_start(tmp_path: Path) -> None:
    log, target, kept = Log(3), tmp_path / "out", tmp_path / "kept"
    kept.mkdir()
    running = task(log, target)
    for end in (3, 5, 6):
        log.end = end
        running.run_batch()
    for path in target.glob("t-0-3-*"):
        path.rename(kept / path.name)
    with pytest.raises(
        OutputMissingError, match=r"1 file is gone from .* t-0-3-0\.json, of 1 batch with 2"
    ):
        task(log, target).run_batch()
    for path in kept.iterdir():
        path.rename(target / path.name)
    log.end = 7
    assert task(log, target).run_batch() == 1


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("restart", [True, False])
def test_one_of_several_files_of_a_batch_that_is_gone_is_found(
    tmp_path: Path, which: int, restart: bool
) -> None:
    """The others of the batch are there."""

    class Three(Here):
        def _cores(self) -> int:
            return 3

    def three() -> SparkFileSinkTask:
        made = Three()
        made.context = Context(log)
        config = {"path": str(tmp_path), "format": "json", "batch.interval.ms": "0"}
        made.start({**config, "batch.records.max": str(3 * SLICE_MIN)})
        return made

    log = Log(3 * SLICE_MIN)
    running = three()
    assert running.run_batch() == 3 * SLICE_MIN
    if restart:  # the batch is not the last one
        for more in (5, 9):
            log.end = 3 * SLICE_MIN + more
            running.run_batch()
        running = three()
    files = sorted(tmp_path.glob("t-0-0-*.json"))
    assert len(files) == 3
    files[which].unlink()
    log.end += 1
    text = f"1 file is gone from .*, such as {files[which].name}, of 1 batch with some of"
    with pytest.raises(OutputMissingError, match=text):
        running.run_batch()


def test_entries_of_small_batches_are_not_read_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder has as many as a hundred thousand, and each has one file."""
    log, sink = Log(0), task(Log(0), tmp_path)
    sink.context = Context(log)
    for end in range(2, 42, 2):
        log.end = end
        assert sink.run_batch() == 2
    again = task(log, tmp_path)
    read: list[str] = []
    real = LocalFiles.read

    def counted(self: LocalFiles, path: str) -> bytes:
        read.append(path)
        return real(self, path)

    monkeypatch.setattr(LocalFiles, "read", counted)
    log.end += 1
    assert again.run_batch() == 1
    assert len(set(read)) < 5


def test_files_that_are_gone_can_be_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, target = Log(3), tmp_path / "out"
    running = task(log, target, **{"on.missing.output": "accept"})
    assert running.run_batch() == 3
    for path in target.glob("t-*"):
        path.unlink()
    for end, rows in ((5, 2), (6, 1), (7, 1)):
        log.end = end
        assert running.run_batch() == rows
    assert caplog.text.count("1 file is gone from") == 1
    assert _rows(target) == 4


def test_a_batch_without_any_row_has_no_file_to_miss(tmp_path: Path) -> None:
    log, target = Log(3), tmp_path / "out"
    settings = {"on.null.value": "skip"}
    log.value = None
    assert task(log, target, **settings).run_batch() == 0
    assert log.offsets == {PLACE: 3}
    log.value, log.end = b"1", 4
    assert task(log, target, **settings).run_batch() == 1


class Planned(SparkFileSinkTask):
    """A task whose job runs in this process, while other processes act."""

    others: Callable[[], object]
    fails = False

    def _execute(self, slices: Sequence[SliceTask]) -> list[SliceResult]:
        self._slices = slices
        self._sessions: Any = self
        return super()._execute(slices)

    def _cores(self) -> int:
        return 2

    def get(self) -> Any:
        return self

    def close(self) -> None: ...

    def why(self, error: Exception) -> str:
        return str(error)

    def range(self, *_: int) -> Any:
        return self

    def mapInArrow(self, *_: Any) -> Any:  # noqa: N802
        return self

    def collect(self) -> list[dict[str, str]]:
        done = [run_slice(self.context.log, each) for each in self._slices]
        self.others()
        if self.fails:
            raise RuntimeError("Traceback (most recent call last): FileNotFoundError: staged")
        return [{"result": json.dumps([n, asdict(one)])} for n, one in enumerate(done)]


@pytest.mark.parametrize("when", ["while it is written", "before it is looked at"])
def test_a_batch_whose_files_others_have_dropped_is_no_failure(tmp_path: Path, when: str) -> None:
    """A zombie that wakes up commits first, and drops what the task that took its place stages."""
    log = Log(4)
    late = Planned()
    late.context = Context(log)
    late.start({"path": str(tmp_path), "format": "json", "batch.interval.ms": "0"})
    late.fails = when == "while it is written"
    late.others = lambda: None
    if late.fails:  # by itself this is a failure of the task
        with pytest.raises(RuntimeError, match="FileNotFoundError"):
            late.run_batch()
    first = task(log, tmp_path)
    late.others = first.run_batch
    with pytest.raises(RetriableError):
        late.run_batch()
    assert late.run_batch() == 0
    log.end, late.fails, late.others = 6, False, lambda: None
    assert late.run_batch() == 2
    assert entries(tmp_path) == [(0, 4, 4), (4, 6, 2)]
    assert LocalFiles(tmp_path).list(STAGING) == []
