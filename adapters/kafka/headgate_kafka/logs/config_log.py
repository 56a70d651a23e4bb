"""The config topic: one partition, a plain producer for every worker, a transactional one for the
leader.

A *position* is a consumer's, so it also counts transaction markers. The *config offset* is the
offset of a record, plus 1. The two differ as soon as a leader has written. Source:
KafkaConfigBackingStore, KIP-618.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.ports import FencedError, LogRecord, UnknownTopicError
from headgate_kafka.clients.settings import within_transaction
from headgate_kafka.failures import Contact, is_fenced, kafka_error, real_error
from headgate_kafka.logs.reading import BATCH, WAIT_S, TopicReader, Topics
from headgate_kafka.logs.writing import APPEND_MS, PlainWriter, durable
from headgate_kafka.records.first_contact import connect

CLAIM_MS: Final = 20_000
SYNC_MS: Final = 3_000
READY_MAX: Final = 20_000
"""Limit of the records that `end` keeps for readers, since a config topic may be long."""
_UNSENT: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
"""Delivery errors of records that were dropped because their transaction had failed. They do not
say why it failed."""
_PLACE: Final = 0
"""The number of the only partition."""


class KafkaConfigLog:
    """The config log on Kafka. Safe from several threads. Readers at several positions slow each
    other down, but get the right records.

    Args:
        reader_settings, writer_settings: librdkafka's settings of the worker's clients.
        transactional_id: of the leader's producer. None if exactly-once sources are disabled: then
            `claim` only notes the claim, and fences no other leader.
        sync_ms: how long `end`, or a `read` up to the end that it returned, waits without progress
            before it fails.
    """

    def __init__(
        self,
        topic: str,
        topics: Topics,
        reader_settings: Mapping[str, Any],
        writer_settings: Mapping[str, Any],
        transactional_id: str | None,
        warn: Callable[[str], None],
        *,
        sync_ms: int = SYNC_MS,
    ) -> None:
        self._topic = topic
        self._topics = topics
        self._reader_settings = reader_settings
        self._warn = warn
        self._sync_ms = sync_ms
        self._plain = PlainWriter(writer_settings, warn, at_once=True)
        self._leader = (
            None
            if transactional_id is None
            else LeaderWriter(topic, writer_settings, transactional_id, warn)
        )
        self._claimed = False
        self._mutex = threading.Lock()
        self._reader: TopicReader | None = None
        self._on_arrival: Callable[[], None] | None = None
        self._closed = False
        self._ready: list[LogRecord] = []
        self._start = 0
        """The position of the first record in `_ready`."""
        self._promised = 0
        """The highest position that `end` has returned. Below it `read` waits for records."""

    # -- writing --

    def claim(self, generation: int) -> None:
        """Become the only writer of privileged records.

        Kafka does not know generations, so the last worker that claims may write, as in Connect. A
        worker learns from its group whether it still leads.
        """
        if self._leader is not None:
            self._leader.claim(generation)
        self._claimed = True

    def append(self, records: Sequence[tuple[str, bytes | None]], *, privileged: bool) -> int:
        """Append records and return the config offset after them.

        Privileged records are written in one transaction, unless exactly-once sources are disabled.
        All other records are not atomic: some of them may be written although the call fails.
        """
        if privileged and self._leader is not None:
            return self._leader.append(records)
        if privileged and not self._claimed:
            raise FencedError(f"topic {self._topic!r} was not claimed by this writer")
        return self._plain.append(self._topic, records, _PLACE)

    # -- reading --

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Have `on_change` called, from any thread, when there may be something to read. To be
        called before the first read."""
        self._on_arrival = on_change

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        with self._mutex:
            reader = self._at(position)
            if not self._ready:
                self._fill(reader, limit)
            taken = self._ready[:limit]
            del self._ready[:limit]
            self._start = taken[-1].offset + 1 if self._ready else reader.positions[_PLACE]
            return taken, self._start

    def end(self) -> int:
        """Return the topic's end, after fetching the records before it, on the caller's thread.

        It stops fetching at `READY_MAX` records. A `read` that goes on where the last one ended
        then gets the fetched records without waiting.
        """
        timeout_s = self._sync_ms / 1000
        end = self._topics.ends([(self._topic, _PLACE)])[self._topic, _PLACE]
        reached, moved_at = -1, time.monotonic()
        while reached < end:
            with self._mutex:
                reader = self._at(self._start)
                if len(self._ready) >= READY_MAX:
                    break
                if reader.positions[_PLACE] < end:
                    self._take(reader, BATCH, WAIT_S)
                before, reached = reached, reader.positions[_PLACE]
                if reached != before:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > timeout_s:
                    raise reader.stuck(_PLACE, end, self._sync_ms)
        with self._mutex:
            self._promised = max(self._promised, end)
        return end

    def changed(self) -> bool:
        """Return whether a `read` that goes on where the last one ended would return something.
        It is cheap."""
        with self._mutex:
            if self._ready or self._reader is None:
                return True
            self._take(self._reader, 500)
            return bool(self._ready) or self._start < self._reader.positions[_PLACE]

    def close(self) -> None:
        self._closed = True  # without the mutex: a call that waits for brokers starts no reader
        with self._mutex:
            if self._reader is not None:
                self._reader.close()
                self._reader = None
        self._plain.close()
        if self._leader is not None:
            self._leader.close()

    def _at(self, position: int) -> TopicReader:
        """Return the reader at `position`, moving it there if it stands elsewhere.

        Raises:
            TransportError: no broker said where the topic begins, or this log was closed.
        """
        if self._closed:
            raise self._topics.contact.error(f"the log of topic {self._topic!r} was closed")
        if self._reader is None or position != self._start:
            first = position or self._first()
            reader = self._reader or TopicReader(
                self._reader_settings, self._topic, self._warn, self._on_arrival
            )
            self._reader = None  # so that a reader which fails to start is not kept
            self._ready.clear()
            reader.start({_PLACE: first})
            self._reader, self._start = reader, position
        return self._reader

    def _first(self) -> int:
        try:
            return self._topics.topic_starts(self._topic)[_PLACE]
        except UnknownTopicError as error:
            raise self._topics.contact.error(str(error)) from None

    def _fill(self, reader: TopicReader, limit: int) -> None:
        began = time.monotonic()
        while True:
            waits = reader.positions[_PLACE] < self._promised
            self._take(reader, limit, WAIT_S if waits else 0.0)
            if not waits or self._start < reader.positions[_PLACE]:
                return
            if time.monotonic() - began > self._sync_ms / 1000:
                end, self._promised = self._promised, 0
                raise reader.stuck(_PLACE, end, self._sync_ms)

    def _take(self, reader: TopicReader, limit: int, wait_s: float = 0.0) -> None:
        self._ready += [
            LogRecord(cast(int, m.offset()), m.key(), m.value(), m.timestamp()[1])
            for m in reader.take(limit, wait_s)
        ]


class LeaderWriter:
    """The leader's transactional producer.

    A claim makes a new producer, which fences all producers before it, this worker's own included.
    A worker that led the generation just before keeps its producer: no other worker can have
    claimed in between, and making a producer may take half a second. By the same rule the core's
    `Leadership` does not read the log again.
    """

    def __init__(
        self,
        topic: str,
        settings: Mapping[str, Any],
        transactional_id: str,
        warn: Callable[[str], None],
    ) -> None:
        self._topic = topic
        self._transactional_id = transactional_id
        made = {**durable(settings, APPEND_MS), "transactional.id": transactional_id}
        self._contact = Contact(made | within_transaction(made), warn)
        self._mutex = threading.Lock()
        self._client: Producer | None = None
        self._generation = -1
        """Generation of the last claim."""
        self._gone = "was never made"

    def claim(self, generation: int) -> None:
        """Fence the leaders before this one.

        Raises:
            TransportError: it was not done in time. The others may be fenced or not.
        """
        with self._mutex:
            follows = generation == self._generation + 1
            self._generation = generation
            if follows and self._client is not None:
                return
            self._drop(f"was given up for that of generation {generation}")
            client = Producer(self._contact.settings)
            connect(client, self._topic)
            deadline = time.monotonic() + CLAIM_MS / 1000
            while True:
                try:
                    client.init_transactions(max(0.1, deadline - time.monotonic()))
                    break
                except KafkaException as failed:
                    error = kafka_error(failed)
                    if error is not None and error.retriable() and time.monotonic() < deadline:
                        continue
                    raise self._contact.error(
                        f"topic {self._topic!r} could not be claimed for generation {generation} "
                        f"under transactional id {self._transactional_id}",
                        error,
                    ) from None
            self._client = client

    def append(self, records: Sequence[tuple[str, bytes | None]]) -> int:
        """Append records in one transaction and return the config offset after them.

        Any failure ends the claim: further calls raise FencedError until `claim` is called.

        Raises:
            FencedError: another worker has claimed the topic, and nothing was written.
            TransportError: besides the cases that the port names, another worker has claimed the
                topic and the answer to the commit was lost. The records may be in the topic.
        """
        offsets: list[int] = []
        refusals: list[KafkaError] = []

        def report(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset() or 0)
            else:
                refusals.append(error)

        with self._mutex:
            client = self._client
            if client is None:
                raise FencedError(
                    f"the claim of topic {self._topic!r} ({self._transactional_id}) {self._gone}"
                )
            try:
                client.begin_transaction()
                for key, value in records:
                    client.produce(self._topic, value, key, _PLACE, on_delivery=report)
                client.commit_transaction(APPEND_MS / 1000)
            except (KafkaException, BufferError, SystemError) as failed:
                error = kafka_error(failed)
                unsent = len(offsets) < len(records)
                raise self._failed(client, error, refusals, unsent=unsent) from None
        return max(offsets, default=-1) + 1

    def close(self) -> None:
        with self._mutex:
            self._drop("was closed")

    def _failed(
        self,
        client: Producer,
        error: KafkaError | None,
        refusals: Sequence[KafkaError],
        *,
        unsent: bool,
    ) -> Exception:
        """Make the exception for a failed append, and give the producer up.

        Args:
            unsent: not all records were delivered, so the commit was not requested either.
        """
        error = real_error(client, error)
        what = f"topic {self._topic!r} could not be written to as leader"
        if error is not None and is_fenced(error):
            self._drop("was overtaken by a later one")
            if not unsent:
                return self._contact.error(f"{what}, it may be in the topic or not", error)
            return FencedError(
                f"{what}: the claim under {self._transactional_id} was overtaken ({error.str()})"
            )
        # The transaction may be committed or not, which the next claim settles. A producer one of
        # whose records was refused must also be replaced.
        self._drop("was given up after a failure")
        if error is not None and error.txn_requires_abort():
            with suppress(KafkaException, SystemError):
                client.abort_transaction(APPEND_MS / 1000)
            on_change = next((each for each in refusals if each.code() not in _UNSENT), error)
            return self._contact.write_error(what, on_change, right=f"Write on Topic:{self._topic}")
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return self._contact.write_error(what, error, right="")  # it was not sent
        return self._contact.error(f"{what}, it may be in the topic or not", error)

    def _drop(self, why: str) -> None:
        # The producer is not closed: that would abort a transaction which may belong to a later
        # producer of the same transactional id.
        if self._client is not None:
            self._client = None
            self._gone = why
