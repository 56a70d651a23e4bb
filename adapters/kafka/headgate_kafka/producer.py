"""A source task's producer, transactional or plain.

Transactional ones have no delivery callbacks, unless places are kept: one that runs while a fatal
error is pending hides it. Whether a transaction stands is told by its commit alone.

What librdkafka cannot do: a record with timestamp 0 gets the time of sending.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.ports import (
    Ack,
    FencedError,
    ProducerRecord,
    RecordMetadata,
    RefusedError,
    TransactionOverError,
    TransportError,
    UnknownTopicError,
)
from headgate_kafka.connecting import connect
from headgate_kafka.failures import (
    NO_RIGHT,
    UNKNOWN_TOPIC,
    Contact,
    is_fenced,
    kafka_error,
    real_error,
)

INIT_MS: Final = 30_000
COMMIT_MS: Final = 30_000
"""Of brokers that do not answer, or take no record."""
FLUSH_S: Final = 1.0
"""Between two looks whether records go out."""
CLOSE_MS: Final = 5_000
QUEUE_MS: Final = 60_000
"""A full queue that does not move for so long: the brokers are away."""
ASK_S: Final = 15.0
MADE_MS: Final = 5_000
"""So long a topic is awaited that brokers may be making."""
DEFAULTS: Final = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
"""Unless the user has set them; measured best for transactions of a few thousand records."""
TRANSACTION_TIMEOUT_MS: Final = 60_000
_ABORTED: Final = frozenset({"PrepareEpochFence", "PrepareAbort", "CompleteAbort"})
"""Of a transaction that took too long; who initialises a producer leaves its id ``Empty``."""
_MAYBE_SOON: Final = UNKNOWN_TOPIC | {KafkaError.LEADER_NOT_AVAILABLE}
_ASK_WAIT_S: Final = 0.1
_QUEUE_WAIT_S: Final = 0.01
_NOW: Final = 0
"""The timestamp for which librdkafka takes the time of sending."""
_ANY: Final = -1
"""The partition that the partitioner decides."""

Offsets = Sequence[tuple[bytes, bytes | None]]


class OffsetTopics(Protocol):
    """Where the source offsets of a transaction go, besides into it."""

    @property
    def topic(self) -> str: ...

    def before(self, offsets: Offsets) -> None:
        """Before they are part of the transaction; raises `TransportError`."""
        ...

    def after(self, offsets: Offsets) -> None:
        """After it was committed; never raises."""
        ...


class _Base(ABC):
    """What both kinds share: partitions checked before anything is sent, patience."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        partitions: Callable[[str], int],
        said: Callable[[str], None],
    ) -> None:
        self._partitions = partitions
        self._contact = Contact({**DEFAULTS, **settings}, said)
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._sent = 0
        """Records, in all."""
        self._keeps_places = False
        self._reported: list[tuple[int, RecordMetadata]] = []
        self._places: list[tuple[int, RecordMetadata]] = []

    def keep_places(self) -> None:
        self._keeps_places = True

    def places(self) -> Sequence[tuple[int, RecordMetadata]]:
        found, self._places = self._places, []
        return found

    def _settle_places(self) -> None:
        """What was reported has become durable."""
        self._places += self._reported
        self._reported.clear()

    def _note_place(self, number: int, message: Message) -> None:
        place = RecordMetadata(
            message.topic() or "", message.partition() or 0, message.offset() or 0
        )
        self._reported.append((number, place))

    def _check(self, records: Sequence[ProducerRecord]) -> dict[str, int]:
        """The partition of records without key and partition, by topic.

        Raises:
            UnknownTopicError, ValueError: as `Producer.send`.
        """
        counts = self._counts
        turns: dict[str, int] = {}
        for record in records:
            topic, wanted = record.topic, record.partition
            count = counts.get(topic)
            if count is None:
                count = counts[topic] = self._count(topic)
            if wanted is None:
                if record.key is None and topic not in turns:
                    turns[topic] = (self._turns.get(topic, _ANY) + 1) % count
            elif wanted >= count:
                # The topic may have grown; and the client has to hear of it, too.
                count = counts[topic] = max(count, self._ask(topic)[0])
            if wanted is not None and not 0 <= wanted < count:
                raise ValueError(f"partition {wanted} of {topic}, expected 0 to {count - 1}")
        self._turns.update(turns)
        return turns

    def _count(self, topic: str) -> int:
        """How many partitions; of a topic that is not there once the brokers have made it, as they
        do for Java's producer, which asks for metadata (``auto.create.topics.enable``)."""
        try:
            return self._partitions(topic)
        except UnknownTopicError:
            until = time.monotonic() + MADE_MS / 1000
            while True:
                count, error = self._ask(topic)
                if count:
                    return count
                if error not in _MAYBE_SOON or time.monotonic() > until:
                    raise
                time.sleep(_ASK_WAIT_S)

    def _ask(self, topic: str) -> tuple[int, int | None]:
        """How many partitions the client is told now, and the code of an error; 0 and None: there
        is no client yet.

        Raises:
            TransportError: nobody answered.
        """
        client = self._asking()
        if client is None:
            return 0, None
        try:
            told = client.list_topics(topic, ASK_S).topics[topic]
        except (KafkaException, SystemError) as failed:
            error = kafka_error(failed)
            raise self._contact.error(f"topic {topic!r} could not be asked for", error) from None
        return len(told.partitions), None if told.error is None else told.error.code()

    @abstractmethod
    def _asking(self) -> Producer | None: ...

    def _make_room(self, client: Producer, since: float) -> None:
        """The queue is full: wait a little for it to empty."""
        client.poll(_QUEUE_WAIT_S)
        if time.monotonic() - since > QUEUE_MS / 1000:
            raise self._contact.error(
                f"the queue of unsent records is full and did not move for {QUEUE_MS} ms"
            )


class TransactionalProducer(_Base):
    """Used by one thread.

    Kafka does not know the group membership it is initialised for, so `init` never raises
    `MembershipEndedError`: what guards a zombie that wakes up is the recheck after it, reading the
    config topic to its end (KIP-618).

    Args:
        describe: what the coordinator says of a transactional id, such as ``CompleteAbort``; None
            when it cannot be asked.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        transactional_id: str,
        offset_topics: OffsetTopics,
        partitions: Callable[[str], int],
        describe: Callable[[str], str | None],
        said: Callable[[str], None],
    ) -> None:
        super().__init__(settings, partitions, said)
        self._id = transactional_id
        self._offset_topics = offset_topics
        self._describe = describe
        self._timeout_ms = int(settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
        self._client: Producer | None = None
        self._ready = False
        self._began_at: float | None = None
        """When the open transaction began."""
        self._ending: Offsets | None = None
        """Offsets that are part of the transaction; its commit is under way."""
        self._over: Exception | None = None
        """Why this producer can do nothing any more."""
        self._refused = ""
        """Why the open transaction must not be committed."""

    def init(self) -> None:
        """
        Raises:
            RefusedError: besides what the port says; the right to the transactional id is missing.
        """
        if self._ready or self._over is not None:
            self._drop()
        if self._client is None:
            self._client = Producer(self._contact.settings)
            if not connect(self._client, self._offset_topics.topic):
                self._raise_refusal(self._client)
        try:
            self._client.init_transactions(INIT_MS / 1000)
        except (KafkaException, SystemError) as failed:
            error = kafka_error(failed)
            if error is None or not error.retriable():
                self._drop()
            told = self._contact.error(f"{self._id} could not be initialised", error)
            never = error is not None and error.code() in NO_RIGHT
            raise (RefusedError(str(told)) if never else told) from None
        self._ready = True

    def _raise_refusal(self, client: Producer) -> None:
        """If the brokers let this client not in: what is asked of it next would wait in vain."""
        with suppress(KafkaException, SystemError):
            client.poll(0)
        if self._contact.refusal:
            self._drop()
            raise self._contact.error(f"{self._id} could not be initialised")

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """
        Raises:
            FencedError, TransactionOverError, TransportError: besides what the port says; some
            records may be in the transaction: it can only be aborted.
        """
        turns = self._check(records)
        client = self._begun()
        produce = client.produce
        since = 0.0
        keeps, first = self._keeps_places, self._sent
        for index, record in enumerate(records):
            key, wanted = record.key, record.partition
            if wanted is None:
                wanted = _ANY if key is not None else turns[record.topic]
            while True:
                try:
                    if keeps or record.headers or record.timestamp_ms is not None:
                        report = partial(self._report, first + index) if keeps else None
                        _produce_whole(client, record, wanted, report)
                    else:
                        produce(record.topic, record.value, key, wanted)
                    break
                except BufferError:
                    since = since or time.monotonic()
                    self._wait_for_room(client, since)
                except (KafkaException, SystemError) as failed:
                    raise self._failed(failed, f"a record for {record.topic}") from None
            since = 0.0
        self._sent += len(records)
        self._try(lambda: client.poll(0))

    def acks(self) -> Sequence[Ack]:
        raise ValueError(f"{self._id} is transactional: its records are committed")

    def commit(self, offsets: Offsets) -> None:
        if not offsets and self._began_at is None:
            self._checked()
            return
        if self._refused:
            raise TransactionOverError(f"{self._refused}; abort it")
        client = self._checked()
        if self._ending is None:
            # Tombstones in the global topic first, and awaited: a tombstone here would else
            # uncover what is there. Nothing of it may run into the transaction.
            self._offset_topics.before(offsets)
            client = self._begun()
            topic = self._offset_topics.topic
            for key, value in offsets:
                self._put(client, partial(client.produce, topic, value, key))
            self._ending = offsets
        self._finish(client)
        offsets, self._ending, self._began_at = self._ending, None, None
        self._settle_places()
        self._offset_topics.after(offsets)

    def _finish(self, client: Producer) -> None:
        """Commit what may still be on its way to slow brokers: the transaction's own limit counts,
        as in Java. librdkafka goes on where it was when the time was up."""
        now = time.monotonic()
        until = max(now + COMMIT_MS / 1000, (self._began_at or now) + self._timeout_ms / 1000)
        while True:
            step_s = max(0.0, min(COMMIT_MS / 1000, until - time.monotonic()))
            try:
                client.commit_transaction(step_s)
                return
            except (KafkaException, SystemError) as failed:
                error = kafka_error(failed)
                late = error is not None and error.code() == KafkaError._TIMED_OUT
                if not late or time.monotonic() >= until:
                    raise self._failed(failed, "the transaction") from None

    def abort(self) -> None:
        client = self._client
        if client is None or self._began_at is None or self._over is not None:
            self._ended()
            return
        try:
            client.abort_transaction(COMMIT_MS / 1000)
        except (KafkaException, SystemError) as failed:
            problem = self._failed(failed, "the abort")
            if isinstance(problem, TransportError):
                raise problem from None
        self._ended()

    def close(self) -> None:
        client = self._client
        if client is not None and self._began_at is not None and self._over is None:
            # Else it stays open until it is fenced or times out.
            with suppress(KafkaException, SystemError):
                client.abort_transaction(CLOSE_MS / 1000)
        self._drop()

    def _asking(self) -> Producer | None:
        return self._client if self._ready else None

    def _checked(self) -> Producer:
        if self._over is not None:
            raise self._over
        if self._client is None or not self._ready:
            raise FencedError(f"{self._id} was not initialised by this producer")
        return self._client

    def _begun(self) -> Producer:
        client = self._checked()
        if self._began_at is None:
            self._try(client.begin_transaction)
            self._began_at = time.monotonic()
        return client

    def _put(self, client: Producer, produce: Callable[[], object]) -> None:
        since = time.monotonic()
        while True:
            try:
                self._try(produce)
                return
            except BufferError:
                self._wait_for_room(client, since)

    def _wait_for_room(self, client: Producer, since: float) -> None:
        try:
            self._try(partial(self._make_room, client, since))
        except TransportError as error:
            self._refused = f"{error}; some records of a batch are not in the transaction"
            raise

    def _try(self, call: Callable[[], object]) -> None:
        try:
            call()
        except (KafkaException, SystemError) as failed:
            raise self._failed(failed, "the transaction") from None

    def _failed(self, failed: BaseException, what: str) -> Exception:
        """What a failure of the client is for the caller; remembers it where it is the end."""
        assert self._client is not None
        error = real_error(self._client, kafka_error(failed))
        what = f"{self._id}: {what}"
        if error is not None and is_fenced(error):
            self._over = self._expired() or FencedError(
                f"{self._id} was shut out: a later producer has it ({error.str()})"
            )
        elif error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
            self._over = TransactionOverError(str(self._contact.error(what, error)))
        elif error is not None and error.txn_requires_abort():
            # After the abort librdkafka would refuse the next one too.
            with suppress(KafkaException, SystemError):
                self._client.abort_transaction(CLOSE_MS / 1000)
            told = self._contact.error(
                f"{what} was aborted: a record was refused, for instance as larger than the "
                "topic's max.message.bytes or for want of the right to write",
                error,
                right=f"Write on Topic:{' or Topic:'.join(sorted(self._counts))}",
            )
            self._over = TransactionOverError(str(told))
        elif error is None or error.retriable() or error.code() == KafkaError._TIMED_OUT:
            return self._contact.error(what, error)
        else:
            self._refused = str(self._contact.error(what, error))
            return TransactionOverError(f"{self._refused}; abort it")
        return self._over

    def _expired(self) -> TransactionOverError | None:
        """The broker aborts a transaction that takes too long and shuts its producer out. For the
        client that looks as if another had taken the id."""
        if self._began_at is None:
            return None
        took_ms = int((time.monotonic() - self._began_at) * 1000)
        if took_ms < self._timeout_ms:
            return None
        state = self._describe(self._id)
        if state is not None and state not in _ABORTED:
            return None
        return TransactionOverError(
            f"{self._id}: the transaction was open for {took_ms} ms, longer than its "
            f"transaction.timeout.ms of {self._timeout_ms}, and the broker aborted it. Nobody shut "
            "this task out: commit more often (transaction.boundary, "
            "transaction.boundary.interval.ms, smaller batches) or raise "
            "producer.override.transaction.timeout.ms"
        )

    def _ended(self) -> None:
        self._began_at, self._ending, self._refused = None, None, ""
        self._reported.clear()

    def _report(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._note_place(number, message)

    def _drop(self) -> None:
        # Closing it would try to abort what is not its own any more.
        self._client, self._ready, self._over = None, False, None
        self._ended()


class PlainProducer(_Base):
    """Used by one thread."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        partitions: Callable[[str], int],
        said: Callable[[str], None],
    ) -> None:
        super().__init__(settings, partitions, said)
        self._client_id = str(settings.get("client.id", ""))
        self._client: Producer | None = None
        self._acked = 0
        self._failures: dict[int, str] = {}

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
        turns = self._check(records)
        client = self._made()
        for record in records:
            wanted = record.partition
            if wanted is None:
                wanted = _ANY if record.key is not None else turns[record.topic]
            since = time.monotonic()
            report = partial(self._report, self._sent)
            while True:
                try:
                    _produce_whole(client, record, wanted, report)
                    break
                except BufferError:
                    self._make_room(client, since)
                except KafkaException as failed:
                    self._report(self._sent, kafka_error(failed), None)
                    break
            self._sent += 1

    def acks(self) -> Sequence[Ack]:
        if self._acked == self._sent:
            return []
        try:
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
        librdkafka gives up itself. A batch that is given up here is sent once more in whole."""
        fewest, moved_at = self._sent + 1, time.monotonic()
        while left := client.flush(FLUSH_S):
            now = time.monotonic()
            if left < fewest:
                fewest, moved_at = left, now
            elif now - moved_at > COMMIT_MS / 1000:
                raise self._contact.error(
                    f"{left} records are not acknowledged, and none was for {COMMIT_MS} ms; they "
                    "are kept"
                )

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
            self._client = Producer({**self._contact.settings, **told})
        return self._client

    def _report(self, number: int, error: KafkaError | None, message: Message | None) -> None:
        if error is not None:
            lacks = ""
            if error.code() in NO_RIGHT:
                right = "" if message is None else f"Write on Topic:{message.topic()}"
                lacks = f"; {self._contact.lacking(error, right)}"
            self._failures[number] = f"{error.str()} ({error.name()}){lacks}"
        elif message is not None:
            self._note_place(number, message)


def _produce_whole(
    client: Producer, record: ProducerRecord, partition: int, report: Any = None
) -> None:
    """With everything that a record may have; slower."""
    # By place (callback, on_delivery, timestamp, headers): names cost half as much again. A
    # callback of None would hide on_delivery, which is but another name for it.
    timestamp = record.timestamp_ms
    stamp = _NOW if timestamp is None else timestamp
    if record.headers:
        headers: Any = list(record.headers)
        client.produce(
            record.topic, record.value, record.key, partition, report, report, stamp, headers
        )
    else:
        client.produce(record.topic, record.value, record.key, partition, report, report, stamp)
