"""Performs the effects of a source task: poll, transform, convert, send, commit.

The loop over a batch is the data plane's hot path. What can be decided once for a batch is.
"""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from headgate.connector.api import (
    DataError,
    Headers,
    OffsetUpdate,
    RetriableError,
    SkippedRecord,
    SourceItem,
    SourceRecord,
    SourceTask,
)
from headgate.connector.batches import SourceBatch
from headgate.connector.dead_letters import SOURCE_TASK
from headgate.connector.error_handling import ErrorStage
from headgate.connector.schema import Schema
from headgate.ports import Headers as SentHeaders
from headgate.ports import (
    Producer,
    ProducerRecord,
    RefusedError,
    TransactionOverError,
    TransportError,
)
from headgate.task import steps as st
from headgate.task.held_error import HeldError
from headgate.task.messages import Measured
from headgate.task.source import SourceMachine, SourceSettings, TransactionBoundary
from headgate.topics.offsets import encode_value
from headgate_runtime.tasks import long_calls
from headgate_runtime.tasks.boundaries import Boundaries, TransactionContext
from headgate_runtime.tasks.commit_under_way import CommitUnderWay
from headgate_runtime.tasks.data_errors import data_error_text, log_skipped
from headgate_runtime.tasks.lifeline import BodyLifeline, monotonic_ms
from headgate_runtime.tasks.measuring import Meter, metered
from headgate_runtime.tasks.offsets import SourceOffsets
from headgate_runtime.tasks.plain_records import PlainRecords
from headgate_runtime.tasks.polled_records import (
    check_fields,
    check_item,
    check_name,
    check_sent,
    check_topic,
    polled_items,
    sent_time,
)
from headgate_runtime.tasks.quietly import call_quietly, quietly
from headgate_runtime.tasks.record_errors import RecordErrors, Waiting, place_of
from headgate_runtime.tasks.refused_records import named, position, refusal
from headgate_runtime.tasks.sent_offsets import SentOffsets
from headgate_runtime.tasks.source_batches import (
    DroppedBatch,
    Item,
    ReadyBatch,
    Sent,
    SourceBatches,
    send,
)
from headgate_runtime.tasks.source_context import SourceContext, inherits
from headgate_runtime.tasks.tools import BodyTools
from headgate_runtime.tasks.topic_creation import TopicCreation
from headgate_runtime.tasks.unsettled import UnsettledRecords
from headgate_runtime.tasks.used_topics import SentTopics

_log = logging.getLogger("headgate.task")

INIT_RETRY_MS = 30_000
RETRY_WAIT_S = 0.2
FETCH_LEAVE_S = 0.2
"""How long a task that ends waits for its first look at the offsets: perhaps no broker answers.
Once closed, the log of that look opens no connection."""
WAITING_S = 0.5
"""Longest wait of one poll for a record that is to be tried again. Then commits have their turn."""
_KEY, _VALUE = ErrorStage.KEY_CONVERTER, ErrorStage.VALUE_CONVERTER
_HEADER, _TRANSFORM = ErrorStage.HEADER_CONVERTER, ErrorStage.TRANSFORMATION
_BEFORE: tuple[str, Headers, tuple[Schema | None, ...], SentHeaders] = ("", (), (), ())
"""Topic, headers and converted headers of the previous record. A transform may give all records the
same headers."""
_NO_RECORD = (TypeError, ValueError, OverflowError, TransportError)
"""Exceptions that logs raise for a partition or a timestamp of the wrong type."""
QUICK_S = 0.05
"""Longest poll that counts as quick. A slower poll may have waited, and so may the poll after it or
after one that found nothing. A commit would go unnoticed meanwhile."""

Offsets: TypeAlias = Sequence[tuple[bytes, bytes | None]]


class SourcePerformer:
    def __init__(
        self, lifeline: BodyLifeline, tools: BodyTools, task_class: type[SourceTask]
    ) -> None:
        spec = lifeline.spec
        self._spec = spec
        self._lifeline = lifeline
        self._class = task_class
        self._settings = SourceSettings.from_spec(spec)
        self.machine = SourceMachine(self._settings)
        made = tools.converters(spec)
        to_bytes = made.key.from_connect, made.value.from_connect, made.header.from_connect
        self._from_connect = to_bytes
        transforms = tools.transforms(spec)
        self._chain: Sequence[Any] = [transform.apply_source for transform in transforms]
        self._batches = SourceBatches(made, transforms)
        self._transport = tools.open_transport(spec)
        self._offsets = SourceOffsets(self._transport.offset_log, spec.task.connector)
        self._polled = False
        self._errors = RecordErrors(spec)
        self._waiting: Waiting[Item, SourceRecord] = Waiting(
            self._errors, spec.task, lifeline.now_ms
        )
        self._sends = self._numbered = 0
        """Records sent in this run, and the producer's number of the first record of the batch."""
        self._resumed: tuple[SourceRecord | None, Sequence[Any]] | None = None
        """Where to go on with the first of the records that have waited."""
        self._letters = 0
        """Dead letters in the batch."""
        self._more = 0
        """Rows in batches, not counting one of each batch."""
        self._ahead: st.Polled | HeldError | None = None
        """Result of a poll during a commit that no `Poll` effect has taken yet."""
        by_connector = spec.exactly_once and (
            self._settings.boundary is TransactionBoundary.CONNECTOR
        )
        self._transaction = TransactionContext() if by_connector else None
        self._context = SourceContext(lifeline, self._offsets, self._transaction)
        self._meter = Meter("poll")
        self._producer: Producer | None = None
        self._fetching: threading.Thread | None = None
        self._task: SourceTask | None = None
        self._creation = TopicCreation(spec, self._transport.record_log)
        self._known_topics: set[str] = set()
        self._plain = PlainRecords(to_bytes, transforms, self._known_topics)
        self._topics = SentTopics(lifeline)
        # The batch that was polled last:
        self._batch: list[Sent] = []
        self._noted = SentOffsets(spec.task.connector, exactly_once=spec.exactly_once)
        tells = task_class.commit_record is not SourceTask.commit_record
        self._unsettled = UnsettledRecords() if tells else None
        self._polls_ahead = False
        """The task may be polled during a commit."""
        self._in_a_row = 0
        """Polls that found something at once."""

    def perform(self, effect: st.BodyEffect) -> Sequence[st.BodyInput]:
        match effect:
            case st.Poll(delay_ms):
                return (self._poll(delay_ms),)
            case st.SendRecords(first, end):
                return self._send(first, end)
            case st.CommitTransaction():
                return (self._commit(),)
            case st.FlushOffsets():
                return self._flush()
            case st.AbortTransaction():
                return (self._abort(),)
            case st.Connect():
                return self._connect()
            case st.InitProducer():
                return (self._init_producer(),)
            case st.ReadOffsets():
                return (self._read_offsets(),)
            case st.CallStart():
                return (self._start(),)
            case _:
                raise AssertionError(f"{type(effect).__name__} is no effect of a source task")

    # -- start-up --

    def _make_producer(self) -> Producer:
        spec = self._spec
        membership = (spec.group, spec.member_id, spec.generation)
        made = self._transport.record_log.producer(
            f"connector-producer-{spec.task}",
            spec.transactional_id if spec.exactly_once else None,
            membership if spec.exactly_once else None,
        )
        producer = metered(made, self._meter)
        if self._unsettled is not None:
            producer.keep_places()
        return producer

    def _connect(self) -> Sequence[st.BodyInput]:
        # An error here is left alone: the real attempt later meets it, too, and reports it.
        with suppress(Exception):
            fetching = threading.Thread(target=self._fetch_offsets, daemon=True)
            fetching.start()
            self._fetching = fetching
        with suppress(Exception):
            self._producer = self._make_producer()
            self._producer.connect()
        return ()

    def _fetch_offsets(self) -> None:
        """Read offsets once while the producer is initialised. The read that counts comes later."""
        with suppress(Exception):  # the later read fails, too, and reports it
            self._transport.offset_log.read(0, 1)

    def _fetched(self, within_s: float | None = None) -> None:
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.join(within_s)

    def _init_producer(self) -> st.BodyInput:
        producer = self._producer = self._producer or self._make_producer()
        deadline_ms = monotonic_ms() + INIT_RETRY_MS
        while True:
            self._lifeline.check()
            try:
                producer.init()
                return st.ProducerReady()
            except RefusedError:
                raise  # trying again does not help
            except TransportError:
                if self._lifeline.stopping or monotonic_ms() > deadline_ms:
                    raise
                # The lifeline's wait does not do: it ends at once if a pause is wanted.
                time.sleep(RETRY_WAIT_S)

    def _read_offsets(self) -> st.BodyInput:
        if self._producer is None:
            self._producer = self._make_producer()
        self._fetched()
        self._offsets.read_to_end()
        return st.OffsetsRead()

    def _start(self) -> st.BodyInput:
        task = self._task = self._class()
        task.context = self._context
        needs_records = self._transaction is not None or self._unsettled is not None
        self._batches.decide(self._producer, needs_records=needs_records)
        self._context.takes_batches = self._batches.flow
        self._context.keeps_batches = self._batches.kept
        with long_calls.call("start"):
            task.start(self._spec.task_config)
        # A task that is told of commits may take a commit to cover all records it has returned.
        told = not (inherits(task, "commit") and inherits(task, "commit_record"))
        self._polls_ahead = self._settings.boundary is TransactionBoundary.POLL and not told
        return st.Started()

    # -- a batch --

    def _poll(self, delay_ms: int) -> st.Polled:
        ahead, self._ahead = self._ahead, None
        if isinstance(ahead, HeldError):
            ahead.release()
        elif ahead is not None:
            return ahead
        self._batch = []
        self._noted.begin_batch()
        if self._waiting:
            return self._poll_waiting()
        if delay_ms:
            self._lifeline.wait(delay_ms / 1000)
        if self._lifeline.stopping:
            return st.Polled()
        assert self._task is not None
        self._context.awaited = False
        if self._transaction is not None:
            self._transaction.asked = []
        began = time.monotonic()
        try:
            with long_calls.call("poll"):
                records = polled_items(self._task, self._task.poll())
        except RetriableError as error:
            self._in_a_row = 0
            return st.Polled(retriable=str(error) or type(error).__name__)
        if not self._polled:
            self._polled = True
            self._offsets.rest()
        took_s = time.monotonic() - began
        quick = took_s < QUICK_S
        converted = self._convert(records)
        self._meter.calls.moved(converted.given, took_s)
        self._in_a_row = self._in_a_row + 1 if quick and converted.found else 0
        if not self._spec.exactly_once and (self._settings.tolerate or not converted.skipped):
            self._tell_settled()
        context = self._context
        return replace(converted, awaited=context.awaited, quarantined=context.quarantined)

    def _poll_waiting(self) -> st.Polled:
        """Go on with a batch that has a record to be tried again, if it is time."""
        self._in_a_row = 0
        if left_ms := self._waiting.left_ms():
            self._lifeline.wait(min(left_ms / 1000, WAITING_S))
        if self._lifeline.stopping:
            return st.Polled()  # the next start reads these records again
        if self._waiting.left_ms():
            return st.Polled(retriable=self._waiting.reason)
        records, self._resumed = self._waiting.take()
        converted = self._convert(records)
        self._meter.calls.more(converted.given)
        return converted

    def _convert(self, polled: Sequence[Item | SourceBatch]) -> st.Polled:
        boundaries = Boundaries(self._transaction)
        self._letters = self._more = 0
        if self._plain.possible and not (boundaries.by_record or self._resumed):
            polled = self._plain.convert(polled, self._batch, self._noted.sources)
        return self._convert_each(self._batches.prepared(polled), boundaries)

    def _convert_each(self, records: Sequence[Item], boundaries: Boundaries) -> st.Polled:
        key_of, value_of, _ = self._from_connect
        transforms, known = self._chain, self._known_topics
        batch, add, add_source = self._batch, self._batch.append, self._noted.sources.append
        resumed, self._resumed, detail = self._resumed, None, ""
        dropped = skipped = updates = 0
        old_topic, old_headers, old_typed, same_sent = _BEFORE
        for at, record in enumerate(records):
            if type(record) is not SourceRecord:
                if isinstance(record, (ReadyBatch, DroppedBatch)):
                    dropped += self._take_batch(record)
                    continue
                if type(record) is SkippedRecord or type(record) is OffsetUpdate:
                    count, reason = self._offset_alone(record)
                    skipped, updates, detail = skipped + count, updates + 1, detail or reason
                    continue
            out: SourceRecord | None = record  # type: ignore[assignment]
            chain, stage, apply = transforms, _TRANSFORM, None
            try:
                if resumed is not None:
                    (out, chain), resumed = resumed, None
                for apply in chain:
                    out = apply(out)
                    if out is None:
                        break
                if out is None:
                    check_item(self._task, record)
                    dropped += 1
                    self._lost(record)
                else:
                    topic, key, headers, time_ms = out.topic, out.key, out.headers, out.timestamp_ms
                    typed = out.header_schemas
                    if headers is not old_headers or typed is not old_typed or topic != old_topic:
                        check_name(topic, known)
                        stage = _HEADER
                        same_sent = self._sent_headers(out) if headers else ()
                        old_topic, old_headers, old_typed = topic, headers, typed
                    stage = _KEY
                    sent_key = None if key is None else key_of(topic, key, out.key_schema)
                    stage = _VALUE
                    value = value_of(topic, out.value, out.value_schema)
                    sent = ProducerRecord(topic, out.partition, sent_key, value, same_sent, time_ms)
            except Exception as error:  # anybody may have written them
                place = place_of(transforms, apply)
                rest = transforms[place:] if stage is _TRANSFORM else ()
                if self._waiting.again(error, records, at, out, rest):
                    break
                reason = self._give_up(record, error, stage, place)
                skipped, detail = skipped + 1, detail or reason
            else:
                if out is not None:
                    if time_ms is not None and (type(time_ms) is not int or time_ms < 0):
                        sent.timestamp_ms = sent_time(record, time_ms)
                    if type(topic) is not str or topic not in known:
                        self._ensure_topic(check_topic(record, topic))
                    add(sent)
                    add_source(record)  # type: ignore[arg-type]
            if boundaries.by_record:
                boundaries.reached(record, len(batch))
        return self._told(boundaries, st.Polled(0, dropped, skipped, detail, offsets=updates))

    def _sent_headers(self, record: SourceRecord) -> SentHeaders:
        given: object = record.headers
        if isinstance(given, dict):  # its keys may pass for pairs
            check_fields(record)
        return self._from_connect[2](record.topic, record.headers, record.header_schemas)

    def _told(self, boundaries: Boundaries, polled: st.Polled) -> st.Polled:
        waits = self._waiting.reason if self._waiting else ""
        rows = len(self._batch) + self._more
        more = replace(polled, records=rows, retriable=waits, letters=self._letters)
        return boundaries.told(more, whole=not waits)

    def _take_batch(self, ready: ReadyBatch | DroppedBatch) -> int:
        """Add a batch to be sent. Return how many records of it are dropped."""
        if isinstance(ready, DroppedBatch):
            return ready.count
        topic = ready.source.topic
        if topic not in self._known_topics:
            self._ensure_topic(check_topic(ready.source, topic))
        self._batch.append(ready.sent)
        self._noted.add_batch(ready.source)
        self._more += ready.sent.count - 1
        return 0

    def _give_up(self, record: SourceItem, error: Exception, stage: ErrorStage, at: int) -> str:
        """Pass over a record that cannot be sent. Return the reason for the report."""
        check_item(self._task, record)
        check_fields(record)
        reason = f"{data_error_text(error)} ({position(record)})"
        self._pass_over(record, reason, error, stage, self._errors.class_of(stage, at))
        return reason

    def _pass_over(
        self,
        record: SourceItem,
        reason: str,
        error: Exception | None = None,
        stage: ErrorStage = ErrorStage.TASK_POLL,
        executing: str = SOURCE_TASK,
    ) -> None:
        log_skipped(self._spec.task, reason, error)
        assert isinstance(record, (SourceRecord, SkippedRecord))
        cause = error or DataError(reason)
        letter = self._errors.source_letter(record, cause, stage, executing)
        if letter is not None:
            # A letter is sent like a record of the batch: it shares its transaction and offset.
            if letter.topic not in self._known_topics:
                self._ensure_topic(letter.topic, letters=True)
            self._batch.append(letter)
            self._noted.sources.append(record)
            self._letters += 1
            return
        self._noted.pass_over(record.source_partition, record.source_offset)
        self._lost(record)

    def _offset_alone(self, record: SkippedRecord | OffsetUpdate) -> tuple[int, str]:
        """Note an offset without a record. Return how many records it skips, and why."""
        if isinstance(record, SkippedRecord):
            self._pass_over(record, record.reason)
            return record.count, record.reason
        self._noted.pass_over(record.source_partition, record.source_offset)
        return 0, ""

    def _lost(self, record: SourceItem) -> None:
        """Note a record that will not be in the log. The task is told with the next settled."""
        if self._unsettled is not None and isinstance(record, SourceRecord):
            self._unsettled.lost.append(record)

    def _ensure_topic(self, topic: str, *, letters: bool = False) -> None:
        self._creation.ensure(topic, letters=letters)
        self._known_topics.add(topic)
        self._topics.saw_topic(topic)

    # -- sending and committing --

    def _send(self, first: int, end: int) -> Sequence[st.BodyInput]:
        assert self._producer is not None
        if end == len(self._batch) + self._more:
            end = len(self._batch)  # batches are never split: no boundary lies within one
        whole = first == 0 and end == len(self._batch)
        records = self._batch if whole else self._batch[first:end]
        sources = self._noted.sources[first:end]
        self._numbered = self._sends - first
        try:
            rows = send(self._producer, records, with_batches=self._noted.with_batches)
        except TransactionOverError as error:
            raise named(error, records, sources) from error
        except _NO_RECORD:
            check_sent(records, sources)
            raise
        self._sends += rows
        self._topics.sent(records, rows)
        if self._unsettled is not None:
            self._unsettled.sent(sources)
        self._noted.note(end)
        return () if self._spec.exactly_once else self._absorb_acks()

    def _absorb_acks(self) -> Sequence[st.BodyInput]:
        assert self._producer is not None
        failed = 0
        reason = ""
        for ack in self._producer.acks():
            self._noted.tracker.acknowledge(ack.first, ack.last)
            if ack.error is not None:
                failed += ack.last - ack.first + 1
                reason = reason or refusal(ack, self._noted.sources, self._numbered)
                self._topics.refused(ack.first, ack.last)
                if self._unsettled is not None:
                    # Otherwise the task ends, and reads them again later.
                    self._unsettled.refused(ack.first, ack.last, lost=self._settings.tolerate)
            else:
                self._topics.acknowledged(ack.first, ack.last)
        self._tell_settled()
        if failed and self._errors.settings.topic:
            raise DataError(
                f"the log refused {failed} records: {reason}. With a dead letter queue none is "
                "passed over, and what the log refuses cannot be written there either"
            )
        return (st.SendFailed(failed, reason),) if failed else ()

    def _commit(self) -> st.BodyInput:
        assert self._task is not None
        self._noted.note(self._noted.sent)
        batch, sources = self._batch, self._noted.sources  # a poll during the commit replaces both
        try:
            self._commit_pending()
        except TransactionOverError as error:
            raise named(error, batch, sources) from error
        except _NO_RECORD:
            check_sent(batch, sources)
            raise
        self._topics.committed()
        self._tell_settled()
        call_quietly("commit", self._task.commit, self._spec)
        return st.Committed(ahead=self._ahead is not None)

    def _tell_settled(self) -> None:
        """Call `commit_record` for the records that the log has taken or never will take."""
        if self._unsettled is None:
            return
        assert self._producer is not None
        assert self._task is not None
        settled = self._unsettled.settled(self._producer.places())
        with long_calls.call("commit_record"):
            for record, metadata in settled:
                call = partial(self._task.commit_record, record, metadata)
                quietly(call, self._spec, "in commit_record()")

    def _commit_pending(self) -> None:
        assert self._producer is not None
        if not self._noted.pending:
            return
        offsets = [(key, encode_value(offset)) for key, offset in self._noted.pending.items()]
        # Right before the commit: a body that was frozen must notice it now, not later.
        self._lifeline.check()
        if self._polls_ahead and self._in_a_row > 1 and not self._lifeline.wait(0):
            self._commit_and_poll(self._producer, offsets)
        else:
            self._producer.commit(offsets)
        self._noted.pending.clear()

    def _commit_and_poll(self, producer: Producer, offsets: Offsets) -> None:
        """Poll while waiting for the commit: a third of the time of a batch of 2,000 records."""
        end = producer.begin_commit(offsets)
        if end is None:
            return
        commit = self._offsets.commit = CommitUnderWay(end)
        held = HeldError()  # the poll's error; raised once the batch before is committed
        with held:
            polled = self._poll(0)
            # A poll that found nothing began too early to tell that the task is idle.
            self._ahead = polled if polled.found or polled.retriable else None
        if held.text:
            self._ahead = held
        commit.finish()

    def _abort(self) -> st.BodyInput:
        assert self._producer is not None
        self._noted.note(self._noted.sent)
        self._producer.abort()
        self._topics.aborted()
        self._commit_pending()
        if self._unsettled is not None:
            self._unsettled.aborted()
        self._tell_settled()
        return st.Aborted()

    def _flush(self) -> Sequence[st.BodyInput]:
        assert self._task is not None
        self._noted.note(self._noted.sent)
        failed = self._absorb_acks()
        if failed and not self._settings.tolerate:
            return failed  # the task ends, and is to begin again before the refused records
        ready = self._noted.tracker.take()
        if ready:
            records = [(key, encode_value(offset)) for key, offset in ready.items()]
            self._lifeline.check()
            try:
                with self._meter.waiting():
                    self._transport.offset_log.append(records)
            except TransportError as error:
                self._noted.tracker.put_back(ready)
                self._meter.commit_failed()
                return (*failed, st.CommitFailed(str(error)))
            self._meter.committed()
        call_quietly("commit", self._task.commit, self._spec)
        return (*failed, st.Committed(self._noted.tracker.outstanding))

    # -- the end --

    def measured(self) -> Measured:
        return self._meter.read(self._errors.counts.read())

    def close(self) -> None:
        if isinstance(self._ahead, HeldError):
            self._ahead.drop()
        call_quietly("stop", getattr(self._task, "stop", None), self._spec)
        producer = self._producer
        if producer is not None:
            if self._spec.exactly_once and self._noted.pending:
                quietly(producer.abort, self._spec)
            quietly(producer.close, self._spec)
        self._fetched(FETCH_LEAVE_S)  # otherwise it might use what is closed here
        quietly(self._transport.close, self._spec)
