"""A source task's producer without transactions: what of it is durable is told record by record."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.ports import Ack, ProducerRecord, TransportError
from headgate_kafka.failures import NO_RIGHT, UNKNOWN_TOPIC, kafka_error
from headgate_kafka.records.partition_choice import BY_KEY
from headgate_kafka.records.producer import (
    AGAIN_MAX,
    CLOSE_MS,
    COMMIT_MS,
    BaseProducer,
    Offsets,
)
from headgate_kafka.records.producing import described, produce_whole

FLUSH_S: Final = 1.0
"""Between two looks whether records go out."""
ALONE: Final = {"batch.num.messages": 1}
"""Settings of a client that sends each record in a request of its own."""


class PlainProducer(BaseProducer):
    """Used by one thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        partitions: Callable[[str], int],
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(settings, partitions, warn)
        self._warn = warn
        self._client_id = str(settings.get("client.id", ""))
        self._client: Producer | None = None
        self._acked = 0
        self._failures: dict[int, str] = {}
        self._misplaced: dict[int, tuple[ProducerRecord, KafkaError]] = {}
        """Records by number whose partition the client did not find; to be sent again."""
        self._alone = False
        """Each record is sent in a request of its own."""
        self._crowded: dict[int, ProducerRecord] = {}
        """Records by number of batches that a broker refused as too large; to be sent alone."""

    def connect(self) -> None:
        """Is done with the first record."""

    def init(self) -> None:
        raise ValueError(f"producer {self._client_id} has no transactional id to initialise")

    def commit(self, offsets: Offsets) -> None:
        raise ValueError(f"producer {self._client_id} has no transactional id to commit under")

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """
        Raises:
            TransportError: besides what the port says; the queue stayed full. What of `records`
            was taken is not known to the caller: the task cannot go on.
        """
        turns = self._choice.choose(records)
        client = self._made()
        for record in records:
            self._produce(client, self._sent, record, _partition(record, turns))
            self._sent += 1

    def _produce(
        self, client: Producer, number: int, record: ProducerRecord, partition: int
    ) -> None:
        since = time.monotonic()
        report = partial(self._report, number, record)
        while True:
            try:
                produce_whole(client, record, partition, report)
                return
            except BufferError:
                self._make_room(client, since)
            except KafkaException as failed:
                self._report(number, record, kafka_error(failed), None)
                return

    def acks(self) -> Sequence[Ack]:
        if self._acked == self._sent:
            return []
        try:
            self._flush(self._made())
            again = 0
            while self._misplaced or self._crowded:
                if self._crowded:
                    self._send_alone()
                if self._misplaced:
                    self._send_misplaced(again)
                    again += 1
                self._flush(self._made())
        except (KafkaException, SystemError) as failed:
            raise self._contact.error("records", kafka_error(failed)) from None
        found: list[Ack] = []
        for index in sorted(self._failures):
            if index > self._acked:
                found.append(Ack(self._acked, index - 1))
            found.append(Ack(index, index, self._failures[index]))
            self._acked = index + 1
        if self._acked < self._sent:
            found.append(Ack(self._acked, self._sent - 1))
        self._acked = self._sent
        self._failures.clear()
        self._settle_places()
        return found

    def _flush(self, client: Producer) -> None:
        """Wait as long as records go out, however slowly: what is too old (delivery.timeout.ms)
        librdkafka gives up itself. A batch that is given up here is sent once more in whole, but
        by no task that brokers do not let in."""
        fewest, moved_at = self._sent + 1, time.monotonic()
        while left := client.flush(FLUSH_S):
            now = time.monotonic()
            if left < fewest:
                fewest, moved_at = left, now
            elif self._contact.refusal:
                raise self._contact.error(f"{left} records are not acknowledged")
            elif now - moved_at > COMMIT_MS / 1000:
                raise self._contact.error(
                    f"{left} records are not acknowledged, and none was for {COMMIT_MS} ms; they "
                    "are kept"
                )

    def _send_misplaced(self, again: int) -> None:
        """To partitions that there are now, under their old numbers and in their order.

        Raises:
            TransportError: a topic is gone, or changes all the time. They are kept: offsets must
                not go past records that another start of the task would deliver.
        """
        topics = {record.topic for record, _ in self._misplaced.values()}
        if again == AGAIN_MAX:
            _, error = next(iter(self._misplaced.values()))
            what = f"partitions of {', '.join(sorted(topics))} come and go"
            raise self._contact.error(what, error)
        turns = {topic: self._choice.choose_again(topic) for topic in sorted(topics)}
        for number in sorted(self._misplaced):
            record, error = self._misplaced.pop(number)
            partition = _partition(record, turns)
            if not self._choice.exists(record.topic, partition):
                self._fail(number, error, record)
                continue
            try:
                self._produce(self._made(), number, record, partition)
            except TransportError:
                self._misplaced[number] = record, error
                raise

    def _send_alone(self) -> None:
        """Send each record of the refused batches by itself, and all that follow.

        Brokers hold a whole batch against ``max.message.bytes`` of the topic. Java's producer parts
        such a batch, librdkafka refuses all its records. Each that is small enough is delivered.

        Raises:
            TransportError: brokers are away. What is left of them is kept.
        """
        if not self._alone:
            topics = ", ".join(sorted({record.topic for record in self._crowded.values()}))
            self._warn(
                f"producer {self._client_id}: brokers refuse batches for {topics} as larger than "
                "max.message.bytes, so each record is sent alone, which is slow. Set "
                "producer.override.batch.size below that limit, or raise the limit"
            )
            self._alone, self._client = True, None
        turns = self._choice.choose(list(self._crowded.values()))
        client = self._made()
        for number in sorted(self._crowded):
            record = self._crowded[number]
            self._produce(client, number, record, _partition(record, turns))
            del self._crowded[number]

    def abort(self) -> None:
        """What was sent cannot be taken back."""

    def close(self) -> None:
        if self._client is not None:
            with suppress(KafkaException, SystemError):
                self._client.flush(CLOSE_MS / 1000)
            self._client = None

    def _asking(self) -> Producer:
        return self._made()

    def _made(self) -> Producer:
        if self._client is None:
            told = {"delivery.report.only.error": not self._keeps_places}
            alone = ALONE if self._alone else {}
            self._client = Producer({**self._contact.settings, **told, **alone})
        return self._client

    def _report(
        self,
        number: int,
        record: ProducerRecord,
        error: KafkaError | None,
        message: Message | None,
    ) -> None:
        if error is None:
            if message is not None:
                self._note_place(number, message)
        elif error.code() in UNKNOWN_TOPIC:
            self._misplaced[number] = record, error
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and message and not self._alone:
            self._crowded[number] = record
        else:
            self._fail(number, error, record)

    def _fail(self, number: int, error: KafkaError, record: ProducerRecord) -> None:
        lacks = ""
        if error.code() in NO_RIGHT:
            lacks = f"; {self._contact.lacking(error, f'Write on Topic:{record.topic}')}"
        told = f"{described(record, error)}: {error.str()} ({error.name()}){lacks}"
        self._failures[number] = told


def _partition(record: ProducerRecord, turns: Mapping[str, int]) -> int:
    if record.partition is not None:
        return record.partition
    return turns[record.topic] if record.key is None else BY_KEY
