"""The body of a task reports which topics it has used, and when."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.task.body_bench import BodyBench

from headgate.connector.api import PlannedSinkTask, SinkRecord, SinkTask, SourceRecord, SourceTask
from headgate.ports import Ack, LogBatch, ProducerRecord
from headgate.task.messages import TaskKind, TaskOutcome, TopicsUsed
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.tasks.used_topics import SentTopics


def record(number: int, topic: str) -> SourceRecord:
    return SourceRecord({"f": "a"}, {"n": number}, topic, str(number))


class Given(SourceTask):
    """The batches of the class, one after the other."""

    batches: tuple[tuple[SourceRecord, ...], ...] = (
        (record(0, "b"), record(1, "a"), record(2, "b")),
        (record(3, "b"),),
        (record(4, "c"), record(5, "a")),
    )
    _next = 0

    def poll(self) -> Sequence[SourceRecord] | None:
        if self._next == len(self.batches):
            self.context.wait(0.01)
            return None
        self._next += 1
        return self.batches[self._next - 1]


def told(bench: BodyBench) -> list[tuple[str, ...]]:
    return [report.topics for report in bench.reports if isinstance(report, TopicsUsed)]


@pytest.mark.parametrize("exactly_once", [True, False])
def test_each_topic_of_a_source_is_told_once(exactly_once: bool, tmp_path: Path) -> None:
    bench = BodyBench(tmp_path, Given, exactly_once=exactly_once)
    bench.start().until(lambda: bench.progress.records == 6)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert told(bench) == [("a", "b"), ("c",)]


def test_nothing_is_told_before_the_commit_nor_of_what_is_aborted(tmp_path: Path) -> None:
    class Aborting(Given):
        batches = ((record(0, "x"),), (record(1, "y"), record(2, "x"), record(3, "y")))
        heard: tuple[list[tuple[str, ...]], ...] = ()

        def poll(self) -> Sequence[SourceRecord] | None:
            type(self).heard += (told(bench),)
            found = super().poll()
            transaction = self.context.transaction
            assert transaction is not None
            if self._next == 1 and found:
                transaction.abort_transaction()
            elif found:
                transaction.abort_transaction(found[0])
                transaction.commit_transaction()
            return found

    bench = BodyBench(tmp_path, Aborting, {"transaction.boundary": "connector"})
    bench.start().until(lambda: len(Aborting.heard) >= 3)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert Aborting.heard[:3] == ([], [], [("x", "y")])


def test_a_transaction_that_stays_open_tells_with_its_commit(tmp_path: Path) -> None:
    class Watching(Given):
        batches = ((record(0, "x"),), (record(1, "x"),))
        heard: tuple[list[tuple[str, ...]], ...] = ()

        def poll(self) -> Sequence[SourceRecord] | None:
            type(self).heard += (told(bench),)
            return super().poll()

    config = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "3600000"}
    bench = BodyBench(tmp_path, Watching, config)
    bench.start().until(lambda: len(Watching.heard) == 4)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert Watching.heard[:4] == ([], [], [], [])
    assert told(bench) == [("x",)]


def test_what_the_log_refuses_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Given):
        batches = ((record(0, "x"),), (record(1, "x"), record(2, "y")))

    real = EmbeddedProducer.acks

    def refusing(producer: EmbeddedProducer) -> Sequence[Ack]:
        return [
            Ack(0, 0, "too large") if ack.first == 0 and ack.last == 0 else ack
            for ack in real(producer)
        ]

    monkeypatch.setattr(EmbeddedProducer, "acks", refusing)
    bench = BodyBench(tmp_path, Refused, {"errors.tolerance": "all"}, exactly_once=False)
    bench.start().until(lambda: told(bench))
    bench.stop()
    assert told(bench) == [("x", "y")]


def test_a_topic_counts_once_its_own_rows_of_a_batch_are_there() -> None:
    reports: list[object] = []
    lifeline = SimpleNamespace(report=reports.append)
    topics = SentTopics(lifeline)  # type: ignore[arg-type]
    topics.saw_topic("a")
    topics.saw_topic("b")
    rows = LogBatch("a", 0, 5, None, (), 0, b"", b"")
    topics.sent([rows, ProducerRecord("b", 0, None, b"")], rows.count + 1)
    topics.acknowledged(0, 4)
    assert reports == [TopicsUsed(("a",))]
    topics.acknowledged(5, 5)
    assert reports == [TopicsUsed(("a",)), TopicsUsed(("b",))]


def fill(folder: Path, topics: Sequence[str]) -> None:
    transport = open_transport(transport_settings(folder))
    producer = transport.record_log.producer("test", None, None)
    for topic in topics:
        transport.record_log.create_topic(topic, 1)
        producer.send([ProducerRecord(topic, 0, None, b"v")])
    producer.acks()
    transport.close()


class Taking(SinkTask):
    def put(self, records: Sequence[SinkRecord]) -> None:
        pass


def test_a_sink_tells_the_topics_that_it_was_given_records_of(tmp_path: Path) -> None:
    fill(tmp_path, ["a", "b"])
    bench = BodyBench(tmp_path, Taking, {"topics": "a,b,none"}, kind=TaskKind.SINK)
    bench.start().until(lambda: bench.progress.records == 2)
    fill(tmp_path, ["a", "none"])
    bench.until(lambda: bench.progress.records == 4)
    bench.stop()
    assert sorted(topic for topics in told(bench) for topic in topics) == ["a", "b", "none"]


class Planning(PlannedSinkTask):
    """A planned sink that takes all records. A batch covers the new ones."""

    def run_batch(self) -> int:
        log = self.context.log
        ends = log.end_offsets(self.context.topics)
        before = log.committed(self.context.group)
        log.commit_unguarded(self.context.group, dict(ends))
        return sum(end - before.get(place, 0) for place, end in ends.items())


def test_a_planned_sink_tells_the_topics_whose_offsets_grew(tmp_path: Path) -> None:
    fill(tmp_path, ["a"])
    config = {"topics": "a,b"}
    first = BodyBench(tmp_path, Planning, config, kind=TaskKind.SINK)
    first.start().until(lambda: told(first))
    first.stop()
    assert told(first) == [("a",)]
    fill(tmp_path, ["b"])
    second = BodyBench(tmp_path, Planning, config, kind=TaskKind.SINK)
    second.start().until(lambda: told(second))
    fill(tmp_path, ["b", "a"])
    second.until(lambda: len(told(second)) == 2)
    second.stop()
    assert told(second) == [("b",), ("a",)]


def test_a_planned_sink_of_a_pattern_takes_topics_that_come(tmp_path: Path) -> None:
    fill(tmp_path, ["logs-a", "near-logs-a"])
    bench = BodyBench(tmp_path, Planning, {"topics.regex": "logs-[a-z&&[^x]]"}, kind=TaskKind.SINK)
    bench.start().until(lambda: bench.progress.records == 1)
    fill(tmp_path, ["logs-b", "logs-bb", "logs-x"])
    bench.until(lambda: bench.progress.records == 2)
    fill(tmp_path, ["logs-a"])
    bench.until(lambda: bench.progress.records == 3)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert told(bench) == [("logs-a",), ("logs-b",)]


@pytest.mark.parametrize("task", [Taking, Planning])
def test_a_pattern_that_is_not_understood_fails_the_task(
    tmp_path: Path, task: type[SinkTask | PlannedSinkTask]
) -> None:
    """A Java worker may have written the config. A user who creates a connector here learns it at
    once."""
    bench = BodyBench(tmp_path, task, {"topics.regex": r"(a|b)-\1"}, kind=TaskKind.SINK)
    ended = bench.start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert r"topics.regex=(a|b)-\1: \1 is not understood here near index 7" in (ended.trace or "")


def test_a_sink_of_a_pattern_takes_topics_that_come(tmp_path: Path) -> None:
    fill(tmp_path, ["logs-a", "near-logs-a"])
    bench = BodyBench(tmp_path, Taking, {"topics.regex": "logs-[a-z&&[^x]]"}, kind=TaskKind.SINK)
    bench.start().until(lambda: bench.progress.records == 1)
    fill(tmp_path, ["logs-b", "logs-bb", "logs-x"])
    bench.until(lambda: bench.progress.records == 2)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert told(bench) == [("logs-a",), ("logs-b",)]
