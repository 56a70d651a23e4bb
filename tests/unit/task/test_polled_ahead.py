"""A source task is polled while its records before are being committed."""

import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from support.task.body_bench import BodyBench, source_offsets, visible
from support.task.scripted_source import (
    KEY,
    Batch,
    Scripted,
    let_a_bare_error_out,
    record,
    run_dry,
)

from headgate.connector.api import RetriableError, SkippedRecord, SourceRecord, SourceTask
from headgate.ports import FencedError, TransportError
from headgate.task.machine import RETRY_DELAY_MS
from headgate.task.messages import PauseTask, ResumeTask, StopTask, TaskOutcome, TaskPaused
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.tasks import source_body
from headgate_runtime.tasks.commit_under_way import CommitUnderWay

LIMIT_S = 10.0
Offsets = Sequence[tuple[bytes, bytes | None]]


class SlowLog:
    """Commits that are begun wait for `answer`, or for the next poll if `answers_polls`."""

    def __init__(self) -> None:
        self.answers_polls = True
        self.answer = threading.Event()
        self.begun = 0
        self.fails_with: Exception | None = None
        self.visible_at_polls: list[list[str]] = []

    def begin_commit(
        self, producer: EmbeddedProducer, offsets: Offsets
    ) -> Callable[[], None] | None:
        self.begun += 1
        self.answer.clear()

        def end() -> None:
            assert self.answer.wait(LIMIT_S), "the task was not polled meanwhile"
            if self.fails_with is not None:
                raise self.fails_with
            producer.commit(offsets)

        return end

    def polled(self, folder: Path) -> None:
        self.visible_at_polls.append(visible(folder, "t"))
        if self.answers_polls:
            self.answer.set()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowLog]:
    made = SlowLog()
    monkeypatch.setattr(source_body, "QUICK_S", LIMIT_S)  # the machine may be busy
    monkeypatch.setattr(
        EmbeddedProducer,
        "begin_commit",
        lambda producer, offsets: made.begin_commit(producer, offsets),
    )
    yield made
    made.answer.set()


def task_on(
    log: SlowLog, folder: Path, *steps: Batch | BaseException | None, told: bool = False
) -> type[Scripted]:
    """Polls give a first record, then the batches of `steps`, or raise. `told`: of commits."""
    left: list[Batch | BaseException | None] = [[record(0)], *steps]

    class Given(Scripted):
        batches: list[Batch] = []  # noqa: RUF012

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            log.polled(folder)
            if not left:
                return super().poll()
            step = left.pop(0)
            if isinstance(step, BaseException):
                raise step
            return step

    if not told:
        Given.commit = SourceTask.commit  # type: ignore[method-assign]
    return Given


def test_it_is_polled_during_the_commit_and_each_batch_is_a_transaction(
    log: SlowLog, tmp_path: Path
) -> None:
    """Without such a poll, the log of this test would not answer at all."""
    task = task_on(log, tmp_path, [record(1), record(2)], [record(3)], [record(4)])
    bench = BodyBench(tmp_path, task)
    run_dry(bench)
    # After the first it is not: there may be no more.
    assert log.begun == 3
    seen = [["0"], ["0"], ["0", "1", "2"], ["0", "1", "2", "3"]]
    assert log.visible_at_polls[:5] == [[], *seen]
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert visible(tmp_path, "t") == ["0", "1", "2", "3", "4"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":4}'}
    assert bench.progress.records == 5


@pytest.mark.parametrize(
    ("told", "config", "once"),
    [
        (True, {}, True),
        (False, {"transaction.boundary": "interval"}, True),
        (False, {"transaction.boundary": "connector"}, True),
        (False, {}, False),
    ],
    ids=["told of commits", "by time", "by the connector", "at least once"],
)
def test_it_is_not_where_that_could_be_noticed_or_gains_nothing(
    log: SlowLog, tmp_path: Path, told: bool, config: dict[str, str], once: bool
) -> None:
    config = {"transaction.boundary.interval.ms": "1", **config}
    task = task_on(log, tmp_path, [record(1)], [record(2)], told=told)
    bench = BodyBench(tmp_path, task, config, exactly_once=once).start()
    bench.until(lambda: len(log.visible_at_polls) > 5)
    bench.stop()
    assert log.begun == 0


def test_it_is_not_where_commit_record_is_defined(log: SlowLog, tmp_path: Path) -> None:
    task = task_on(log, tmp_path, [record(1)], [record(2)])
    task.commit_record = lambda *_: None  # type: ignore[assignment, method-assign]
    run_dry(bench := BodyBench(tmp_path, task))
    bench.stop()
    assert log.begun == 0


def test_a_poll_during_the_commit_that_finds_nothing_does_not_make_it_idle(
    log: SlowLog, tmp_path: Path
) -> None:
    """The poll began before the commit was over."""
    task = task_on(log, tmp_path, [record(1)], None, [record(2)])
    run_dry(bench := BodyBench(tmp_path, task))
    assert visible(tmp_path, "t") == ["0", "1", "2"]
    bench.stop()


def test_a_source_that_gives_something_now_and_then_is_polled_after_its_commit(
    log: SlowLog, tmp_path: Path
) -> None:
    """The source may wait for the next record in its poll, and the commit would not be reported
    meanwhile."""
    task = task_on(log, tmp_path, None, [record(1)], None, [record(2)], None)
    bench = BodyBench(tmp_path, task).start()
    bench.until(lambda: bench.progress.records == 3)
    bench.stop()
    assert log.begun == 0


def test_so_is_one_that_paces_itself(
    log: SlowLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_body, "QUICK_S", 0.02)

    class Paced(task_on(log, tmp_path, *([record(n)] for n in range(1, 5)))):  # type: ignore[misc]
        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            self.context.wait(0.03)
            return super().poll()

    run_dry(bench := BodyBench(tmp_path, Paced))
    bench.stop()
    assert bench.progress.records == 5
    assert log.begun == 0


def test_who_asks_for_source_offsets_meanwhile_is_told_those_of_the_commit(
    log: SlowLog, tmp_path: Path
) -> None:
    """A source that goes on from the offsets in the log would give the same records again."""

    class Asking(SourceTask):
        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            if log.begun:
                threading.Timer(0.01, log.answer.set).start()
            found = self.context.offsets.offset({"file": "a"})
            n = 0 if found is None else found["n"] + 1
            return [record(n)] if n < 5 else None

    run_dry(bench := BodyBench(tmp_path, Asking))
    bench.stop()
    assert log.begun > 2
    assert visible(tmp_path, "t") == ["0", "1", "2", "3", "4"]


def test_who_asks_for_them_meanwhile_is_told_that_the_commit_failed(
    log: SlowLog, tmp_path: Path
) -> None:
    log.fails_with = FencedError("another has it")
    told: list[str] = []

    class Asking(task_on(log, tmp_path, [record(1)], [record(2)])):  # type: ignore[misc]
        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            batch = super().poll()
            for _ in range(2):
                try:
                    self.context.offsets.offset({"file": "a"})
                except TransportError as error:
                    told.append(str(error))
            return batch

    ended = BodyBench(tmp_path, Asking).start().wait()
    assert ended.outcome is TaskOutcome.FENCED
    assert told == ["what was polled before was not committed: another has it"] * 2
    assert visible(tmp_path, "t") == ["0"]


def test_what_no_clause_with_a_name_catches_is_raised_after_the_commit(
    log: SlowLog, tmp_path: Path
) -> None:
    class Escaping(task_on(log, tmp_path, [record(1)])):  # type: ignore[misc]
        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            if (batch := super().poll()) is None:
                let_a_bare_error_out()
            return batch

    ended = BodyBench(tmp_path, Escaping).start().wait()
    assert ended.outcome is TaskOutcome.LOST
    assert visible(tmp_path, "t") == ["0", "1"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":1}'}


def polled_in_a_commit(log: SlowLog, folder: Path, *steps: Batch) -> BodyBench:
    """The second step was given while the first is committed, which waits for `log.answer`."""
    log.answers_polls = False
    tolerant = {"errors.tolerance": "all"}
    bench = BodyBench(folder, task_on(log, folder, *steps), tolerant).start()
    bench.until(lambda: len(log.visible_at_polls) == 3)
    return bench


def test_a_stop_during_the_commit_delivers_what_was_polled_meanwhile(
    log: SlowLog, tmp_path: Path
) -> None:
    bench = polled_in_a_commit(log, tmp_path, [record(1)], [record(2)], [record(3)])
    bench.lifeline.deliver(StopTask())
    log.answer.set()
    assert bench.wait().outcome is TaskOutcome.STOPPED
    assert visible(tmp_path, "t") == ["0", "1", "2"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":2}'}
    assert log.begun == 1, "the last commit has nobody to poll for"


def test_a_pause_during_the_commit_delivers_it_too_and_rests(log: SlowLog, tmp_path: Path) -> None:
    bench = polled_in_a_commit(log, tmp_path, [record(1)], [record(2)], [record(3)])
    bench.lifeline.deliver(PauseTask())
    log.answer.set()
    bench.until(lambda: TaskPaused() in bench.reports)
    assert visible(tmp_path, "t") == ["0", "1", "2"]
    assert len(log.visible_at_polls) == 3
    log.answers_polls = True
    bench.lifeline.deliver(ResumeTask())
    bench.until(lambda: visible(tmp_path, "t") == ["0", "1", "2", "3"])
    bench.stop()


def test_a_commit_that_is_refused_takes_what_was_polled_meanwhile_with_it(
    log: SlowLog, tmp_path: Path
) -> None:
    log.fails_with = FencedError("another has it")
    task = task_on(log, tmp_path, [record(1)], [record(2)])
    ended = BodyBench(tmp_path, task).start().wait()
    assert ended.outcome is TaskOutcome.FENCED
    assert visible(tmp_path, "t") == ["0"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":0}'}


def test_a_worker_that_falls_silent_meanwhile_has_nothing_more_committed(
    log: SlowLog, tmp_path: Path
) -> None:
    bench = polled_in_a_commit(log, tmp_path, [record(1)], [record(2)])
    bench.lifeline.lose("silent")
    log.answer.set()
    assert bench.wait().outcome is TaskOutcome.LOST
    assert visible(tmp_path, "t") == ["0", "1"], "its commit was under way"


@pytest.mark.parametrize("error", [ValueError("it broke"), SystemExit("it broke")])
def test_a_poll_that_fails_meanwhile_fails_the_task_after_the_commit(
    log: SlowLog, tmp_path: Path, error: BaseException
) -> None:
    task = task_on(log, tmp_path, [record(1)], error)
    ended = BodyBench(tmp_path, task).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "it broke" in ended.reason
    assert visible(tmp_path, "t") == ["0", "1"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":1}'}


def test_a_poll_that_can_be_made_again_is(log: SlowLog, tmp_path: Path) -> None:
    task = task_on(log, tmp_path, [record(1)], RetriableError("not now"), [record(2)])
    began = time.monotonic()
    bench = BodyBench(tmp_path, task).start()
    bench.until(lambda: visible(tmp_path, "t") == ["0", "1", "2"])
    assert time.monotonic() - began > RETRY_DELAY_MS / 1000
    assert log.begun == 1, "one that has to wait may do so in its poll, too"
    bench.stop()


def test_what_is_passed_over_meanwhile_is_not_committed_before_it(
    log: SlowLog, tmp_path: Path
) -> None:
    """Skipped records have source offsets as well."""
    unusable = SkippedRecord("unreadable", {"file": "a"}, {"n": 2})
    bench = polled_in_a_commit(log, tmp_path, [record(1)], [unusable])
    bench.lifeline.lose("silent")
    log.answer.set()
    bench.wait()
    assert source_offsets(tmp_path) == {KEY: b'{"n":1}'}


def test_a_commit_may_be_awaited_by_many_and_ends_once() -> None:
    ends: list[int] = []
    go = threading.Event()

    def end() -> None:
        assert go.wait(LIMIT_S)
        ends.append(1)

    commit = CommitUnderWay(end)
    readers = [threading.Thread(target=commit.wait) for _ in range(3)]
    for reader in readers:
        reader.start()
    go.set()
    commit.finish()
    for reader in readers:
        reader.join(LIMIT_S)
    commit.wait()
    assert ends == [1]


def test_a_commit_that_failed_has_failed_for_whoever_comes_later() -> None:
    def breaks() -> None:
        raise ValueError("it broke")

    commit = CommitUnderWay(breaks)
    with pytest.raises(ValueError, match="it broke"):
        commit.finish()
    with pytest.raises(TransportError, match="was not committed: it broke"):
        commit.wait()


class Client:
    """A stand-in for a client with threads and buffers. A failed task must not keep it until a
    garbage collection, which a worker makes rare."""


def test_a_failed_commit_keeps_nothing_of_what_it_has_seen() -> None:
    seen: list[weakref.ref[Client]] = []

    def breaks() -> None:
        client = Client()
        seen.append(weakref.ref(client))
        raise ValueError("it broke")

    with no_collections():
        commit = CommitUnderWay(breaks)
        with contextlib.suppress(ValueError):
            commit.finish()
        assert seen[0]() is None


@pytest.mark.parametrize("fails_with", [None, FencedError("another has it")])
def test_nor_does_a_poll_that_failed_meanwhile(
    log: SlowLog, tmp_path: Path, fails_with: Exception | None
) -> None:
    """That holds also if the poll's error is not reported, because the commit failed as well."""
    log.fails_with = fails_with
    seen: list[weakref.ref[Client]] = []

    class Breaking(task_on(log, tmp_path, [record(1)])):  # type: ignore[misc]
        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            client = Client()
            seen.append(weakref.ref(client))
            if (batch := super().poll()) is None:
                raise ValueError("it broke")
            return batch

    with no_collections():
        ended = BodyBench(tmp_path, Breaking).start().wait()
        assert ended.outcome is (TaskOutcome.FENCED if fails_with else TaskOutcome.FAILED)
        assert len(seen) == 3
        assert seen[2]() is None


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
