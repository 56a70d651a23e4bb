"""What a source task's body does with records: tolerance, boundaries, offsets, a frozen body."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Producer
from support.body_bench import BodyBench, source_offsets, visible

from headgate.connector.api import (
    DataError,
    Headers,
    RetriableError,
    SinkRecord,
    SkippedRecord,
    SourceRecord,
    SourceTask,
)
from headgate.connector.converters import SimpleHeaderConverter
from headgate.ports import Ack, MembershipEndedError
from headgate.task.messages import (
    PauseTask,
    ResumeTask,
    StopTask,
    TaskOutcome,
    TaskPaused,
    TaskRunning,
)
from headgate_embedded import open_transport, transport_settings
from headgate_embedded import producer as embedded_producer
from headgate_embedded.logs import EmbeddedKeyedLog
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.tasks.lifeline import Silence

KEY = b'["c",{"file":"a"}]'
Batch = list[SourceRecord | SkippedRecord]


def record(n: int, value: Any = None) -> SourceRecord:
    return SourceRecord({"file": "a"}, {"n": n}, "t", f"{n}" if value is None else value)


class Scripted(SourceTask):
    """Gives the batches of the class, from the committed offset on."""

    batches: list[Batch]
    began_after: int
    commits: int

    def start(self, config: Mapping[str, str]) -> None:
        found = self.context.offsets.offset({"file": "a"})
        type(self).began_after = 0 if found is None else found["n"]
        type(self).commits = 0
        self._left = list(self.batches)

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if self._left:
            return self._left.pop(0)
        self.context.wait(0.02)
        return None

    def commit(self) -> None:
        type(self).commits += 1


def scripted(*batches: Batch) -> type[Scripted]:
    return type("Given", (Scripted,), {"batches": list(batches)})


def run_dry(bench: BodyBench) -> None:
    bench.start().until(lambda: bench.progress.idle or bench.ended)


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


def test_a_stop_flushes_at_once(tmp_path: Path) -> None:
    settings = {"offset.flush.interval.ms": "600000"}
    task = scripted([record(1), record(2)], [])
    bench = BodyBench(tmp_path, task, exactly_once=False, settings=settings)
    bench.start().until(lambda: visible(tmp_path, "t"))
    bench.stop()
    assert source_offsets(tmp_path) == {KEY: b'{"n":2}'}


def test_a_stop_that_comes_before_the_body_has_begun_is_no_failure(tmp_path: Path) -> None:
    bench = BodyBench(tmp_path, scripted())
    bench.lifeline.deliver(StopTask())
    assert bench.start().wait().outcome is TaskOutcome.STOPPED


def test_a_body_that_was_frozen_commits_nothing_when_it_wakes(tmp_path: Path) -> None:
    """The words that waited to be read prove nothing about the time between."""

    class Frozen(Scripted):
        batches: list[Batch] = [[record(1)], [record(2)]]  # noqa: RUF012
        bench: "BodyBench"

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            batch = super().poll()
            self.bench.lifeline.heard()
            if len(self._left) == 0:
                time.sleep(0.6)  # stands for a SIGSTOP: nobody beats meanwhile
                self.bench.lifeline.heard()
            return batch

    bench = Frozen.bench = BodyBench(tmp_path, Frozen, limit_ms=400)
    ended = bench.start().wait()
    assert ended.outcome is TaskOutcome.LOST
    assert "nothing heard" in ended.reason
    assert visible(tmp_path, "t") == ["1"]


def test_a_body_that_was_frozen_just_before_its_commit_does_not_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = BodyBench(tmp_path, scripted([record(1)], [record(2)]), limit_ms=400)
    plain = embedded_producer.EmbeddedProducer.send
    sends: list[int] = []

    def send(self: Any, records: Any) -> None:
        plain(self, records)
        sends.append(len(records))
        if len(sends) == 2:
            time.sleep(0.6)
        bench.lifeline.heard()

    monkeypatch.setattr(embedded_producer.EmbeddedProducer, "send", send)
    ended = bench.start().wait()
    assert ended.outcome is TaskOutcome.LOST
    assert visible(tmp_path, "t") == ["1"]


def test_silence_latches() -> None:
    silence = Silence(100, 0)
    silence.heard(99)
    assert silence.broken(150) is None
    silence.heard(250)
    silence.heard(251)
    assert silence.broken(252) == "nothing heard for 151 ms, the limit is 100 ms"


def test_a_membership_that_has_ended_is_no_failure_of_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def init(self: Any) -> None:
        calls.append(1)
        raise MembershipEndedError("m is no longer a member of g")

    monkeypatch.setattr(embedded_producer.EmbeddedProducer, "init", init)
    ended = BodyBench(tmp_path, scripted()).start().wait()
    assert ended.outcome is TaskOutcome.FENCED
    assert calls == [1]


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


def test_the_own_offsets_topic_is_refused(tmp_path: Path) -> None:
    bench = BodyBench(tmp_path, scripted([record(1)]), settings={"offset.storage.topic": "t"})
    ended = bench.start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "may not produce to their own offsets topics" in ended.reason


def test_a_retriable_poll_is_no_failure(tmp_path: Path) -> None:
    class Flaky(Scripted):
        batches: list[Batch] = [[record(1)]]  # noqa: RUF012
        polls = 0

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            type(self).polls += 1
            if self.polls < 3:
                raise RetriableError("the other side is away")
            return super().poll()

    bench = BodyBench(tmp_path, Flaky)
    run_dry(bench)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert visible(tmp_path, "t") == ["1"]


def test_a_long_wait_ends_with_pause_and_stop(tmp_path: Path) -> None:
    class Waiting(Scripted):
        batches: list[Batch] = []  # noqa: RUF012

        def poll(self) -> None:
            self.context.wait(600)

    bench = BodyBench(tmp_path, Waiting)
    bench.start().until(lambda: TaskRunning() in bench.reports)
    bench.lifeline.deliver(PauseTask())
    bench.until(lambda: TaskPaused() in bench.reports)
    bench.lifeline.deliver(ResumeTask())
    bench.until(lambda: bench.reports.count(TaskRunning()) == 2)
    assert bench.stop().outcome is TaskOutcome.STOPPED


def test_an_interrupt_of_the_interpreter_ends_the_task_too(tmp_path: Path) -> None:
    class Exits(Scripted):
        batches: list[Batch] = []  # noqa: RUF012

        def poll(self) -> None:
            raise SystemExit(3)

    ended = BodyBench(tmp_path, Exits).start().wait()
    assert (ended.outcome, ended.reason) == (TaskOutcome.FAILED, "SystemExit: 3")


def test_a_task_that_awaits_input_is_not_idle(tmp_path: Path) -> None:
    """Something is there that cannot be read yet, so `--until-idle` has to wait."""
    polls: list[int] = []

    class Awaiting(Scripted):
        batches: ClassVar[list[Batch]] = []

        def poll(self) -> Batch | None:
            polls.append(1)
            if len(polls) < 20:
                self.context.await_input()
            return []

    bench = BodyBench(tmp_path, Awaiting)
    bench.start().until(lambda: bench.progress.idle or bench.ended)
    assert len(polls) >= 20
    bench.stop()


def test_the_offsets_log_rests_once_the_task_has_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most tasks read their offsets at the start alone; who asks again is answered all the same."""
    rests: list[int] = []
    found: list[Any] = []

    class Asking(Scripted):
        batches: ClassVar[list[Batch]] = [[record(1)], [record(2)], [record(3)]]

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            found.append((len(rests), self.context.offsets.offset({"file": "a"})))
            return super().poll()

    monkeypatch.setattr(EmbeddedKeyedLog, "rest", lambda _self: rests.append(1))
    bench = BodyBench(tmp_path, Asking)
    bench.start().until(lambda: len(found) > 5)
    bench.stop()
    assert found[:4] == [(0, None), (1, {"n": 1}), (1, {"n": 2}), (1, {"n": 3})]
    assert len(rests) == 1


@pytest.mark.parametrize("tolerance", ["none", "all"])
def test_what_the_log_refuses_late_is_passed_over_only_if_that_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerance: str
) -> None:
    """The refusal comes to light with the flush of the offsets of what was sent after it."""

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
    def by_topic(self: object, topic: str, headers: Headers) -> tuple[tuple[str, bytes], ...]:
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


def test_what_no_clause_with_a_name_catches_ends_a_task_as_lost(tmp_path: Path) -> None:
    """confluent-kafka lets out its bare error, which is no exception, when its own code fails
    within a callback."""

    class Escaping(Scripted):
        batches: ClassVar[list[Batch]] = []

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            client = Producer({"bootstrap.servers": "", "message.timeout.ms": 1, "log_level": 0})
            client.produce("t", b"v", on_delivery=lambda *_: client.init_transactions())
            client.flush(10)
            return None

    ended = BodyBench(tmp_path, Escaping).start().wait()
    assert ended.outcome is TaskOutcome.LOST
    assert "transactional.id" in ended.reason
