"""A source task's transactional producer, and what it shares with a plain one.

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

from headgate.log.value_columns import records_of
from headgate.ports import (
    Ack,
    FencedError,
    Headers,
    ProducerRecord,
    RecordMetadata,
    RefusedError,
    TransactionOverError,
    TransportError,
    ValueColumn,
)
from headgate_kafka.clients.let_go import letting_go
from headgate_kafka.clients.side_call import SideCall
from headgate_kafka.failures import (
    NO_RIGHT,
    REASON_S,
    UNDELIVERED,
    UNKNOWN_TOPIC,
    Contact,
    is_fenced,
    kafka_error,
    real_error,
)
from headgate_kafka.records.consumer import metadata_age_s
from headgate_kafka.records.first_contact import connect
from headgate_kafka.records.partition_choice import BY_KEY, PartitionChoice
from headgate_kafka.records.producing import (
    NOW,
    REFUSED,
    REFUSED_SIZE,
    abort_when_sent,
    described,
    moved,
    placed,
    produce_values,
)

INIT_MS: Final = 30_000
COMMIT_MS: Final = 30_000
"""Time-out of a commit while brokers do not answer, or take no record."""
CLOSE_MS: Final = 5_000
QUEUE_MS: Final = 60_000
"""A full queue that does not move for so long: the brokers are away."""
AGAIN_MAX: Final = 3
"""So often a partition is chosen again that the client refuses."""
DEFAULTS: Final = {"linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
"""Unless the user has set them; measured best for transactions of a few thousand records."""
TRANSACTION_TIMEOUT_MS: Final = 60_000
_ABORTED: Final = frozenset({"PrepareEpochFence", "PrepareAbort", "CompleteAbort"})
"""States of a transaction that took too long; initialising a producer leaves its id ``Empty``."""
_NOT_TRIED: Final = frozenset({KafkaError.OPERATION_NOT_ATTEMPTED})
"""Error of a partition when the coordinator refused another, which is gone or not writable."""
_QUEUE_WAIT_S: Final = 0.01

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


class BaseProducer(ABC):
    """What both kinds share: partitions checked before anything is sent, patience."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        partitions: Callable[[str], int],
        warn: Callable[[str], None],
    ) -> None:
        self._contact = Contact({**DEFAULTS, **settings}, warn)
        age_s = metadata_age_s(settings)
        self._choice = PartitionChoice(partitions, self._contact, self._asking, age_s)
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

    @abstractmethod
    def send(self, records: Sequence[ProducerRecord]) -> None: ...

    def send_values(self, column: ValueColumn) -> None:
        self.send(records_of(column))

    @abstractmethod
    def commit(self, offsets: Offsets) -> None: ...

    def begin_commit(self, offsets: Offsets) -> Callable[[], None] | None:
        self.commit(offsets)
        return None

    def _settle_places(self) -> None:
        """What was reported has become durable."""
        self._places += self._reported
        self._reported.clear()

    def _note_place(self, number: int, message: Message) -> None:
        place = RecordMetadata(
            message.topic() or "", message.partition() or 0, message.offset() or 0
        )
        self._reported.append((number, place))

    @abstractmethod
    def _asking(self) -> Producer | None: ...

    def _make_room(self, client: Producer, since: float) -> None:
        """The queue is full: wait a little for it to empty."""
        client.poll(_QUEUE_WAIT_S)
        if time.monotonic() - since > QUEUE_MS / 1000:
            raise self._contact.error(
                f"the queue of unsent records is full and did not move for {QUEUE_MS} ms"
            )


class TransactionalProducer(BaseProducer):
    """Used by one thread at a time.

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
        warn: Callable[[str], None],
    ) -> None:
        super().__init__(settings, partitions, warn)
        self._id = transactional_id
        self._offset_topics = offset_topics
        self._describe = describe
        self._timeout_ms = int(settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
        self._client: Producer | None = None
        self._ready = False
        self._in_touch = False
        """A broker has answered this client."""
        self._began_at: float | None = None
        """When the open transaction began."""
        self._ending: Offsets | None = None
        """Offsets that are part of the transaction; its commit is under way."""
        self._over: Exception | None = None
        """Why this producer can do nothing any more."""
        self._refused = ""
        """Why the open transaction must not be committed."""
        self._beside = SideCall()

    @letting_go
    def connect(self) -> None:
        self._get_in_touch()

    def _get_in_touch(self) -> Producer:
        client = self._client = self._client or Producer(self._contact.settings)
        if not self._in_touch:
            self._in_touch = connect(client, self._offset_topics.topic)
        return client

    @letting_go
    def init(self) -> None:
        """
        Raises:
            FencedError: another took the id at the same time.
            RefusedError: besides what the port says; the right to the transactional id is missing,
                or the brokers do not take a setting.
        """
        if self._ready or self._over is not None:
            self._drop()
        client = self._get_in_touch()
        if not self._in_touch:
            self._raise_refusal(client)
        try:
            client.init_transactions(INIT_MS / 1000)
        except (KafkaException, SystemError) as failed:
            raise self._uninitialised(real_error(client, kafka_error(failed))) from None
        self._ready = True

    def _uninitialised(self, error: KafkaError | None) -> Exception:
        """What librdkafka cannot wait for is fatal; time that was too short is retriable, with what
        it waited for as the code, such as CONCURRENT_TRANSACTIONS."""
        if error is None or not error.retriable():
            self._drop()
        what = f"{self._id} could not be initialised"
        if error is None:
            return self._contact.error(what)
        if is_fenced(error):
            return FencedError(f"{what}: another took the id at the same time ({error.str()})")
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            what = (
                f"{what}: its transaction.timeout.ms of {self._timeout_ms} is above the brokers' "
                "transaction.max.timeout.ms. Lower producer.override.transaction.timeout.ms "
                "(in the worker's properties producer.transaction.timeout.ms), or raise theirs"
            )
        told = self._contact.error(what, error)
        never = error.fatal() or error.code() in NO_RIGHT
        return RefusedError(str(told)) if never else told

    def _raise_refusal(self, client: Producer) -> None:
        """If the brokers let this client not in: what is asked of it next would wait in vain."""
        with suppress(KafkaException, SystemError):
            client.poll(0)
        if self._contact.refusal:
            self._drop()
            raise self._contact.error(f"{self._id} could not be initialised")

    @letting_go
    def send(self, records: Sequence[ProducerRecord]) -> None:
        """
        Raises:
            FencedError, TransactionOverError, TransportError: besides what the port says; some
            records may be in the transaction: it can only be aborted.
        """
        turns = self._choice.choose(records)
        client = self._begun()
        produce = client.produce
        since, again = 0.0, 0
        keeps, first = self._keeps_places, self._sent
        report = None
        same_headers: Headers = ()
        as_list: list[Any] = []
        for index, record in enumerate(records):
            key, wanted, headers = record.key, record.partition, record.headers
            if wanted is None:
                wanted = BY_KEY if key is not None else turns[record.topic]
            if headers is not same_headers:
                same_headers, as_list = headers, list(headers)
            stamp = record.timestamp_ms or NOW
            if keeps:
                report = partial(self._report, first + index)
            while True:
                try:
                    # By place, as in `produce_whole`; records often share their headers.
                    if headers:
                        produce(
                            record.topic, record.value, key, wanted, report, report, stamp, as_list
                        )
                    elif keeps or stamp:
                        produce(record.topic, record.value, key, wanted, report, report, stamp)
                    else:
                        produce(record.topic, record.value, key, wanted)
                    break
                except BufferError:
                    since = since or time.monotonic()
                    self._wait_for_room(client, since)
                except (KafkaException, SystemError) as failed:
                    self._choose_again(failed, record, index, again, turns)
                    again += 1
                    wanted = BY_KEY if key is not None else turns[record.topic]
            since, again = 0.0, 0
        self._sent += len(records)
        self._try(lambda: client.poll(0))

    @letting_go
    def send_values(self, column: ValueColumn) -> None:
        """As `send`, with less to do for each."""
        if self._keeps_places or not column.values:
            super().send_values(column)
            return
        topic, key, wanted = column.topic, column.key, column.partition
        turns = self._choice.choose([ProducerRecord(topic, wanted, key, None)])
        client = self._begun()
        since, again, at = 0.0, 0, 0
        while at < column.count:
            partition = wanted
            if partition is None:
                partition = BY_KEY if key is not None else turns[topic]
            start = at
            at, failed = produce_values(client, column, start, partition)
            if at > start:
                since, again = 0.0, 0
            if isinstance(failed, BufferError):
                since = since or time.monotonic()
                self._wait_for_room(client, since)
            elif failed is not None:
                record = ProducerRecord(topic, wanted, key, column.values[at])
                self._choose_again(failed, record, at, again, turns)
                again += 1
        self._sent += column.count
        self._try(lambda: client.poll(0))

    def _choose_again(
        self,
        failed: BaseException,
        record: ProducerRecord,
        index: int,
        again: int,
        turns: dict[str, int],
    ) -> None:
        """For a record that the client refused: it is not in the transaction, which goes on if the
        record can be given another partition."""
        if again == AGAIN_MAX or not moved(failed, record):
            what = described(record, kafka_error(failed))
            raise placed(self._unsent(failed, what), index) from None
        try:
            turns[record.topic] = self._choice.choose_again(record.topic)
        except TransportError as error:
            raise self._incomplete(error) from None

    def acks(self) -> Sequence[Ack]:
        raise ValueError(f"{self._id} is transactional: its records are committed")

    @letting_go
    def commit(self, offsets: Offsets) -> None:
        client = self._complete(offsets)
        if client is not None:
            self._finish(client)
            self._committed()

    @letting_go
    def begin_commit(self, offsets: Offsets) -> Callable[[], None] | None:
        client = self._complete(offsets)
        if client is None:
            return None
        try:
            finished = self._beside.begin(partial(self._finish, client))
        except RuntimeError:  # no more threads: then nobody goes on meanwhile
            self._finish(client)
            self._committed()
            return None

        @letting_go
        def end() -> None:
            finished()
            self._committed()

        return end

    def _complete(self, offsets: Offsets) -> Producer | None:
        """All of it is with the client, which is to commit it; None: there is nothing to commit."""
        if not offsets and self._began_at is None:
            self._checked()
            return None
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
        return client

    def _committed(self) -> None:
        offsets, self._ending, self._began_at = self._ending, None, None
        self._settle_places()
        self._choice.settle()
        self._offset_topics.after(offsets or ())

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
                late = (
                    error is not None
                    and error.code() == KafkaError._TIMED_OUT
                    # Records that were given up for their age have the same code.
                    and not error.txn_requires_abort()
                )
                if not late or time.monotonic() >= until:
                    raise self._failed(failed, "the transaction") from None

    @letting_go
    def abort(self) -> None:
        """
        Raises:
            TransportError: it stays open until another producer takes the id, or it times out.
        """
        client = self._client
        if client is None or self._began_at is None or self._over is not None:
            self._ended()
            return
        try:
            if why := abort_when_sent(client, COMMIT_MS / 1000):
                self._over = self._contact.error(f"{self._id} is left open, not aborted: {why}")
                self._client = None  # else it would go on by itself
                raise self._over
        except (KafkaException, SystemError) as failed:
            problem = self._failed(failed, "the abort")
            if isinstance(problem, TransportError):
                raise problem from None
        self._ended()

    @letting_go
    def close(self) -> None:
        client = self._client
        if client is not None and self._began_at is not None and self._over is None:
            # Else it stays open until it is fenced or times out.
            with suppress(KafkaException, SystemError):
                abort_when_sent(client, CLOSE_MS / 1000)
        self._drop()
        self._beside.close()

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
                produce()
                return
            except BufferError:
                self._wait_for_room(client, since)
            except (KafkaException, SystemError) as failed:
                raise self._unsent(failed, "the transaction") from None

    def _wait_for_room(self, client: Producer, since: float) -> None:
        try:
            self._try(partial(self._make_room, client, since))
        except TransportError as error:
            raise self._incomplete(error) from None

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
            self._over = self._given_up(self._client, what, error)
            self._client = None  # else it would go on by itself
        elif error is None or error.retriable() or error.code() == KafkaError._TIMED_OUT:
            return self._contact.error(what, error)
        else:
            told = self._contact.error(what, error)
            self._refused = str(told)
            if error.code() in UNKNOWN_TOPIC:
                return told  # the next start asks for the topic anew, and says what is wrong
            return TransactionOverError(f"{self._refused}; abort it")
        return self._over

    def _given_up(self, client: Producer, what: str, error: KafkaError) -> Exception:
        """Where no record was refused the task is to start anew: it may well succeed. What is left
        open then, the next `init` ends, which raises the epoch (`abort_when_sent`)."""
        if error.code() not in UNDELIVERED:
            with suppress(KafkaException, SystemError):
                abort_when_sent(client, CLOSE_MS / 1000)
        if error.code() == KafkaError._AUTHENTICATION:
            # It was let in when it began: a session that ended too soon to be renewed passes, too.
            return self._contact.error(
                f"{what}, which may be committed or not: its brokers let it not in any more", error
            )
        too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        maybe_moved = error.code() in UNDELIVERED | UNKNOWN_TOPIC | _NOT_TRIED
        moved = self._choice.changed() if maybe_moved else ""
        if moved or error.code() in UNDELIVERED | UNKNOWN_TOPIC:
            why = moved or "its records could not be delivered"
            return self._contact.error(
                f"{what} was given up: {why}; nothing of it is visible", error
            )
        told = self._contact.error(
            f"{what} was aborted: {REFUSED_SIZE if too_large else REFUSED}",
            error,
            right=f"Write on Topic:{' or Topic:'.join(self._written_to())}",
        )
        return TransactionOverError(str(told))

    def _written_to(self) -> list[str]:
        """Topics of which the brokers may have refused one; they do not say which."""
        offsets = [] if self._ending is None else [self._offset_topics.topic]
        return [*self._choice.topics, *offsets]

    def _unsent(self, failed: BaseException, what: str) -> Exception:
        """As `_failed`, of a record that the client did not take. Where the transaction cannot be
        committed any more only its state says so; asked to commit it, the client says why. A commit
        that is under way is not asked for, it would be gone on with."""
        error = kafka_error(failed)
        stuck = error is not None and error.code() == KafkaError._STATE
        if self._client is not None and stuck and self._ending is None:
            try:
                self._client.commit_transaction(REASON_S)
            except (KafkaException, SystemError) as told:
                failed = told
        return self._incomplete(self._failed(failed, what))

    def _incomplete(self, problem: Exception) -> Exception:
        """A batch broke off: whatever else can be waited for, its transaction cannot go on."""
        if self._over is None and not self._refused:
            self._refused = f"{problem}; some records of a batch are not in the transaction"
        return problem

    def _expired(self) -> TransactionOverError | None:
        """The broker aborts a transaction that takes too long and shuts its producer out. For the
        client that looks as if another had taken the id."""
        if self._began_at is None:
            return None
        took_ms = int((time.monotonic() - self._began_at) * 1000)
        if took_ms < self._timeout_ms:
            return None
        # Where the coordinator does not say, whoever asked for this task starts it again.
        if self._describe(self._id) not in _ABORTED:
            return None
        return TransactionOverError(
            f"{self._id}: the transaction was open for {took_ms} ms, longer than its "
            f"transaction.timeout.ms of {self._timeout_ms}, and the broker aborted it. Nobody shut "
            "this task out: commit more often (transaction.boundary, "
            "transaction.boundary.interval.ms, smaller batches) or raise "
            "producer.override.transaction.timeout.ms"
        )

    def _ended(self) -> None:
        self._choice.settle()
        self._began_at, self._ending, self._refused = None, None, ""
        self._reported.clear()

    def _report(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._note_place(number, message)

    def _drop(self) -> None:
        # Closing it would try to abort what is not its own any more.
        self._client, self._ready, self._over = None, False, None
        self._in_touch = False
        self._ended()
