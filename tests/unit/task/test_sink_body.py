"""The bodies of sink tasks: redelivery, tolerance, offsets, partitions that move."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.task.body_bench import BodyBench
from support.task.letters import HEADERS, LETTERS, headers_of, records_of
from support.task.sink_records import committed, fill

from headgate.connector.api import (
    DataError,
    PlannedSinkTask,
    RetriableError,
    SinkRecord,
    SinkTask,
    SourceRecord,
)
from headgate.connector.converters import SimpleHeaderConverter, StringConverter
from headgate.connector.sink_names import sink_group
from headgate.ports import ConsumerRecord, RebalancedError
from headgate.task.messages import StopTask, TaskClosing, TaskKind, TaskOutcome
from headgate.task.sink import SinkMachine
from headgate_embedded import open_reader
from headgate_embedded.consumer import EmbeddedConsumer

CONFIG = {"topics": "t"}
JSON = {
    "value_converter": "org.apache.kafka.connect.json.JsonConverter",
    "value_converter_schemas_enable": "false",
}


class Taking(SinkTask):
    """A sink that keeps, per instance, what it was asked to do. `made` has all instances of a
    test."""

    made: list["Taking"]

    def start(self, config: Mapping[str, str]) -> None:
        self.taken: list[SinkRecord] = []
        self.calls: list[str] = []
        type(self).made = [*vars(type(self)).get("made", []), self]

    def open(self, partitions: Collection[tuple[str, int]]) -> None:
        self.calls += [f"open {number}" for _, number in sorted(partitions)]

    def close(self, partitions: Collection[tuple[str, int]]) -> None:
        self.calls += [f"close {number}" for _, number in sorted(partitions)]

    def put(self, records: Sequence[SinkRecord]) -> None:
        self.taken += records

    def stop(self) -> None:
        self.calls.append("stop")


def sink(folder: Path, task: type[SinkTask], **config: str) -> BodyBench:
    given = {**CONFIG, **{key.replace("_", "."): text for key, text in config.items()}}
    return BodyBench(folder, task, given, kind=TaskKind.SINK)


def test_a_retriable_put_gets_the_same_records_again(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"2", b"3"])

    class Reluctant(Taking):
        tries: list[list[str]] = []  # noqa: RUF012

        def put(self, records: Sequence[SinkRecord]) -> None:
            if records:
                self.tries.append([str(record.value) for record in records])
            if len(self.tries) in (1, 2):
                raise RetriableError("no space")
            super().put(records)

    bench = sink(tmp_path, Reluctant)
    bench.start().until(lambda: bench.progress.records == 3)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert Reluctant.tries == [["1", "2", "3"]] * 3
    assert committed(tmp_path) == {("t", 0): 3}
    assert Reluctant.made[0].calls == ["open 0", "close 0", "stop"]


def test_only_what_pre_commit_returns_is_committed(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"2", b"3"])

    class Cautious(Taking):
        def pre_commit(
            self, offsets: Mapping[tuple[str, int], int]
        ) -> Mapping[tuple[str, int], int]:
            return {("t", 0): 2, ("other", 7): 9}

    bench = sink(tmp_path, Cautious)
    bench.start().until(lambda: committed(tmp_path))
    bench.stop()
    assert committed(tmp_path) == {("t", 0): 2}


@pytest.mark.parametrize("returned", [None, "x", {("t", 0): "2"}, {("t", 0): None}])
def test_what_is_no_mapping_of_offsets_fails_the_task_by_name(
    tmp_path: Path, returned: Any
) -> None:
    fill(tmp_path, [b"1"])

    class Wrong(Taking):
        def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Any:
            return returned

    ended = sink(tmp_path, Wrong).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "Wrong.pre_commit() returned a value of type " in ended.reason
    assert "expected a mapping of (topic, partition) to the next offset" in ended.reason
    assert committed(tmp_path) == {}


@pytest.mark.parametrize(("grace_ms", "tries"), [(5_000, 3), (0, 1)])
def test_a_last_commit_that_is_refused_for_a_moment_is_tried_again(
    grace_ms: int, tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is tried as long as the time to stop allows. Partitions that a rebalance assigns
    meanwhile are not opened."""
    fill(tmp_path, [b"1", b"2", b"3"])
    calls: list[str] = []
    poll, commit = EmbeddedConsumer.poll, EmbeddedConsumer.commit

    class Stopped(Taking):
        def put(self, records: Sequence[SinkRecord]) -> None:
            if records:
                bench.lifeline.deliver(StopTask())
                calls.clear()

    def polled(consumer: EmbeddedConsumer, limit: int, timeout_ms: int) -> Sequence[ConsumerRecord]:
        calls.append(f"poll {limit}")
        if limit == 0:
            consumer._assigned([("t", 9)])
            consumer._revoked([("t", 9)])
        return poll(consumer, limit, timeout_ms)

    def refused(consumer: EmbeddedConsumer, offsets: Mapping[tuple[str, int], int]) -> None:
        calls.append("commit")
        if calls.count("commit") <= 2:
            raise RebalancedError("partitions are shared out")
        commit(consumer, offsets)

    monkeypatch.setattr(EmbeddedConsumer, "poll", polled)
    monkeypatch.setattr(EmbeddedConsumer, "commit", refused)
    settings = {"task.shutdown.graceful.timeout.ms": str(grace_ms)}
    bench = BodyBench(tmp_path, Stopped, CONFIG, kind=TaskKind.SINK, settings=settings)
    assert bench.start().wait().outcome is TaskOutcome.STOPPED
    assert calls == ["commit", *["poll 0", "commit"] * (tries - 1)]
    assert committed(tmp_path) == ({("t", 0): 3} if tries == 3 else {})
    assert Stopped.made[0].calls == ["open 0", "close 0", "stop"]


def test_a_failed_put_commits_nothing(tmp_path: Path) -> None:
    fill(tmp_path, [b"1"])

    class Broken(Taking):
        def put(self, records: Sequence[SinkRecord]) -> None:
            raise OSError("disk on fire")

    ended = sink(tmp_path, Broken).start().wait()
    assert (ended.outcome, ended.reason) == (TaskOutcome.FAILED, "OSError: disk on fire")
    assert committed(tmp_path) == {}


def test_what_cannot_be_converted_follows_the_tolerance(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"{", b"3"])
    json = "org.apache.kafka.connect.json.JsonConverter"
    class_key, schemas = {"value_converter": json}, {"value_converter_schemas_enable": "false"}
    bench = sink(tmp_path, Taking, errors_tolerance="all", **class_key, **schemas)
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 3})
    bench.until(lambda: bench.progress.skipped == 1)
    assert "t-0, offset 1" in bench.progress.detail
    bench.stop()
    assert [record.value for record in Taking.made[-1].taken] == [1, 3]
    fill(tmp_path, [b"{"])
    ended = sink(tmp_path, Taking, **class_key, **schemas).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "t-0, offset 3" in ended.reason


def test_a_header_without_a_value_is_a_null(tmp_path: Path) -> None:
    fill(tmp_path, [b"1"], headers=(("h", None), ("", b""), ("h", b"2")))
    bench = sink(tmp_path, Taking)
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 1})
    bench.stop()
    assert Taking.made[-1].taken[0].headers == (("h", None), ("", ""), ("h", 2))


class FailsOnTwo:
    """A transform with a bug."""

    def configure(self, config: Mapping[str, str]) -> None:
        raise AssertionError("the bench hands it in as it is")

    def apply_source(self, record: SourceRecord) -> SourceRecord:
        raise AssertionError("of a sink")

    def apply_sink(self, record: SinkRecord) -> SinkRecord:
        if record.value == "2":
            raise AttributeError("no such thing")
        return record


def test_whatever_a_transform_raises_costs_its_record_alone(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"2", b"3"])
    tolerant = {**CONFIG, "errors.tolerance": "all"}
    bench = BodyBench(tmp_path, Taking, tolerant, kind=TaskKind.SINK, chain=[FailsOnTwo()])
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 3})
    bench.until(lambda: bench.progress.skipped == 1)
    bench.stop()
    assert [record.value for record in Taking.made[-1].taken] == ["1", "3"]
    assert bench.progress.detail == "AttributeError: no such thing (t-0, offset 1)"
    fill(tmp_path, [b"2"])
    bench = BodyBench(tmp_path, Taking, CONFIG, kind=TaskKind.SINK, chain=[FailsOnTwo()])
    ended = bench.start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "AttributeError: no such thing (t-0, offset 3)" in ended.reason


@pytest.mark.parametrize("which", ["value", "header"])
def test_whatever_a_converter_raises_costs_its_record_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    converter = SimpleHeaderConverter if which == "header" else StringConverter
    converts, calls = converter.to_connect, []

    def raising(*given: Any) -> Any:
        calls.append(given)
        return converts(*given) if len(calls) > 1 else 1 / 0

    fill(tmp_path, [b"1", b"2"], headers=(("h", b"x"),))
    bench = sink(tmp_path, Taking, errors_tolerance="all")
    monkeypatch.setattr(converter, "to_connect", raising)
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 2})
    bench.until(lambda: bench.progress.skipped == 1)
    bench.stop()
    assert [record.value for record in Taking.made[-1].taken] == ["2"]
    assert bench.progress.detail == "ZeroDivisionError: division by zero (t-0, offset 0)"


def test_a_task_without_memory_fails_whatever_it_tolerates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(*_: object) -> object:
        raise MemoryError("no room")

    fill(tmp_path, [b"1"])
    monkeypatch.setattr(StringConverter, "to_connect", raising)
    ended = sink(tmp_path, Taking, errors_tolerance="all").start().wait()
    assert (ended.outcome, "no room" in ended.reason) == (TaskOutcome.FAILED, True)


def test_each_record_that_is_skipped_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, [b"{", b"2", b"{"])
    with caplog.at_level("INFO", "headgate.task"):
        bench = sink(tmp_path, Taking, errors_tolerance="all", **JSON)
        bench.start().until(lambda: committed(tmp_path) == {("t", 0): 3})
        bench.stop()
    said = [line for line in caplog.messages if "cannot be used" in line]
    assert ["t-0, offset 0" in said[0], "t-0, offset 2" in said[1], len(said)] == [True, True, 2]


def test_partitions_move_to_a_second_task_and_back(tmp_path: Path) -> None:
    fill(tmp_path, [b"%d" % n for n in range(20)], partitions=2)

    class Sharing(Taking):
        made: list[Taking] = []  # noqa: RUF012

    first = sink(tmp_path, Sharing)
    first.start().until(lambda: committed(tmp_path) == {("t", 0): 10, ("t", 1): 10})
    second = BodyBench(tmp_path, Sharing, CONFIG, kind=TaskKind.SINK, number=1)
    second.start().until(lambda: len(Sharing.made) == 2 and Sharing.made[1].calls)
    fill(tmp_path, [b"%d" % n for n in range(20, 40)], partitions=2)
    first.until(lambda: committed(tmp_path) == {("t", 0): 20, ("t", 1): 20})
    assert second.stop().outcome is TaskOutcome.STOPPED
    fill(tmp_path, [b"%d" % n for n in range(40, 60)], partitions=2)
    first.until(lambda: committed(tmp_path) == {("t", 0): 30, ("t", 1): 30})
    first.stop()
    values = [int(record.value) for task in Sharing.made for record in task.taken]
    assert sorted(values) == list(range(60))


def test_batches_that_a_task_plans(tmp_path: Path) -> None:
    class Planning(PlannedSinkTask):
        def start(self, config: Mapping[str, str]) -> None:
            self._left = [5, 0, 7]
            assert (self.context.group, self.context.topics) == ("connect-c", ["t"])

        def run_batch(self) -> int:
            if len(self._left) == 2:
                self.context.skipped(2, "t-0, offset 8")
            if not self._left:
                return 0
            return self._left.pop(0)

    bench = BodyBench(tmp_path, Planning, CONFIG, kind=TaskKind.SINK)
    bench.start().until(lambda: bench.progress.records == 12)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert (bench.progress.skipped, bench.progress.detail) == (2, "t-0, offset 8")


def test_dead_letters_of_a_task_that_plans(tmp_path: Path) -> None:
    fill(tmp_path, [b"good", b"bad"])

    class Planning(PlannedSinkTask):
        def run_batch(self) -> int:
            if self.context.log.committed("connect-c"):
                return 0
            raw = self.context.log.read("t", 0, 1, 2, 1)[0]
            record = SinkRecord("t", 0, 1, None, b"", (), 0, None, None, (), raw)
            reporter = self.context.errant_record_reporter()
            assert reporter is not None
            with pytest.raises(ValueError, match=r"t-0 offset 1 has no original, expected one"):
                reporter.report(replace(record, original=None), DataError("odd"))
            reporter.report(record, DataError("odd")).result()
            assert [one.value for one in records_of(tmp_path, "letters")] == [b"bad"]
            self.context.log.commit_unguarded("connect-c", {("t", 0): 2})
            return 1

    letters = {LETTERS: "letters", HEADERS: "true", "errors.tolerance": "all"}
    bench = BodyBench(tmp_path, Planning, {**CONFIG, **letters}, kind=TaskKind.SINK)
    bench.start().until(lambda: bench.progress.records == 1)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert (bench.progress.skipped, bench.progress.detail) == (
        1,
        "reported by the task: odd (t-0, offset 1)",
    )
    (letter,) = records_of(tmp_path, "letters")
    assert headers_of(letter)["__connect.errors.offset"] == "1"


def test_what_open_asks_to_rewind_to_is_the_first_thing_it_gets(tmp_path: Path) -> None:
    """A sink that keeps its own progress seeks when its partitions come. Records that were polled
    before, from the group's offset, would be there twice."""
    fill(tmp_path, [b"%d" % n for n in range(10)])

    class Knowing(Taking):
        def open(self, partitions: Collection[tuple[str, int]]) -> None:
            self.context.offset("t", 0, 7)

    bench = sink(tmp_path, Knowing)
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 10})
    bench.stop()
    assert [record.value for record in Knowing.made[0].taken] == ["7", "8", "9"]


def test_a_task_that_is_ahead_of_its_group_commits_without_more_records(tmp_path: Path) -> None:
    """A crash between the commit of its own store and that of the group leaves it so: it would
    have records to go for ever."""
    fill(tmp_path, [b"1", b"2", b"3"])

    class Knowing(Taking):
        def open(self, partitions: Collection[tuple[str, int]]) -> None:
            super().open(partitions)
            self.context.offset("t", 0, 3)

    bench = sink(tmp_path, Knowing)
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 3})
    bench.stop()
    assert Knowing.made[0].taken == []


def test_a_rewind_before_anything_was_delivered_commits_nothing(tmp_path: Path) -> None:
    fill(tmp_path, [b"1", b"2", b"3"])

    class Holding(Taking):
        def open(self, partitions: Collection[tuple[str, int]]) -> None:
            super().open(partitions)
            self.context.offset("t", 0, 0)
            self.context.pause(("t", 0))
            self.context.request_commit()

    bench = sink(tmp_path, Holding)
    bench.start().until(lambda: vars(Holding).get("made") and Holding.made[0].calls)
    bench.stop()
    assert committed(tmp_path) == {}


def test_after_a_rewind_the_group_goes_back_too(tmp_path: Path) -> None:
    """Otherwise the records that the connector wants again are lost if it ends before it gets
    there."""
    fill(tmp_path, [b"%d" % n for n in range(10)])

    class Rewinding(Taking):
        def put(self, records: Sequence[SinkRecord]) -> None:
            super().put(records)
            if len(self.taken) == 12:
                self.context.offset("t", 0, 3)

        def pre_commit(
            self, offsets: Mapping[tuple[str, int], int]
        ) -> Mapping[tuple[str, int], int]:
            return {("t", 0): 5} if len(self.taken) > 12 else offsets

    bench = sink(tmp_path, Rewinding)
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 10})
    fill(tmp_path, [b"10", b"11"])
    bench.until(lambda: committed(tmp_path) == {("t", 0): 5})
    bench.stop()
    assert [record.offset for record in Rewinding.made[0].taken] == [*range(12), *range(3, 12)]


def test_a_rewind_is_forgotten_with_its_partition(tmp_path: Path) -> None:
    """Another owner may have gone far beyond it when the partition comes back."""
    fill(tmp_path, [b"%d" % n for n in range(4)], partitions=2)

    class Leaving(Taking):
        made: list[Taking] = []  # noqa: RUF012

        def close(self, partitions: Collection[tuple[str, int]]) -> None:
            super().close(partitions)
            for topic, number in partitions:
                self.context.offset(topic, number, 0)

    first = sink(tmp_path, Leaving)
    first.start().until(lambda: committed(tmp_path) == {("t", 0): 2, ("t", 1): 2})
    second = BodyBench(tmp_path, Leaving, CONFIG, kind=TaskKind.SINK, number=1)
    second.start().until(lambda: len(Leaving.made) == 2 and Leaving.made[1].calls)
    fill(tmp_path, [b"%d" % n for n in range(4, 8)], partitions=2)
    first.until(lambda: committed(tmp_path) == {("t", 0): 4, ("t", 1): 4})
    second.stop()
    first.stop()
    values = [int(record.value) for task in Leaving.made for record in task.taken]
    assert sorted(values) == list(range(8))


def test_records_that_a_transform_drops_are_covered_by_the_groups_offsets(tmp_path: Path) -> None:
    """Nothing else would ever commit them while no other records come."""
    fill(tmp_path, [b"1", b"2", b"3"])

    class Nothing:
        def apply_sink(self, record: SinkRecord) -> SinkRecord | None:
            return None

    bench = BodyBench(
        tmp_path,
        Taking,
        CONFIG,
        kind=TaskKind.SINK,
        chain=[Nothing()],  # type: ignore[list-item]
    )
    bench.start().until(lambda: committed(tmp_path) == {("t", 0): 3}, 5)
    bench.stop()


def test_a_body_with_a_bug_closes_what_it_opened_before_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its last report another worker may start the task, so this one must not act any more. A
    Python worker of Spark lives on."""
    fill(tmp_path, [b"1"])

    def bug(*_args: object) -> None:
        raise RuntimeError("a bug")

    class Stopping(Taking):
        def stop(self) -> None:
            self.calls.append(f"stop after {len(bench.reports)}")

    monkeypatch.setattr(SinkMachine, "_on_delivered", bug)
    # No `put` without records before the one with them.
    settings = {"offset.flush.interval.ms": "60000"}
    bench = BodyBench(tmp_path, Stopping, CONFIG, kind=TaskKind.SINK, settings=settings)
    ended = bench.start().wait()
    assert (ended.outcome, ended.reason) == (TaskOutcome.FAILED, "RuntimeError: a bug")
    # From here on a `stop` that hangs has its deadline.
    assert bench.reports[-2] == TaskClosing(ended)
    assert Stopping.made[0].calls == ["open 0", "close 0", f"stop after {len(bench.reports) - 1}"]


def test_a_stop_that_exits_keeps_nothing_from_being_closed(tmp_path: Path) -> None:
    fill(tmp_path, [b"1"])

    class Exiting(Taking):
        def stop(self) -> None:
            raise SystemExit(1)

    bench = sink(tmp_path, Exiting)
    bench.start().until(lambda: committed(tmp_path))
    assert bench.stop().outcome is TaskOutcome.STOPPED
    reader = open_reader(tmp_path)
    assert reader.describe_group("connect-c").members == ()
    reader.close()


@pytest.mark.parametrize(
    ("override", "workers", "group"),
    [(None, None, "connect-c"), (None, "w", "w"), ("o", "w", "o"), ("o", None, "o")],
)
def test_the_group_of_a_sink(override: str | None, workers: str | None, group: str) -> None:
    """A planned sink must not commit to another group than the one its offsets are shown of."""
    transport = {} if workers is None else {"consumer.group.id": workers}
    assert sink_group("c", {"consumer.override.group.id": override}, transport) == group
