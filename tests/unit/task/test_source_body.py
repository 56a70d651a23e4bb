"""A source task's body: tolerance, boundaries, offsets and headers of its records."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.task.body_bench import BodyBench, source_offsets, visible
from support.task.scripted_source import KEY, Batch, Scripted, record, run_dry, scripted

from headgate.connector.api import (
    DataError,
    Headers,
    SinkRecord,
    SkippedRecord,
    SourceRecord,
)
from headgate.connector.converters import SimpleHeaderConverter, StringConverter
from headgate.ports import Ack
from headgate.task.messages import (
    TaskOutcome,
)
from headgate_embedded import open_transport, transport_settings
from headgate_embedded.producer import EmbeddedProducer


def test_what_cannot_be_read_or_converted_is_passed_over_when_tolerated(tmp_path: Path) -> None:
    task = scripted(
        [record(1), SkippedRecord({"file": "a"}, {"n": 2}, "a.csv line 2"), record(3)],
        [record(4), record(5, value=b"\xff")],
    )
    config = {
        "errors.tolerance": "all",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    bench = BodyBench(tmp_path, task, config)
    run_dry(bench)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert [value.strip('"') for value in visible(tmp_path, "t")][:3] == ["1", "3", "4"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":5}'}
    assert bench.progress.skipped >= 1
    again = BodyBench(tmp_path, task, config)
    run_dry(again)
    again.stop()
    assert task.began_after == 5


@pytest.mark.parametrize("config", [{}, {"errors.tolerance": "none"}])
def test_without_tolerance_the_task_fails_and_names_the_place(
    config: dict[str, str], tmp_path: Path
) -> None:
    task = scripted([record(1), SkippedRecord({"file": "a"}, {"n": 2}, "a.csv line 2: 3 fields")])
    ended = BodyBench(tmp_path, task, config).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert ended.reason.startswith("a.csv line 2: 3 fields; mend it")
    assert visible(tmp_path, "t") == []


def test_a_converter_that_fails_names_the_place(tmp_path: Path) -> None:
    config = {"value.converter": "org.apache.kafka.connect.converters.IntegerConverter"}
    ended = BodyBench(tmp_path, scripted([record(7, value="seven")]), config).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "source partition {'file': 'a'}, offset {'n': 7}" in ended.reason


def test_headers_without_a_value_or_with_a_bad_name_cost_their_record_at_most(
    tmp_path: Path,
) -> None:
    good: Headers = (("h", None), ("", ""), ("", None))
    bad: list[Any] = [((name, "x"),) for name in (None, "\ud800", "a\0b")]
    given = [replace(record(n), headers=each) for n, each in enumerate([*bad, good])]
    bench = BodyBench(tmp_path, scripted(given), {"errors.tolerance": "all"})
    run_dry(bench)
    bench.stop()
    assert (bench.progress.skipped, visible(tmp_path, "t")) == (3, ["3"])
    transport = open_transport(transport_settings(tmp_path))
    (found,) = transport.record_log.read("t", 0, 0, 10, 10)
    transport.close()
    assert found.headers == (("h", None), ("", b""), ("", None))


@pytest.mark.parametrize("which", ["value", "header", "transform"])
def test_whatever_a_converter_or_a_transform_raises_costs_its_record_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    owner: Any
    owner, name = {
        "value": (StringConverter, "from_connect"),
        "header": (SimpleHeaderConverter, "from_connect"),
        "transform": (DropsEven, "apply_source"),
    }[which]
    works, calls = getattr(owner, name), []

    def raising(*given: Any) -> Any:
        calls.append(given)
        return works(*given) if len(calls) > 1 else 1 / 0

    given = [replace(record(n), headers=(("h", "x"),)) for n in (1, 3, 5)]
    monkeypatch.setattr(owner, name, raising)
    tolerant = {"errors.tolerance": "all"}
    bench = BodyBench(tmp_path, scripted(given), tolerant, chain=[DropsEven()])
    run_dry(bench)
    bench.stop()
    assert visible(tmp_path, "t") == ["3", "5"]
    assert bench.progress.detail.startswith("ZeroDivisionError: division by zero (source partition")
    assert source_offsets(tmp_path) == {KEY: b'{"n":5}'}


def test_timestamps_are_taken_as_connect_takes_them(tmp_path: Path) -> None:
    """-1 was written as it is, and streams fail on it."""
    began_ms = time.time_ns() // 1_000_000
    stamps = (None, -1, 5)
    bench = BodyBench(
        tmp_path, scripted([replace(record(n), timestamp_ms=at) for n, at in enumerate(stamps)])
    )
    run_dry(bench)
    bench.stop()
    transport = open_transport(transport_settings(tmp_path))
    records = transport.record_log.read("t", 0, 0, 3, 10)
    transport.close()
    now, sent, given = [each.timestamp_ms for each in records]
    assert now >= began_ms and sent >= began_ms and given == 5
    refused = scripted([replace(record(1), timestamp_ms=-2)])
    ended = BodyBench(tmp_path / "refused", refused, {"errors.tolerance": "all"}).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "timestamp -2 of a record, expected milliseconds from 0 on" in ended.reason


def test_the_connector_draws_the_boundaries(tmp_path: Path) -> None:
    class Drawing(Scripted):
        batches: list[Batch] = [[record(n) for n in range(1, 10)], [record(10)]]  # noqa: RUF012

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            batch = list(super().poll() or [])
            transaction = self.context.transaction
            assert transaction is not None
            if len(batch) == 9:
                transaction.commit_transaction(batch[3])  # type: ignore[arg-type]
                transaction.abort_transaction(batch[6])  # type: ignore[arg-type]
            elif batch:
                transaction.commit_transaction()
            return batch or None

    bench = BodyBench(tmp_path, Drawing, {"transaction.boundary": "connector"})
    run_dry(bench)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert visible(tmp_path, "t") == ["1", "2", "3", "4", "8", "9", "10"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":10}'}
    assert bench.progress.records == 7


class WithoutThree:
    """Drops record 3, cannot take record 4."""

    def configure(self, config: Mapping[str, str]) -> None:
        raise AssertionError("the bench hands it in as it is")

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        if record.value == "4":
            raise DataError("cannot be used")
        return None if record.value == "3" else record

    def apply_sink(self, record: SinkRecord) -> None:
        raise AssertionError("of a source")


@pytest.mark.parametrize(
    ("ask", "outcome", "seen"),
    [
        ("abort 2, commit", TaskOutcome.STOPPED, []),
        ("commit 2, abort", TaskOutcome.STOPPED, ["1", "2"]),
        ("commit 2, abort 3", TaskOutcome.STOPPED, ["1", "2"]),
        ("commit 2, abort 2", TaskOutcome.FAILED, []),
        ("commit, abort", TaskOutcome.FAILED, []),
    ],
)
def test_both_asked_for_one_place_is_a_conflict_and_places_that_meet_are_none(
    tmp_path: Path, ask: str, outcome: TaskOutcome, seen: list[str]
) -> None:
    """Record 3 is dropped by a transform, so places before and after it meet."""

    class Asking(Scripted):
        batches: list[Batch] = [[record(n) for n in (1, 2, 3)]]  # noqa: RUF012

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            batch = list(super().poll() or [])
            transaction = self.context.transaction
            assert transaction is not None
            for what, _, number in (each.partition(" ") for each in ask.split(", ")):
                place: Any = batch[int(number) - 1] if number and batch else None
                if batch:
                    getattr(transaction, f"{what}_transaction")(place)
            return batch or None

    config = {"transaction.boundary": "connector"}
    bench = BodyBench(tmp_path, Asking, config, chain=[WithoutThree()])
    run_dry(bench)
    if bench.ended is None:
        bench.stop()
    assert bench.wait().outcome is outcome
    assert visible(tmp_path, "t") == seen
    if outcome is TaskOutcome.FAILED:
        assert "requested both commit and abort" in bench.wait().reason


@pytest.mark.parametrize("tolerance", ["none", "all"])
def test_a_record_without_source_offset_that_cannot_be_converted_is_named(
    tmp_path: Path, tolerance: str
) -> None:
    task = scripted([replace(record(4), source_offset=None)])  # type: ignore[arg-type]
    config = {"errors.tolerance": tolerance}
    bench = BodyBench(tmp_path, task, config, chain=[WithoutThree()])
    if tolerance == "all":
        run_dry(bench)
        bench.stop()
        said = bench.progress.detail
    else:
        said = bench.start().wait().reason
    assert "(source partition {'file': 'a'}, offset None)" in said


def test_offsets_of_what_was_aborted_are_kept(tmp_path: Path) -> None:
    class Aborting(Scripted):
        batches: list[Batch] = [[record(1), record(2)]]  # noqa: RUF012

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            batch = super().poll()
            if batch:
                assert self.context.transaction is not None
                self.context.transaction.abort_transaction()
            return batch

    bench = BodyBench(tmp_path, Aborting, {"transaction.boundary": "connector"})
    run_dry(bench)
    bench.stop()
    assert visible(tmp_path, "t") == []
    assert source_offsets(tmp_path) == {KEY: b'{"n":2}'}


def test_at_least_once_flushes_what_is_acknowledged(tmp_path: Path) -> None:
    task = scripted([record(1), record(2)], [record(3)])
    bench = BodyBench(tmp_path, task, exactly_once=False)
    bench.start().until(lambda: bench.progress.records == 3)
    bench.stop()
    assert visible(tmp_path, "t") == ["1", "2", "3"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":3}'}
    assert task.commits >= 1


class DropsEven:
    def configure(self, config: Mapping[str, str]) -> None: ...

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        return None if int(record.value) % 2 == 0 else record

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None:
        return record


def test_a_transform_may_drop_records(tmp_path: Path) -> None:
    bench = BodyBench(tmp_path, scripted([record(n) for n in range(1, 6)]), chain=[DropsEven()])
    run_dry(bench)
    bench.stop()
    assert visible(tmp_path, "t") == ["1", "3", "5"]


@pytest.mark.parametrize("tolerance", ["none", "all"])
def test_what_the_log_refuses_late_is_passed_over_only_if_that_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerance: str
) -> None:
    """The refusal is found at the flush of the offsets of records that were sent after it."""

    class Four(Scripted):
        batches: ClassVar[list[Batch]] = [[record(n) for n in range(1, 5)]]

    later: list[list[Ack]] = [[], [Ack(0, 0), Ack(1, 1, "too large"), Ack(2, 3)]]
    monkeypatch.setattr(EmbeddedProducer, "acks", lambda _self: later.pop(0) if later else [])
    bench = BodyBench(tmp_path, Four, {"errors.tolerance": tolerance}, exactly_once=False)
    bench.start()
    if tolerance == "all":
        bench.until(lambda: source_offsets(tmp_path))
        assert source_offsets(tmp_path) == {KEY: b'{"n":4}'}
        assert bench.stop().outcome is TaskOutcome.STOPPED
    else:
        ended = bench.wait()
        assert ended.outcome is TaskOutcome.FAILED
        assert "too large" in ended.reason
        assert source_offsets(tmp_path) == {}


def test_headers_that_records_share_are_converted_for_each_topic_and_never_taken_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_topic(
        self: object, topic: str, headers: Headers, schemas: object = ()
    ) -> tuple[tuple[str, bytes], ...]:
        if headers == refused:
            raise DataError("refused")
        return tuple((key, f"{topic} {value}".encode()) for key, value in headers)

    monkeypatch.setattr(SimpleHeaderConverter, "from_connect", by_topic)
    shared, refused = (("h", "x"),), (("h", "y"),)
    one, two, three = (record(n) for n in (1, 2, 3))
    one.headers = three.headers = shared
    two.headers = refused
    four, five, six = (record(n) for n in (4, 5, 6))
    four.headers = refused
    five.headers = shared
    five.topic = "u"

    class Task(Scripted):
        batches: ClassVar[list[Batch]] = [[one, two, three, four, five, six]]

    bench = BodyBench(tmp_path, Task, {"errors.tolerance": "all"}).start()
    bench.until(lambda: bench.progress.records == 4)
    bench.stop()
    transport = open_transport(transport_settings(tmp_path))
    ends = transport.record_log.end_offsets(["t", "u"])
    found = [
        (r.value, r.headers)
        for (topic, partition), end in ends.items()
        for r in transport.record_log.read(topic, partition, 0, end, 100)
    ]
    sent = (("h", b"t x"),)
    assert sorted(found) == [(b"1", sent), (b"3", sent), (b"5", (("h", b"u x"),)), (b"6", ())]
    transport.close()
