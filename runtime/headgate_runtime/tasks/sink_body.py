"""Performs the effects of a sink task that is a member of its consumer group."""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headgate.connector.api import DataError, Headers, RetriableError, SinkRecord, SinkTask
from headgate.connector.batches import SinkBatch
from headgate.connector.error_handling import ErrorStage
from headgate.connector.schema import Schema, SchemaAndValue
from headgate.connector.sink_names import sink_group, sink_subscription
from headgate.log import looks
from headgate.ports import (
    BatchConsumer,
    Consumer,
    ConsumerRecord,
    LogBatch,
    RebalancedError,
    RecordLog,
    TopicPartition,
    TransportError,
)
from headgate.task import steps as st
from headgate.task.messages import Measured
from headgate.task.sink import SinkMachine, SinkSettings
from headgate_runtime.tasks import long_calls
from headgate_runtime.tasks.data_errors import data_error_text, log_skipped
from headgate_runtime.tasks.dead_letter_queue import DeadLetterQueue, ErrantRecords
from headgate_runtime.tasks.lifeline import BodyLifeline
from headgate_runtime.tasks.measuring import Meter
from headgate_runtime.tasks.polled_records import check_safe_offsets
from headgate_runtime.tasks.quietly import call_quietly, quietly
from headgate_runtime.tasks.record_errors import RecordErrors, Waiting, place_of
from headgate_runtime.tasks.sink_batches import Change, batches_flow, log_records, sink_batch
from headgate_runtime.tasks.sink_lag import KnowsEnds, partition_lag
from headgate_runtime.tasks.tools import BodyTools
from headgate_runtime.tasks.used_topics import UsedTopics

_log = logging.getLogger("headgate.task")

BATCH_RECORDS = 2_000
_KEY, _VALUE = ErrorStage.KEY_CONVERTER, ErrorStage.VALUE_CONVERTER
_HEADER, _TRANSFORM = ErrorStage.HEADER_CONVERTER, ErrorStage.TRANSFORMATION
_NO_KEY = SchemaAndValue(None, None)
_NO_HEADERS: tuple[Headers, tuple[Schema | None, ...]] = ((), ())


class SinkContext:
    """A sink task's link to its worker. It collects the task's requests."""

    def __init__(self, lifeline: BodyLifeline) -> None:
        self._lifeline = lifeline
        self.consumer: Consumer | None = None
        self.read_committed: Callable[[], Mapping[TopicPartition, int]] = dict
        self.record_log: RecordLog | None = None
        self.seeks: dict[TopicPartition, int] = {}
        self._pauses: dict[TopicPartition, bool] = {}
        """Last request for each partition: True to pause, False to resume."""
        self._timeout_ms: int | None = None
        self._commit = False
        self.reporter: ErrantRecords | None = None

    def errant_record_reporter(self) -> ErrantRecords | None:
        return self.reporter

    def offset(self, topic: str, partition: int, offset: int) -> None:
        self.seeks[topic, partition] = offset

    def assignment(self) -> Collection[TopicPartition]:
        return self.consumer.assignment() if self.consumer is not None else frozenset()

    def pause(self, *partitions: TopicPartition) -> None:
        self._ask_pauses(partitions, True)

    def resume(self, *partitions: TopicPartition) -> None:
        self._ask_pauses(partitions, False)

    def _ask_pauses(self, partitions: Sequence[TopicPartition], paused: bool) -> None:
        foreign = set(partitions) - set(self.assignment())
        if foreign:
            held = ", ".join(f"{topic}-{number}" for topic, number in sorted(self.assignment()))
            topic, number = min(foreign)
            raise ValueError(
                f"{topic}-{number} is not assigned to this task, which may pause and resume its "
                f"own partitions only: {held or 'none now'}"
            )
        for partition in partitions:
            self._pauses[partition] = paused

    def timeout(self, timeout_ms: int) -> None:
        if timeout_ms < 0:
            raise ValueError(f"timeout({timeout_ms}): expected milliseconds, 0 or more")
        self._timeout_ms = timeout_ms

    def committed(self) -> Mapping[TopicPartition, int]:
        return self.read_committed()

    def first_record(self, topic: str, partition: int, start: int, end: int) -> int | None:
        assert self.record_log is not None
        return looks.first_record(self.record_log, (topic, partition), start, end)

    def record_time(self, topic: str, partition: int, offset: int) -> int | None:
        assert self.record_log is not None
        return looks.record_time(self.record_log, (topic, partition), offset)

    def request_commit(self) -> None:
        self._commit = True

    def take_asked(self) -> Sequence[st.SinkRequested]:
        """Return the requests since the last call, as one input or none."""
        if not (self._pauses or self._commit or self._timeout_ms is not None):
            return ()
        paused = tuple(sorted(place for place, wanted in self._pauses.items() if wanted))
        resumed = tuple(sorted(place for place, wanted in self._pauses.items() if not wanted))
        asked = st.SinkRequested(paused, resumed, self._timeout_ms, self._commit)
        self._pauses, self._timeout_ms, self._commit = {}, None, False
        return (asked,)

    @property
    def stopping(self) -> bool:
        return self._lifeline.stopping

    @property
    def worker_settings(self) -> Mapping[str, str]:
        return self._lifeline.spec.worker_settings

    def log(self, message: str) -> None:
        _log.warning("%s: %s", self._lifeline.spec.task, message)


class SinkPerformer:
    def __init__(
        self, lifeline: BodyLifeline, tools: BodyTools, task_class: type[SinkTask]
    ) -> None:
        self._spec = lifeline.spec
        self._lifeline = lifeline
        self._class = task_class
        plain = task_class.pre_commit is SinkTask.pre_commit
        self._commit_method = "flush" if plain else "pre_commit"
        """Method of the task that may take long before a commit. `pre_commit` calls `flush`."""
        self.machine = SinkMachine(SinkSettings.from_spec(self._spec))
        self._converters = tools.converters(self._spec)
        self._transforms = tools.transforms(self._spec)
        self._transport = tools.open_transport(self._spec)
        self._context = SinkContext(lifeline)
        self._context.read_committed = self._read_committed
        self._context.record_log = self._transport.record_log
        self._errors = RecordErrors(self._spec)
        self._letters = DeadLetterQueue(self._spec, self._transport, self._errors)
        if self._errors.settings.reports:
            self._context.reporter = ErrantRecords(self._letters, self._errors, self._converters)
        self._waiting: Waiting[ConsumerRecord, SinkRecord] = Waiting(
            self._errors, self._spec.task, lifeline.now_ms
        )
        self._resumed: tuple[SinkRecord | None, Sequence[Any]] | None = None
        """Where to go on with the first of the records that have waited."""
        self._meter = Meter("put")
        self._consumer: Consumer | None = None
        self._task: SinkTask | None = None
        self._interrupt: Callable[[st.BodyInput], None] = lambda _given: None
        self._open: set[TopicPartition] = set()
        self._resting = False
        """No records are taken: the connector is paused, or a redelivery waits."""
        self._held: frozenset[TopicPartition] = frozenset()
        """Partitions paused by the task."""
        self._paused: frozenset[TopicPartition] = frozenset()
        """Partitions paused at the consumer."""
        self._topics = UsedTopics(lifeline)
        self._batches: BatchConsumer | None = None
        """The consumer, if the task is given whole batches."""
        self._change: Change = lambda batch: batch
        self._arrow: SinkBatch | None = None
        """The batch that was consumed, if it is one and not records."""
        self._batch: list[SinkRecord] = []
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        """Next offset and record count of each partition in the batch, skipped records included."""
        self._delivered: dict[TopicPartition, int] = {}
        """Next offset of each partition after the records that `put` took."""
        self._committed: dict[TopicPartition, int] = {}
        self._counts: dict[TopicPartition, deque[tuple[int, int]]] = {}
        """Delivered and not committed: (next offset, records) of each partition."""
        self._covered_before = 0
        """Records whose offsets were committed when their partitions were revoked."""
        self._moved = False
        """The task has sought beyond the group's offsets."""

    def bind(self, interrupt: Callable[[st.BodyInput], None]) -> None:
        self._interrupt = interrupt

    def perform(self, effect: st.BodyEffect) -> Sequence[st.BodyInput]:
        match effect:
            case st.Consume(timeout_ms, paused):
                return self._with_asked(self._consume(timeout_ms, paused))
            case st.Put(delay_ms):
                return self._with_asked(self._put(delay_ms))
            case st.ServeGroup(timeout_ms):
                self._serve_group(timeout_ms)
                return self._with_asked(st.GroupServed())
            case st.CommitOffsets():
                return self._with_asked(self._commit())
            case st.OpenPartitions(partitions):
                self._open.update(partitions)
                self._settle_pauses()
                with long_calls.call("open"):
                    self._checked_task.open(partitions)
                # The poll that brought the partitions goes on to fetch, so seeks come first.
                self._seek(partitions)
                return self._context.take_asked()
            case st.HoldPartitions(partitions):
                self._held = frozenset(partitions)
                self._settle_pauses()
            case st.CommitPartitions(partitions):
                self._commit_revoked(set(partitions))
            case st.ClosePartitions(partitions):
                self._close_partitions(partitions)
            case st.CallStart():
                return self._with_asked(self._start())
            case _:
                raise AssertionError(f"{type(effect).__name__} is no effect of a sink task")
        return ()

    def _read_committed(self) -> Mapping[TopicPartition, int]:
        spec = self._spec
        group = sink_group(spec.task.connector, spec.connector_config, spec.transport)
        return self._transport.record_log.committed(group)

    def _with_asked(self, outcome: st.BodyInput) -> Sequence[st.BodyInput]:
        return (*self._context.take_asked(), outcome)

    @property
    def _checked_task(self) -> SinkTask:
        assert self._task is not None
        return self._task

    @property
    def _checked_consumer(self) -> Consumer:
        assert self._consumer is not None
        return self._consumer

    def _start(self) -> st.BodyInput:
        spec = self._spec
        topics = sink_subscription(spec.connector_config, spec.transport)
        self._letters.open()
        task = self._task = self._class()
        task.context = self._context
        with long_calls.call("start"):
            task.start(spec.task_config)
        consumer = self._transport.record_log.consumer(
            sink_group(spec.task.connector, spec.connector_config, spec.transport),
            topics,
            f"connector-consumer-{spec.task}",
        )
        self._consumer = self._context.consumer = consumer
        flow = batches_flow(task, self._converters, self._transforms, consumer)
        if flow is not None and self._context.reporter is None:
            assert isinstance(consumer, BatchConsumer)
            self._batches, self._change = consumer, flow
        consumer.on_rebalance(
            lambda given: self._interrupt(st.PartitionsAssigned(tuple(sorted(given)))),
            lambda given: self._interrupt(st.PartitionsRevoked(tuple(sorted(given)))),
        )
        return st.Started()

    # -- a batch --

    def _consume(self, timeout_ms: int, paused: bool) -> st.BodyInput:
        self._arrow, self._batch, self._ends = None, [], {}
        if self._lifeline.stopping:
            return st.Consumed()
        self._seek(self._checked_consumer.assignment())
        self._rest(paused or bool(self._waiting))
        records: Sequence[ConsumerRecord] | LogBatch
        if self._waiting:
            records = self._waited(timeout_ms, paused)
        else:
            if self._batches is not None:
                records = self._batches.poll_batch(BATCH_RECORDS, timeout_ms)
            else:
                records = self._checked_consumer.poll(BATCH_RECORDS, timeout_ms)
            self._meter.given(records)
        consumed = (
            self._take_batch(records) if isinstance(records, LogBatch) else self._convert(records)
        )
        if self._context.reporter is not None:
            count, detail = self._context.reporter.take_told()
            consumed = replace(
                consumed, skipped=consumed.skipped + count, detail=consumed.detail or detail
            )
        self._topics.used(topic for topic, _ in self._ends)
        moved, self._moved = self._moved, False
        return replace(consumed, moved=True) if moved else consumed

    def _waited(self, timeout_ms: int, paused: bool) -> Sequence[ConsumerRecord]:
        """Return waiting records, of which the first is to be tried again, once it is time. Until
        then the consumer stays in its group, and partitions may be revoked."""
        left_ms = self._waiting.left_ms()
        self._checked_consumer.poll(0, timeout_ms if paused else min(timeout_ms, left_ms))
        if paused or not self._waiting or self._waiting.left_ms():
            return ()
        records, self._resumed = self._waiting.take()
        return records

    def _seek(self, among: Collection[TopicPartition]) -> None:
        """Seek to the offsets that the task asked for. Source: WorkerSinkTask.rewind.

        The committed offsets of these partitions are forgotten: the next commit may set the group
        back. If the task's own store is ahead of the group, as after a crash between their commits,
        the group follows. Without further records, nothing else would ever commit.
        """
        seeks = {place: to for place, to in self._context.seeks.items() if place in among}
        ahead = self._ahead_of_group(seeks) if seeks else {}
        for partition, offset in seeks.items():
            self._checked_consumer.seek(partition, offset)
            for table in (self._delivered, self._committed, self._counts):
                table.pop(partition, None)
            self._waiting.keep(lambda raw: (raw.topic, raw.partition) != partition)  # noqa: B023
            del self._context.seeks[partition]
        self._delivered.update(ahead)
        self._moved = self._moved or bool(ahead)

    def _ahead_of_group(self, seeks: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        group = dict[TopicPartition, int]()
        if not seeks.keys() <= self._committed.keys():
            try:
                group.update(self._read_committed())
            except TransportError:
                return {}
        group.update(self._committed)
        return {place: to for place, to in seeks.items() if to > group.get(place, 0)}

    def _rest(self, resting: bool) -> None:
        self._resting = resting
        self._settle_pauses()

    def _settle_pauses(self) -> None:
        """Pause and resume partitions at the consumer, those assigned during a pause included."""
        consumer = self._checked_consumer
        assigned = consumer.assignment()
        wanted = assigned if self._resting else self._held & assigned
        if more := wanted - self._paused:
            consumer.pause(sorted(more))
        if fewer := (self._paused - wanted) & assigned:
            consumer.resume(sorted(fewer))
        self._paused = wanted

    def _take_batch(self, batch: LogBatch) -> st.Consumed:
        try:
            given = sink_batch(batch, self._converters)
            self._arrow = self._change(given)
        except Exception:  # errors in a key or row are reported record by record
            return self._convert(log_records(batch))
        end = given.offset + given.count
        self._ends[given.topic, given.partition] = (end, given.count)
        if self._arrow is None:
            self._note_delivered()
            return st.Consumed(dropped=given.count)
        return st.Consumed(given.count)

    def _convert(self, records: Sequence[ConsumerRecord]) -> st.Consumed:
        key_of = self._converters.key.to_connect_data
        value_of = self._converters.value.to_connect_data
        headers_of = self._converters.header.to_connect_data
        transforms = [transform.apply_sink for transform in self._transforms]
        batch, ends = self._batch, self._ends
        keeps = self._context.reporter is not None
        resumed, self._resumed = self._resumed, None
        skipped = dropped = 0
        detail = ""
        for at, raw in enumerate(records):
            topic, partition = raw.topic, raw.partition
            record: SinkRecord | None = None
            chain: Sequence[Any] = transforms
            stage, apply = _KEY, None
            try:
                if resumed is not None and resumed[0] is not None:
                    record, chain = resumed
                else:
                    if raw.unreadable:
                        stage = _HEADER
                        raise DataError(raw.unreadable)
                    key_schema, key = _NO_KEY if raw.key is None else key_of(topic, raw.key)
                    stage = _VALUE
                    value_schema, value = value_of(topic, raw.value)
                    stage = _HEADER
                    headers, schemas = (
                        headers_of(topic, raw.headers) if raw.headers else _NO_HEADERS
                    )
                    record = SinkRecord(
                        *(topic, partition, raw.offset, key, value, headers, raw.timestamp_ms),
                        *(key_schema, value_schema, schemas, raw if keeps else None),
                    )
                stage = _TRANSFORM
                for apply in chain:
                    record = apply(record)
                    if record is None:
                        break
                if record is not None:
                    batch.append(record)
                else:
                    dropped += 1
            except Exception as error:  # anybody may have written them
                place = place_of(transforms, apply)
                if self._waiting.again(error, records, at, record, transforms[place:]):
                    break
                skipped += 1
                reason = self._give_up(raw, error, stage, place)
                detail = detail or reason
                if not self._errors.settings.tolerate:
                    break  # the task fails, and no record behind this one matters
            resumed = None
            known = ends.get((topic, partition))
            ends[topic, partition] = (raw.offset + 1, 1 if known is None else known[1] + 1)
        if not batch:
            self._note_delivered()
        return st.Consumed(len(batch), skipped, detail, dropped)

    def _give_up(self, raw: ConsumerRecord, error: Exception, stage: ErrorStage, at: int) -> str:
        """Log a record that cannot be used, and queue its dead letter. Return the reason."""
        reason = f"{data_error_text(error)} ({raw.topic}-{raw.partition}, offset {raw.offset})"
        log_skipped(self._spec.task, reason, error)
        executing = self._errors.class_of(stage, at)
        self._letters.send(self._errors.sink_letter(raw, error, stage, executing))
        return reason

    def _put(self, delay_ms: int) -> st.BodyInput:
        if delay_ms:
            self._wait_paused(delay_ms)
        count = len(self._batch) if self._arrow is None else self._arrow.count
        began = time.monotonic()
        try:
            with long_calls.call("put"):
                if self._arrow is not None:
                    self._checked_task.put_batch(self._arrow)
                else:
                    self._checked_task.put(self._batch)
        except RetriableError as error:
            return st.PutRetriable(str(error) or type(error).__name__)
        self._meter.calls.moved(count, time.monotonic() - began)
        self._note_delivered()
        return st.Delivered()

    def _wait_paused(self, delay_ms: int) -> None:
        """Poll without taking records, to stay in the group. Partitions may be revoked."""
        until_ms = self._lifeline.now_ms() + delay_ms
        while not self._lifeline.stopping and (left_ms := until_ms - self._lifeline.now_ms()) > 0:
            self._serve_group(min(100, left_ms))

    def _serve_group(self, timeout_ms: int) -> None:
        self._rest(True)
        self._checked_consumer.poll(0, timeout_ms)

    def _note_delivered(self) -> None:
        for partition, (end, count) in self._ends.items():
            self._delivered[partition] = end
            self._counts.setdefault(partition, deque()).append((end, count))
        self._arrow, self._batch, self._ends = None, [], {}

    # -- offsets --

    def _commit(self) -> st.BodyInput:
        try:
            covered = self._commit_some(set(self._delivered)) + self._covered_before
            self._covered_before = 0
            return st.OffsetsCommitted(covered, self._is_pending())
        except RetriableError as error:
            self._meter.commit_failed()
            return st.OffsetsNotCommitted(str(error))
        except (RebalancedError, TransportError) as error:
            self._meter.commit_failed()
            again = isinstance(error, RebalancedError)
            return st.OffsetsNotCommitted(f"{type(error).__name__}: {error}", again=again)

    def _commit_revoked(self, partitions: set[TopicPartition]) -> None:
        try:
            self._covered_before += self._commit_some(partitions)
        except (RetriableError, RebalancedError, TransportError) as error:
            # Another task owns them in a moment, and reads again from the last commit.
            self._meter.commit_failed()
            _log.warning("%s: offsets of revoked partitions: %s", self._spec.task, error)

    def _commit_some(self, partitions: set[TopicPartition]) -> int:
        """Commit what `pre_commit` returns for `partitions`. Return how many records that covers.

        Source: WorkerSinkTask.commitOffsets. Differs: an exception of `pre_commit` fails the task,
        where Connect rewinds and goes on. After a `RetriableError` the next commit tries again.
        """
        given = {tp: offset for tp, offset in self._delivered.items() if tp in partitions}
        if not given:
            return 0
        with long_calls.call(self._commit_method), self._meter.waiting():
            safe = self._checked_task.pre_commit(given)
        check_safe_offsets(self._checked_task, safe)
        changed = {
            tp: min(offset, given[tp])
            for tp, offset in safe.items()
            if tp in given and self._committed.get(tp, -1) < min(offset, given[tp])
        }
        with self._meter.waiting():
            self._letters.settle()
            if changed:
                self._lifeline.check()
                self._checked_consumer.commit(changed)
        if changed:
            self._meter.committed()
        else:
            self._meter.not_committed()
        return sum(self._covered(tp, offset) for tp, offset in changed.items())

    def _covered(self, partition: TopicPartition, offset: int) -> int:
        self._committed[partition] = offset
        counts = self._counts.get(partition, deque())
        covered = 0
        while counts and counts[0][0] <= offset:
            covered += counts.popleft()[1]
        return covered

    def _is_pending(self) -> bool:
        return any(self._committed.get(tp) != end for tp, end in self._delivered.items())

    def _close_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        gone = set(partitions)
        self._waiting.keep(lambda raw: (raw.topic, raw.partition) not in gone)
        opened = sorted(gone & self._open)
        self._open -= gone
        self._paused -= gone
        for table in (self._delivered, self._committed, self._counts, self._ends):
            for partition in gone:
                table.pop(partition, None)
        self._batch = [item for item in self._batch if (item.topic, item.partition) not in gone]
        if self._arrow is not None and (self._arrow.topic, self._arrow.partition) in gone:
            self._arrow = None
        if opened:
            with long_calls.call("close"):
                self._checked_task.close(opened)
        for partition in gone:
            # Another owner may be far beyond this offset when the partition comes back.
            self._context.seeks.pop(partition, None)

    def lag(self) -> int | None:
        """Return the number of uncommitted records of the task's partitions, or None if it is not
        known now. Brokers are not asked: their consumer knows the end offsets it was told last."""
        consumer = self._consumer
        if consumer is None or isinstance(consumer, KnowsEnds):
            return self._known_lag()
        held = consumer.assignment()
        try:
            ends = self._transport.record_log.end_offsets(sorted({topic for topic, _ in held}))
            committed = {**self._read_committed(), **self._committed}
        except TransportError:
            return None
        lags: list[int] = [max(0, ends.get(each, 0) - committed.get(each, 0)) for each in held]
        return sum(lags)

    def _known_lag(self) -> int | None:
        consumer = self._consumer
        if not isinstance(consumer, KnowsEnds):
            return None
        ends, read_to = consumer.known_ends(), consumer.known_positions()
        waiting = {(raw.topic, raw.partition) for raw in self._waiting.records}
        held, lag = self._checked_consumer.assignment(), 0
        for place in held:
            end, count = self._ends.get(place, (self._delivered.get(place), 0))
            count += sum(records for _, records in self._counts.get(place, ()))
            pending = None if place in waiting else count
            found = partition_lag(
                ends.get(place), self._committed.get(place), end, pending, read_to.get(place)
            )
            if found is None:
                return None
            lag += found
        return lag if held else None  # the task has not joined yet, or a rebalance is under way

    def measured(self) -> Measured:
        """Return what was measured. A lag to be looked up is left out: `headgate up` does that."""
        consumer = self._consumer
        held = None if consumer is None else len(consumer.assignment())
        return self._meter.read_sink(self._errors.counts.read(), self._known_lag(), held)

    def close(self) -> None:
        task, consumer = self._task, self._consumer
        if task is not None:
            if self._open:
                call_quietly("close", lambda: task.close(sorted(self._open)), self._spec)
            call_quietly("stop", task.stop, self._spec)
        if consumer is not None:
            # Leaving revokes the partitions, which were committed before. The machine has ended.
            quietly(lambda: consumer.on_rebalance(lambda _g: None, lambda _g: None), self._spec)
            quietly(consumer.close, self._spec)
            self._consumer = None  # the consumer must not be used any more
        quietly(self._letters.close, self._spec)
        quietly(self._transport.close, self._spec)
