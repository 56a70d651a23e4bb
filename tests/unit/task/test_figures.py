"""A body counts its batches, and the records that it could not process."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.task.body_bench import BodyBench
from support.task.sink_records import fill

from headgate import wire
from headgate.connector.api import (
    DataError,
    PlannedSinkTask,
    RetriableError,
    SinkRecord,
    SinkTask,
    SourceRecord,
    SourceTask,
    Transform,
)
from headgate.task.messages import (
    CallFigures,
    ErrorFigures,
    Measured,
    TaskEnded,
    TaskKind,
    TaskOutcome,
    TaskProgress,
    TaskReport,
)
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.tasks import body

SLOW_S = 0.03
TOLERANT = {"errors.tolerance": "all", "errors.log.enable": "true"}
LETTERS = {
    **TOLERANT,
    "errors.deadletterqueue.topic.name": "dlq",
    "errors.deadletterqueue.topic.replication.factor": "1",
}


class Source(SourceTask):
    """Gives batches of 3, 1 and 2 records, each after a while, with polls between that find
    nothing."""

    def start(self, config: Mapping[str, str]) -> None:
        self.sizes, self.turn = [3, 1, 2], 0

    def poll(self) -> Sequence[SourceRecord]:
        self.turn += 1
        if self.turn % 2 or not self.sizes:
            self.context.wait(0.01)
            return ()
        time.sleep(SLOW_S)
        size = self.sizes.pop(0)
        return [SourceRecord({"p": 1}, {"n": n}, "t", f"{size}.{n}") for n in range(size)]


class Sink(SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None:
        if records:
            time.sleep(SLOW_S)


class Picky(Transform):
    """Refuses some values for good, others once, and drops others."""

    def __init__(self, **does: str) -> None:
        self.does = does
        self.tries = 0

    def apply(self, record: Any) -> Any:
        value = record.value if isinstance(record.value, str) else record.value.decode()
        if value == self.does.get("refuse"):
            raise DataError("no")
        if value == self.does.get("retry") and self.tries < 2:
            self.tries += 1
            raise RetriableError("not yet")
        return None if value == self.does.get("drop") else record

    apply_source = apply
    apply_sink = apply


def measured(bench: BodyBench) -> Measured:
    found = bench.progress.measured
    assert found is not None
    return found


def calls(bench: BodyBench) -> CallFigures:
    found = measured(bench).batches
    assert found is not None
    return found


def errors(bench: BodyBench) -> ErrorFigures:
    found = measured(bench).errors
    assert found is not None
    return found


@pytest.mark.parametrize("exactly_once", [True, False])
def test_polls_that_found_records(tmp_path: Path, *, exactly_once: bool) -> None:
    bench = BodyBench(tmp_path, Source, {}, exactly_once=exactly_once).start()
    bench.until(lambda: bench.progress.records == 6)
    bench.stop()
    found = calls(bench)
    assert (found.method, found.calls, found.records, found.records_max) == ("poll", 3, 6, 3)
    assert 3 * SLOW_S * 1e6 <= found.took_us < 20e6
    assert SLOW_S * 1e6 <= found.took_us_max <= found.took_us
    assert errors(bench) == ErrorFigures()


def test_records_that_are_dropped_or_refused_were_given_by_the_poll(tmp_path: Path) -> None:
    chain = [Picky(refuse="3.1", drop="2.0")]
    bench = BodyBench(tmp_path, Source, LETTERS, chain=chain).start()
    bench.until(lambda: bench.progress.records == 4 and bench.progress.skipped)
    bench.stop()
    assert calls(bench).records == 6
    found = errors(bench)
    assert (found.failures, found.errors, found.retries, found.logged) == (1, 1, 0, 1)
    assert (found.letters, found.refused_letters) == (1, 0)
    assert found.last_ms is not None and abs(found.last_ms / 1000 - time.time()) < 60


def test_a_record_of_a_source_that_is_tried_again(tmp_path: Path) -> None:
    config = {"errors.retry.timeout": "60000", "errors.retry.delay.max.ms": "50"}
    bench = BodyBench(tmp_path, Source, config, chain=[Picky(retry="3.1")]).start()
    bench.until(lambda: bench.progress.records == 6)
    bench.stop()
    assert (calls(bench).calls, calls(bench).records) == (3, 6)
    found = errors(bench)
    assert (found.failures, found.errors, found.retries) == (2, 0, 2)


def test_puts_that_had_records(tmp_path: Path) -> None:
    fill(tmp_path, [b"a", b"b", b"c", b"d"], 2)
    kind = TaskKind.SINK
    chain = [Picky(refuse="b", drop="c")]
    bench = BodyBench(tmp_path, Sink, {"topics": "t", **LETTERS}, kind=kind, chain=chain).start()
    bench.until(lambda: bench.progress.records == 4)
    bench.until(lambda: measured(bench).partitions == 2)
    bench.stop()
    found = calls(bench)
    assert (found.method, found.records) == ("put", 2)
    assert 1 <= found.calls <= 2
    assert found.took_us >= found.calls * SLOW_S * 1e6
    assert measured(bench).read == 4
    assert (errors(bench).failures, errors(bench).letters) == (1, 1)


class Reports(Sink):
    """Reports each record."""

    def put(self, records: Sequence[SinkRecord]) -> None:
        reporter = self.context.errant_record_reporter()
        assert reporter is not None
        for record in records:
            reporter.report(record, ValueError("odd"))


def test_records_that_a_sink_reports(tmp_path: Path) -> None:
    fill(tmp_path, [b"a", b"b"])
    config = {"topics": "t", **LETTERS}
    bench = BodyBench(tmp_path, Reports, config, kind=TaskKind.SINK).start()
    bench.until(lambda: bench.progress.records == 2)
    bench.stop()
    found = errors(bench)
    assert (found.failures, found.errors, found.logged, found.letters) == (2, 2, 2, 2)


def test_a_dead_letter_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task fails, and has told of it before."""
    plain = EmbeddedProducer.acks

    def refused(producer: EmbeddedProducer) -> Any:
        return [replace(ack, error="too large") for ack in plain(producer)]

    fill(tmp_path, [b"a"])
    monkeypatch.setattr(EmbeddedProducer, "acks", refused)
    config = {"topics": "t", **LETTERS}
    bench = BodyBench(tmp_path, Reports, config, kind=TaskKind.SINK).start()
    assert bench.wait().outcome is TaskOutcome.FAILED
    assert errors(bench).refused_letters >= 1


@pytest.mark.parametrize("kind", list(TaskKind))
def test_the_error_that_ends_a_task_is_told_before_its_end(tmp_path: Path, kind: TaskKind) -> None:
    fill(tmp_path, [b"a"])
    chain = [Picky(refuse="a" if kind is TaskKind.SINK else "3.0")]
    task, config = (Sink, {"topics": "t"}) if kind is TaskKind.SINK else (Source, {})
    bench = BodyBench(tmp_path, task, config, kind=kind, chain=chain).start()
    assert bench.wait().outcome is TaskOutcome.FAILED
    assert isinstance(bench.reports[-1], TaskEnded)
    assert (errors(bench).failures, errors(bench).errors) == (1, 1)


class Late(Sink):
    """A sink whose first commit must be tried again."""

    commits = 0

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        type(self).commits += 1
        if self.commits == 1:
            raise RetriableError("not yet")
        return offsets


def test_commits_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Late, "commits", 0)
    fill(tmp_path, [b"a"])
    bench = BodyBench(tmp_path, Late, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: bench.progress.records == 1)
    bench.stop()
    assert (measured(bench).failed_commits, measured(bench).commits) == (1, 1)


class Batches(PlannedSinkTask):
    """Has one batch of 5 records, then none."""

    def start(self, config: Mapping[str, str]) -> None:
        self.first = True

    def run_batch(self) -> int:
        if not self.first:
            return 0
        self.first = False
        time.sleep(SLOW_S)
        return 5


def test_batches_that_are_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MEASURE_MS", 20)
    fill(tmp_path, [b"a"])
    bench = BodyBench(tmp_path, Batches, {"topics": "t"}, kind=TaskKind.SINK).start()
    bench.until(lambda: bench.progress.records == 5)
    bench.stop()
    found = calls(bench)
    assert (found.method, found.calls, found.records) == ("run_batch", 1, 5)
    assert found.took_us >= SLOW_S * 1e6
    assert measured(bench).elsewhere


def test_figures_travel_from_a_task_in_another_process() -> None:
    figures = CallFigures("put", 1, 2, 3, 4, 5), ErrorFigures(1, 2, 3, 4, 5, 6, 7)
    told = TaskProgress(5, 0, False, measured=Measured(1, 2, 3, None, *figures, 4, 5, 6, True))
    assert wire.loads(TaskReport, wire.dumps(told)) == told
