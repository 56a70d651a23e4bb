"""A source task's body begins, waits and ends: fencing, empty polls, stops, and a frozen body."""

import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.task.body_bench import BodyBench, source_offsets, visible
from support.task.scripted_source import (
    KEY,
    Batch,
    Scripted,
    let_a_bare_error_out,
    record,
    run_dry,
    scripted,
)

from headgate.connector.api import (
    DataError,
    RetriableError,
    SkippedRecord,
    SourceRecord,
)
from headgate.ports import MembershipEndedError, RefusedError, TransportError
from headgate.task.messages import (
    FencingAnswered,
    FencingRequested,
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
from headgate_embedded.records import EmbeddedRecordLog
from headgate_embedded.transport import EmbeddedTransport
from headgate_runtime.tasks import source_body
from headgate_runtime.tasks.lifeline import Silence


def test_a_stop_flushes_at_once(tmp_path: Path) -> None:
    settings = {"offset.flush.interval.ms": "600000"}
    task = scripted([record(1), record(2)], [])
    bench = BodyBench(tmp_path, task, exactly_once=False, settings=settings)
    bench.start().until(lambda: visible(tmp_path, "t"))
    bench.stop()
    assert source_offsets(tmp_path) == {KEY: b'{"n":2}'}


@pytest.mark.parametrize(
    ("settings", "config", "wanted"),
    [
        ({}, {}, [None]),
        ({"headgate.topic.partitions": "3"}, {}, [3]),
        ({"headgate.topic.partitions": "3"}, {"topic.creation.default.partitions": "2"}, [2]),
        ({"headgate.topic.partitions": "3"}, {"topic.creation.default.partitions": "-1"}, [None]),
        ({"topic.creation.enable": "false"}, {"topic.creation.default.partitions": "2"}, []),
    ],
)
def test_who_says_whether_and_how_a_topic_is_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    config: dict[str, str],
    wanted: list[int | None],
) -> None:
    asked: list[int | None] = []
    create = EmbeddedRecordLog.create_topic

    def noted(self: EmbeddedRecordLog, topic: str, partitions: int | None) -> None:
        asked.append(partitions)
        create(self, topic, partitions)

    bench = BodyBench(tmp_path, scripted([record(1)], []), config=config, settings=settings)
    somebody = open_transport(transport_settings(tmp_path))
    somebody.record_log.create_topic("t", 1)
    somebody.close()
    monkeypatch.setattr(EmbeddedRecordLog, "create_topic", noted)
    bench.start().until(lambda: visible(tmp_path, "t"))
    bench.stop()
    assert asked == wanted


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
                time.sleep(1.5)  # stands for a SIGSTOP: nobody beats meanwhile
                self.bench.lifeline.heard()
            return batch

    bench = Frozen.bench = BodyBench(tmp_path, Frozen, limit_ms=1000)
    ended = bench.start().wait()
    assert ended.outcome is TaskOutcome.LOST
    assert "nothing heard" in ended.reason
    assert visible(tmp_path, "t") == ["1"]


def test_a_body_that_was_frozen_just_before_its_commit_does_not_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = BodyBench(tmp_path, scripted([record(1)], [record(2)]), limit_ms=1000)
    plain = embedded_producer.EmbeddedProducer.send
    sends: list[int] = []

    def send(self: Any, records: Any) -> None:
        plain(self, records)
        sends.append(len(records))
        if len(sends) == 2:
            time.sleep(1.5)
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


@pytest.mark.parametrize("fails", [False, True])
def test_it_connects_while_older_tasks_are_shut_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """An error of this connection, of any kind, counts only when the task needs it. It then
    connects again."""
    calls: list[str] = []
    init, read = EmbeddedProducer.init, EmbeddedKeyedLog.read

    def connect(_producer: EmbeddedProducer) -> None:
        calls.append("connect")
        if fails:
            raise RuntimeError("no such setting")

    def initialised(producer: EmbeddedProducer) -> None:
        calls.append("init")
        init(producer)

    def once(log: EmbeddedKeyedLog, *given: Any) -> Any:
        calls.append("read")
        if calls.count("init") == 0:
            raise RuntimeError("away")
        return read(log, *given)

    monkeypatch.setattr(EmbeddedProducer, "connect", connect)
    monkeypatch.setattr(EmbeddedProducer, "init", initialised)
    monkeypatch.setattr(EmbeddedKeyedLog, "read", once)
    bench = BodyBench(tmp_path, scripted([record(1)]))
    bench.lifeline.deliver, answer = (lambda _command: None), bench.lifeline.deliver
    bench.start().until(lambda: sorted(calls) == ["connect", "read"])
    assert bench.reports == [FencingRequested()]
    bench.lifeline.deliver = answer
    bench.lifeline.deliver(FencingAnswered())
    bench.until(lambda: bench.progress.idle)
    assert calls[2] == "init"
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert visible(tmp_path, "t") == ["1"]


@pytest.mark.parametrize("ended", [False, True])
def test_the_producer_is_initialised_while_offsets_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    """And nothing else is done with the log meanwhile: neither read to its end nor closed, for a
    while."""
    monkeypatch.setattr(source_body, "FETCH_LEAVE_S", 30)
    done: list[str] = []
    initialised, fetch = threading.Event(), threading.Event()
    init, read, end = EmbeddedProducer.init, EmbeddedKeyedLog.read, EmbeddedKeyedLog.end
    close = EmbeddedTransport.close

    def slow(log: EmbeddedKeyedLog, *given: Any) -> Any:
        if "fetched" not in done:
            assert fetch.wait(10)
            done.append("fetched")
        return read(log, *given)

    def first(producer: EmbeddedProducer) -> None:
        init(producer)
        initialised.set()
        if ended:
            raise MembershipEndedError("m is no longer a member of g")

    monkeypatch.setattr(EmbeddedProducer, "init", first)
    monkeypatch.setattr(EmbeddedKeyedLog, "read", slow)
    monkeypatch.setattr(EmbeddedKeyedLog, "end", lambda log: done.append("end") or end(log))
    monkeypatch.setattr(EmbeddedTransport, "close", lambda log: done.append("close") or close(log))
    bench = BodyBench(tmp_path, scripted([record(1)])).start()
    assert initialised.wait(10)
    time.sleep(0.2)
    assert done == []
    fetch.set()
    outcome = bench.stop().outcome
    assert outcome is (TaskOutcome.FENCED if ended else TaskOutcome.STOPPED)
    assert done[:2] == ["fetched", "close" if ended else "end"]


def test_a_task_ends_though_nobody_answers_what_fetches_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def never(_log: EmbeddedKeyedLog, *_given: Any) -> Any:
        assert over.wait(60)
        raise TransportError("away")

    def refused(_producer: EmbeddedProducer) -> None:
        raise RefusedError("away")

    monkeypatch.setattr(EmbeddedKeyedLog, "read", never)
    monkeypatch.setattr(EmbeddedProducer, "init", refused)
    bench = BodyBench(tmp_path, scripted([record(1)])).start()
    try:
        assert bench.wait().outcome is TaskOutcome.FAILED
    finally:
        over.set()


@pytest.mark.parametrize("boundary", ["poll", "interval"])
def test_a_poll_that_cannot_be_made_is_told_and_not_repeated_at_once(
    tmp_path: Path, boundary: str
) -> None:
    class Away(Scripted):
        batches: list[Batch] = []  # noqa: RUF012
        polls: ClassVar[list[float]] = []

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            self.polls.append(time.monotonic())
            raise RetriableError("the other side is away")

    Away.polls.clear()
    bench = BodyBench(tmp_path, Away, {"transaction.boundary": boundary})
    bench.start().until(lambda: len(Away.polls) > 3 and bench.progress.detail)
    assert bench.progress.detail == "the other side is away"
    bench.stop()
    assert Away.polls[3] - Away.polls[0] > 0.25  # 100 ms between each two


@pytest.mark.parametrize("paused", [False, True])
def test_a_producer_that_can_never_be_initialised_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    """And one that cannot be now is tried a few times in a second, also while a pause waits."""
    tries: list[float] = []

    def init(_self: object) -> None:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise TransportError("not now")
        raise RefusedError("transaction.timeout.ms is too large")

    monkeypatch.setattr(EmbeddedProducer, "init", init)
    bench = BodyBench(tmp_path, scripted())
    if paused:
        bench.start().until(lambda: tries)
        bench.lifeline.deliver(PauseTask())
        ended = bench.wait()
    else:
        ended = bench.start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert "transaction.timeout.ms" in ended.reason
    assert len(tries) == 4
    assert tries[3] - tries[0] > 0.5


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
    """Most tasks read their offsets only at the start. A later question is answered all the
    same."""
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


def test_what_no_clause_with_a_name_catches_ends_a_task_as_lost(tmp_path: Path) -> None:
    class Escaping(Scripted):
        batches: ClassVar[list[Batch]] = []

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            let_a_bare_error_out()
            return None

    ended = BodyBench(tmp_path, Escaping).start().wait()
    assert ended.outcome is TaskOutcome.LOST
    assert "transactional.id" in ended.reason


def test_tasks_know_which_of_the_machines_clusters_is_theirs(tmp_path: Path) -> None:
    told: list[str] = []

    class Tells(Scripted):
        def start(self, config: Mapping[str, str]) -> None:
            told.append(self.context.cluster)
            raise DataError("that was all")

    for folder, number in (("a", 0), ("a", 1), ("b", 0)):
        BodyBench(tmp_path / folder, Tells, number=number).start().wait()
    first, second, other = told
    assert first == second != other
