"""Records that a source task cannot send become dead letters in the batch, and in the transaction,
of the records around them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.task.body_bench import BodyBench, source_offsets, visible
from support.task.letters import HEADERS, LETTERS, HeldLog, headers_of, records_of
from support.task.scripted_source import KEY, Scripted, record, run_dry, scripted

from headgate.connector.api import (
    OffsetUpdate,
    RecordMetadata,
    SkippedRecord,
    SourceRecord,
    TransactionContext,
)
from headgate.ports import FencedError
from headgate.task.messages import TaskOutcome
from headgate_embedded.producer import EmbeddedProducer

QUEUE = {
    LETTERS: "letters",
    "errors.tolerance": "all",
    "value.converter": "org.apache.kafka.connect.converters.IntegerConverter",
}
BAD = SkippedRecord({"file": "a"}, {"n": 2}, "a.csv line 2: 3 fields", raw=b"x,y,z")


@pytest.mark.parametrize("exactly_once", [True, False])
def test_what_cannot_be_sent_goes_to_the_queue_with_where_it_was(
    tmp_path: Path, exactly_once: bool
) -> None:
    odd = {"a": {1, 2}}
    task = scripted(
        [record(1, value=1), BAD, record(3, value="three"), record(4, value=odd)],
        [record(5, value=5)],
    )
    bench = BodyBench(tmp_path, task, {**QUEUE, HEADERS: "true"}, exactly_once=exactly_once)
    run_dry(bench)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert len(records_of(tmp_path, "t")) == 2
    assert source_offsets(tmp_path) == {KEY: b'{"n":5}'}
    assert (bench.progress.records, bench.progress.skipped) == (2, 3)
    letters = records_of(tmp_path, "letters")
    assert [letter.value for letter in letters] == [b"x,y,z", b"three", b'{"a": "{1, 2}"}']
    skipped, converted = (dict(headers_of(letter)) for letter in letters[:2])
    assert json.loads(converted["__headgate.errors.source.partition"] or "") == {"file": "a"}
    assert json.loads(converted["__headgate.errors.source.offset"] or "") == {"n": 3}
    assert converted["__headgate.errors.topic"] == "t"
    assert converted["__connect.errors.stage"] == "VALUE_CONVERTER"
    assert converted["__connect.errors.class.name"] == (
        "org.apache.kafka.connect.converters.IntegerConverter"
    )
    assert "__connect.errors.topic" not in converted  # it was in no topic
    assert skipped["__connect.errors.stage"] == "TASK_POLL"
    assert skipped["__connect.errors.exception.message"] == "a.csv line 2: 3 fields"


@pytest.mark.exhaustive
def test_without_context_headers_a_letter_still_tells_its_place(tmp_path: Path) -> None:
    bench = BodyBench(tmp_path, scripted([BAD]), QUEUE)
    run_dry(bench)
    bench.stop()
    (letter,) = records_of(tmp_path, "letters")
    assert headers_of(letter) == {
        "__headgate.errors.source.partition": '{"file":"a"}',
        "__headgate.errors.source.offset": '{"n":2}',
    }


def test_a_letter_and_its_offset_are_in_one_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill right before the commit leaves neither; a start after it delivers both once."""

    def killed(*_: object) -> None:
        raise FencedError("killed by the test")

    task = scripted([record(1, value=1), BAD])
    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedProducer, "begin_commit", killed)
        patch.setattr(EmbeddedProducer, "commit", killed)
        assert BodyBench(tmp_path, task, QUEUE).start().wait().outcome is TaskOutcome.FENCED
    assert (records_of(tmp_path, "letters"), source_offsets(tmp_path)) == ([], {})
    again = BodyBench(tmp_path, task, QUEUE)
    run_dry(again)
    again.stop()
    assert visible(tmp_path, "letters") == ["x,y,z"]
    assert source_offsets(tmp_path) == {KEY: b'{"n":2}'}


def test_an_aborted_transaction_takes_its_letters_with_it(tmp_path: Path) -> None:
    class Aborting(Scripted):
        batches = [[record(1, value=1), BAD]]  # noqa: RUF012

        def poll(self):  # type: ignore[no-untyped-def]
            transaction: TransactionContext | None = self.context.transaction
            assert transaction is not None
            given = super().poll()
            if given:
                transaction.abort_transaction()
            return given

    config = {**QUEUE, "transaction.boundary": "connector"}
    bench = BodyBench(tmp_path, Aborting, config)
    run_dry(bench)
    bench.stop()
    assert (records_of(tmp_path, "letters"), records_of(tmp_path, "t")) == ([], [])
    assert source_offsets(tmp_path) == {KEY: b'{"n":2}'}  # not to be read again, as in Connect


def test_offsets_wait_for_letters_without_transactions(tmp_path: Path) -> None:
    log = HeldLog(quiet=True)
    log.held.set()
    bench = BodyBench(tmp_path, scripted([BAD]), QUEUE, exactly_once=False, open_transport=log)
    bench.start().until(log.tried.is_set)
    log.tried.clear()
    bench.until(log.tried.is_set)  # a flush has come by
    assert source_offsets(tmp_path) == {}
    log.held.clear()
    bench.until(lambda: source_offsets(tmp_path) == {KEY: b'{"n":2}'})
    bench.stop()


def test_commit_record_is_told_of_the_letter_of_a_record(tmp_path: Path) -> None:
    told: list[tuple[str, RecordMetadata | None]] = []

    class Told(Scripted):
        batches = [[record(1, value=1), BAD, record(3, value="three")]]  # noqa: RUF012

        def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
            told.append((str(record.value), metadata))

    bench = BodyBench(tmp_path, Told, QUEUE)
    run_dry(bench)
    bench.stop()
    assert told == [
        ("1", RecordMetadata("t", 0, 0)),
        ("three", RecordMetadata("letters", 0, 1)),
    ]


def test_with_a_tolerance_of_none_there_is_no_letter(tmp_path: Path) -> None:
    config = {**QUEUE, "errors.tolerance": "none"}
    ended = BodyBench(tmp_path, scripted([BAD]), config).start().wait()
    assert ended.outcome is TaskOutcome.FAILED
    assert (records_of(tmp_path, "letters"), source_offsets(tmp_path)) == ([], {})


# -- offsets without a record, without transactions --


def _at_least_once(folder: Path, *batches: object, log: HeldLog | None = None) -> BodyBench:
    given: Mapping[str, object] = {} if log is None else {"open_transport": log}
    return BodyBench(folder, scripted(*batches), exactly_once=False, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("together", [True, False])
def test_an_offset_alone_waits_for_the_records_before_it(tmp_path: Path, together: bool) -> None:
    log = HeldLog(quiet=True)
    log.held.set()
    update = OffsetUpdate({"file": "a"}, {"n": 7})
    batches = [[record(1), update]] if together else [[record(1)], [update]]
    bench = _at_least_once(tmp_path, *batches, log=log)
    bench.start().until(log.tried.is_set)
    log.tried.clear()
    bench.until(log.tried.is_set)
    log.tried.clear()
    bench.until(log.tried.is_set)
    assert source_offsets(tmp_path) == {}
    log.held.clear()
    bench.until(lambda: source_offsets(tmp_path) == {KEY: b'{"n":7}'})
    bench.stop()


def test_an_offset_alone_is_not_lost_at_a_stop(tmp_path: Path) -> None:
    """The stop comes before the flush interval: the last flush takes it."""

    class Stopped(Scripted):
        batches = [[record(1)], [OffsetUpdate({"file": "a"}, {"n": 7})]]  # noqa: RUF012
        given = 0

        def poll(self):  # type: ignore[no-untyped-def]
            type(self).given += 1
            return super().poll()

    bench = BodyBench(
        tmp_path,
        Stopped,
        exactly_once=False,
        settings={"offset.flush.interval.ms": "3600000"},
    )
    bench.start().until(lambda: Stopped.given >= 2)
    assert bench.stop().outcome is TaskOutcome.STOPPED
    assert source_offsets(tmp_path) == {KEY: b'{"n":7}'}
