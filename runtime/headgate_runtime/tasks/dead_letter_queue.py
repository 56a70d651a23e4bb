"""The dead letter queue of a sink task, and how the task's code reports records to it (KIP-610).

Letters are sent at once, and consumer offsets wait for them. So a kill between the two writes a
letter twice, and never loses one. Source: DeadLetterQueueReporter, WorkerErrantRecordReporter
(4.3.1).

Differs: if a dead letter cannot be written, the task fails. Connect logs that and goes on, unless
the task itself reported the record.
"""

import threading

from headgate.connector.api import DataError, SinkRecord
from headgate.connector.converters import TaskConverters
from headgate.connector.dead_letters import SINK_TASK
from headgate.connector.error_handling import LETTERS_REPLICAS, LETTERS_TOPIC, ErrorStage
from headgate.ports import ConsumerRecord, Producer, ProducerRecord, RefusedError
from headgate.task.messages import TaskSpec
from headgate_runtime.tasks.record_errors import RecordErrors
from headgate_runtime.transports.select import TaskTransport

PARTITIONS = 1
"""Partitions of a queue topic that is created. Source: DLQ_NUM_DESIRED_PARTITIONS."""


class DeadLetterQueue:
    """A connector's dead letter topic, to which one task writes. May be used from any thread."""

    def __init__(self, spec: TaskSpec, transport: TaskTransport, errors: RecordErrors) -> None:
        self._spec = spec
        self._log = transport.record_log
        self._settings = errors.settings
        self._counts = errors.counts
        self._producer: Producer | None = None
        self._mutex = threading.RLock()
        self._sent = 0
        self._settled = 0

    @property
    def topic(self) -> str:
        return self._settings.topic

    def open(self) -> None:
        """Create the topic if it does not exist. Do nothing if no queue is named.

        Raises:
            RefusedError: these settings or rights do not allow it.
            TransportError: the log could not be reached.
        """
        if not self.topic:
            return
        try:
            self._log.create_topic(self.topic, PARTITIONS, replicas=self._settings.replicas)
        except RefusedError as error:
            raise RefusedError(
                f"Could not initialize dead letter queue with topic={self.topic}: {error}. "
                f"{LETTERS_REPLICAS} is {self._settings.replicas}; it may not be more than there "
                "are brokers"
            ) from error
        self._producer = self._log.producer(f"connector-dlq-producer-{self._spec.task}", None, None)

    def send(self, letter: ProducerRecord | None) -> int:
        """Send a letter. Return a number for `is_settled`. Without a letter or a queue nothing is
        sent."""
        with self._mutex:
            if letter is not None and self._producer is not None:
                self._producer.send([letter])
                self._sent += 1
                self._counts.letters(1)
            return self._sent

    def is_settled(self, number: int) -> bool:
        return self._settled >= number

    def settle(self) -> None:
        """Return when all letters are in the log.

        Raises:
            DataError: the log has refused a letter for good.
            TransportError: the log could not be reached. Letters are kept; call again.
        """
        with self._mutex:
            if self._producer is None or self._settled == self._sent:
                return
            refused = [ack.error for ack in self._producer.acks() if ack.error is not None]
            if refused:
                self._counts.letters(0, refused=len(refused))
                raise DataError(
                    f"{len(refused)} records could not be written to the dead letter queue "
                    f"{self.topic}: {refused[0]}. Their offsets are not committed; mend the topic, "
                    f"or remove {LETTERS_TOPIC}"
                )
            self._settled = self._sent

    def close(self) -> None:
        with self._mutex:
            if self._producer is not None:
                try:
                    self.settle()
                finally:
                    self._producer.close()


class ReportedRecord:
    """The future that `errant_record_reporter().report` returns."""

    def __init__(self, queue: DeadLetterQueue, number: int) -> None:
        self._queue = queue
        self._number = number

    def done(self) -> bool:
        return self._queue.is_settled(self._number)

    def result(self, timeout: float | None = None) -> None:
        """Wait until the record is settled. It takes as long as the log's client waits, whatever
        `timeout` says."""
        if not self.done():
            self._queue.settle()


class ErrantRecords:
    """The errant record reporter of a sink task. Source: WorkerErrantRecordReporter.

    Args:
        converters: convert records that have no original. None: the task reports none.
    """

    def __init__(
        self, queue: DeadLetterQueue, errors: RecordErrors, converters: TaskConverters | None
    ) -> None:
        self._queue = queue
        self._errors = errors
        self._converters = converters
        self._mutex = threading.Lock()
        self._count = 0
        self._detail = ""

    def report(self, record: SinkRecord, error: BaseException) -> ReportedRecord:
        raw = record.original or self._raw(record)
        letter = self._errors.sink_letter(raw, error, ErrorStage.TASK_PUT, SINK_TASK)
        number = self._queue.send(letter)
        if not self._errors.settings.tolerate:
            raise DataError(f"Tolerance exceeded in error handler: {error}") from error
        place = f"{raw.topic}-{raw.partition}, offset {raw.offset}"
        with self._mutex:
            self._count += 1
            self._detail = self._detail or f"reported by the task: {error} ({place})"
        return ReportedRecord(self._queue, number)

    def take_told(self) -> tuple[int, str]:
        """Return how many records were reported since the last call, and why the first was."""
        with self._mutex:
            count, detail = self._count, self._detail
            self._count, self._detail = 0, ""
        return count, detail

    def _raw(self, record: SinkRecord) -> ConsumerRecord:
        """Convert a record that the task has made itself to bytes."""
        convert, topic = self._converters, record.topic
        if convert is None:
            raise ValueError(
                f"the record reported at {topic}-{record.partition} offset {record.offset} has no "
                "original, expected one: a sink of planned batches reports records as it read them"
            )
        headers = convert.header.from_connect(topic, record.headers, record.header_schemas)
        return ConsumerRecord(
            topic,
            record.partition,
            record.offset,
            None
            if record.key is None
            else convert.key.from_connect(topic, record.key, record.key_schema),
            convert.value.from_connect(topic, record.value, record.value_schema),
            headers,
            record.timestamp_ms,
        )
