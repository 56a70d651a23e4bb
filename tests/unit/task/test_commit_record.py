"""A source task learns of each of its records once it is in the log or never will be."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.task.body_bench import BodyBench

from headgate.connector.api import (
    DataError,
    RecordMetadata,
    SkippedRecord,
    SourceRecord,
    SourceTask,
)
from headgate.ports import Ack
from headgate.task.messages import TaskOutcome
from headgate_embedded.producer import EmbeddedProducer
from headgate_runtime.tasks.unsettled import UnsettledRecords

TOLERANT = {"errors.tolerance": "all"}


def record(number: int) -> SourceRecord:
    return SourceRecord({"f": "a"}, {"n": number}, "t", str(number))


def place(offset: int) -> RecordMetadata:
    return RecordMetadata("t", 0, offset)


class Telling(SourceTask):
    """A source of one batch. Each test makes a class of its own."""

    batch: tuple[SourceRecord, ...] = tuple(record(n) for n in range(4))
    told: ClassVar[list[object]]

    def __init_subclass__(cls) -> None:
        cls.told = []

    _given = False

    def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
        if self._given:
            self.context.wait(0.01)
            return None
        self._given = True
        return self.batch

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.told.append((record.value, metadata))

    def commit(self) -> None:
        if self.told and self.told[-1] != "commit":
            self.told.append("commit")


class Picky:
    """Drops record 1, cannot take record 2."""

    def configure(self, config: Mapping[str, str]) -> None:
        raise AssertionError("the bench hands it in as it is")

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        if record.value == "2":
            raise DataError("cannot be used")
        return None if record.value == "1" else SourceRecord({}, {}, record.topic, "other")

    def apply_sink(self, record: object) -> None:
        raise AssertionError("of a source")


@pytest.mark.parametrize("once", [True, False])
def test_records_that_are_in_the_log_and_records_that_will_not_be(
    tmp_path: Path, once: bool
) -> None:
    """The records are those that `poll` gave, whatever transforms made of them."""

    class Hearing(Telling):
        pass

    bench = BodyBench(tmp_path, Hearing, TOLERANT, exactly_once=once, chain=[Picky()])
    bench.start().until(lambda: len(Hearing.told) == 5)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    told = [item for item in Hearing.told if item != "commit"]
    assert sorted(told, key=str) == [("0", place(0)), ("1", None), ("2", None), ("3", place(1))]
    # Exactly-once: after the commit of the transaction, and all before `commit()`.
    assert not once or Hearing.told[4:] == ["commit"]


def test_nothing_is_told_before_the_transaction_is_committed(tmp_path: Path) -> None:
    class Slow(Telling):
        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            if self._given:
                polls.append(len(self.told))
            return super().poll()

        def stop(self) -> None:
            stopped.append(list(self.told))

    stopped: list[list[object]] = []
    polls: list[int] = []
    config = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "3600000"}
    bench = BodyBench(tmp_path, Slow, config)
    bench.start().until(lambda: polls)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    # The final commit told it, which comes before `stop()`.
    assert set(polls) == {0}
    assert stopped == [[*((str(n), place(n)) for n in range(4)), "commit"]]


def test_what_a_task_aborts_is_told_as_lost(tmp_path: Path) -> None:
    class Aborting(Telling):
        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            given = super().poll()
            if given is not None:
                assert self.context.transaction is not None
                self.context.transaction.abort_transaction(self.batch[1])
                self.context.transaction.commit_transaction()
            return given

    bench = BodyBench(tmp_path, Aborting, {"transaction.boundary": "connector"})
    bench.start().until(lambda: "commit" in Aborting.told)
    bench.stop()
    assert Aborting.told == [("0", None), ("1", None), ("2", place(0)), ("3", place(1)), "commit"]


def test_what_a_task_makes_of_it_is_its_own_affair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The records are committed, whatever is raised."""

    class Raising(Telling):
        def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
            super().commit_record(record, metadata)
            raise OSError("no queue to acknowledge to")

        def commit(self) -> None:
            super().commit()
            raise OSError("nor to commit")

    bench = BodyBench(tmp_path, Raising)
    with caplog.at_level(logging.WARNING, "headgate.task"):
        bench.start().until(lambda: bench.progress.records == 4)
        assert bench.stop().outcome is TaskOutcome.STOPPED
    assert len([item for item in Raising.told if item != "commit"]) == 4
    assert caplog.text.count("in commit_record()") == 4
    assert "in commit()" in caplog.text
    assert "no queue to acknowledge to" in caplog.text


def test_a_task_that_does_not_listen_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(SourceTask):
        polls = 0

        def poll(self) -> "Iterable[SourceRecord | SkippedRecord] | None":
            self.polls += 1
            return Telling.batch if self.polls == 1 else None

    def no_places(_producer: object) -> None:
        raise AssertionError("nobody wants them")

    monkeypatch.setattr(EmbeddedProducer, "keep_places", no_places)
    monkeypatch.setattr(EmbeddedProducer, "places", no_places)
    bench = BodyBench(tmp_path, Deaf)
    bench.start().until(lambda: bench.progress.records == 4)
    assert bench.stop().outcome is TaskOutcome.STOPPED


def test_what_the_log_refused_is_told_as_lost() -> None:
    unsettled = UnsettledRecords()
    unsettled.sent(Telling.batch)
    unsettled.refused(1, 2, lost=True)
    assert unsettled.settled([(0, place(0)), (3, place(1))]) == [
        (record(0), place(0)),
        (record(3), place(1)),
        (record(1), None),
        (record(2), None),
    ]
    assert unsettled.settled([]) == []


@pytest.mark.parametrize("tolerance", ["all", "none"])
def test_a_refused_record_is_told_as_lost_only_if_that_is_tolerated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerance: str
) -> None:
    """Otherwise the task fails and reads the record again, so its source must not be told that it
    is settled."""

    class Hearing(Telling):
        pass

    acks: list[Ack] = []
    places: list[tuple[int, RecordMetadata]] = []

    def send(_self: object, _records: object) -> None:
        acks[:] = [Ack(0, 0), Ack(1, 1, "too large"), Ack(2, 3)]
        places[:] = [(n, place(n)) for n in (0, 2, 3)]

    def taken(found: list[Any]) -> list[Any]:
        copy = list(found)
        found.clear()
        return copy

    monkeypatch.setattr(EmbeddedProducer, "send", send)
    monkeypatch.setattr(EmbeddedProducer, "acks", lambda _self: taken(acks))
    monkeypatch.setattr(EmbeddedProducer, "places", lambda _self: taken(places))
    config = {"errors.tolerance": tolerance}
    bench = BodyBench(tmp_path, Hearing, config, exactly_once=False).start()
    if tolerance == "all":
        bench.until(lambda: "commit" in Hearing.told)
        bench.stop()
    else:
        assert bench.wait().outcome is TaskOutcome.FAILED
    told = [item for item in Hearing.told if item != "commit"]
    lost = [("1", None)] if tolerance == "all" else []
    assert told == [*((str(n), place(n)) for n in (0, 2, 3)), *lost]
