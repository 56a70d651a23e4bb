"""The record log on Kafka: data topics and the offsets of consumer groups."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from headgate.connector.sink_names import SinkTopics
from headgate.connector.topic_names import topic_fault
from headgate.ports import (
    NO_CONFIG,
    ConsumerRecord,
    GroupInUseError,
    Producer,
    RefusedError,
    TopicPartition,
    TransportError,
)
from headgate_kafka.admin.controller import ask_controller
from headgate_kafka.admin.raw_admin import RawAdmin
from headgate_kafka.failures import NO_RIGHT, kafka_error
from headgate_kafka.logs.reading import (
    MOVED_S,
    MOVED_TRIES,
    REQUEST_S,
    WAIT_S,
    NoRightError,
    TopicGoneError,
    TopicReader,
    Topics,
)
from headgate_kafka.records.consumer import KafkaConsumer, metadata_age_s
from headgate_kafka.records.message_columns import MessageColumns, offset_of
from headgate_kafka.records.plain_producer import PlainProducer
from headgate_kafka.records.producer import OffsetTopics, TransactionalProducer

READ_MS: Final = 30_000
_RANGE: Final = {"fetch.wait.max.ms": 10, "queued.min.messages": 10_000}
"""Settings of a consumer that reads ranges of offsets which exist already. A fetch beyond the end
of a range delays the next range, and most of its records are dropped."""
BROKERS_CHOICE: Final = -1
READER: Final = "headgate-reader"
"""Client id of readers without a group, and the group id that librdkafka requires even so."""
PRODUCERS_TOPICS: Final = "headgate-topics"
"""Client id of the client that looks up topics with a producer's login."""
_NEVER: Final = frozenset(
    {
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_CONFIG,
    }
)
"""Errors by which a topic cannot be created unless its name or its settings change."""
_HAS_MEMBERS: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.NON_EMPTY_GROUP,
    }
)
"""Errors of a client that sets the offsets of a group which has members and is not one itself."""


class ClientsSettings:
    """librdkafka's settings of the clients of one connector's tasks, or of a worker.

    Args:
        producer: returns a producer's settings, for a client id and a transactional id.
        consumer: returns a consumer's settings, for a client id and a group.
        poll_records: limit of the records that one poll of a connector's consumer returns. None:
            only the caller's limit counts.
    """

    def __init__(
        self,
        producer: Callable[[str, str | None], Mapping[str, Any]],
        consumer: Callable[[str, str], Mapping[str, Any]],
        poll_records: int | None = None,
    ) -> None:
        self.producer = producer
        self.consumer = consumer
        self.poll_records = poll_records


class KafkaRecordLog:
    """The record log on Kafka. Safe from several threads. The producers and consumers that it makes
    are not."""

    def __init__(
        self,
        topics: Topics,
        raw: RawAdmin,
        settings: ClientsSettings,
        offset_topics: OffsetTopics,
        warn: Callable[[str], None],
    ) -> None:
        self._topics = topics
        self._raw = raw
        self._settings = settings
        self._offset_topics = offset_topics
        self._warn = warn
        self._mutex = threading.Lock()
        self._readers: dict[str, TopicReader] = {}
        self._names: list[str] = []
        self._names_until = 0.0

    def create_topic(
        self,
        topic: str,
        partitions: int | None,
        *,
        replicas: int | None = None,
        config: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        """Create a topic if it does not exist.

        Raises:
            RefusedError: the topic can never be created so, or a permission is missing.
            TransportError: it could not be created, with the broker's reason.
        """
        partitions = BROKERS_CHOICE if partitions is None else partitions
        if partitions < 1 and partitions != BROKERS_CHOICE:
            raise ValueError(f"topic {topic} with {partitions} partitions, expected at least 1")
        if fault := topic_fault(topic):
            raise RefusedError(f"topic {fault}")
        # Look first: a client that may not create topics is refused existing ones too.
        try:
            topics, count = self._looked_up(topic)
        except NoRightError as refusal:
            needed = f"producers need Write on Topic:{topic}, which implies it"
            raise RefusedError(f"{refusal}; {needed}") from None
        if count is not None:
            return
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=BROKERS_CHOICE if replicas is None else replicas,
            config=dict(config),
        )
        client = self._topics.client

        def create(limit_s: float) -> None:
            asked = client.create_topics([new], operation_timeout=limit_s, request_timeout=limit_s)
            asked[topic].result()

        try:
            ask_controller(client, create)
        except KafkaException as failed:
            error = kafka_error(failed)
            if error is None or error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                what, right = f"topic {topic!r} could not be created", f"Create on Topic:{topic}"
                lost = self._error(what, failed, right)
                # A replication factor that the caller gave is most likely too large. If the
                # brokers' own default is refused, brokers are away.
                factor = () if replicas is None else (KafkaError.INVALID_REPLICATION_FACTOR,)
                never = error is not None and error.code() in {*_NEVER, *NO_RIGHT, *factor}
                raise (RefusedError(str(lost)) if never else lost) from None
        topics.await_topic(topic)

    def _looked_up(self, topic: str) -> tuple[Topics, int | None]:
        """Look up a topic that is to be written to. Return the client that may describe it, and the
        number of its partitions, None if it does not exist.

        If the admin client may not describe the topic, the producers' login is used, which may
        describe it if it may write to it. In Connect only connectors with ``topic.creation.*``
        settings need the admin client's permission.

        Raises:
            NoRightError: neither client may describe it.
            TransportError: no broker answered.
        """
        try:
            return self._topics, self._topics.known(topic)
        except NoRightError:
            return self._as_producer, self._as_producer.known(topic)

    @cached_property
    def _as_producer(self) -> Topics:
        settings = {**self._settings.producer(PRODUCERS_TOPICS, None), "enable.idempotence": False}
        return Topics(settings, self._warn)

    def _partitions_to_write(self, topic: str) -> int:
        topics, count = self._looked_up(topic)
        return topics.partitions(topic) if count is None else count

    def partitions(self, topic: str, *, age_s_max: float | None = None) -> int:
        """As `Topics.partitions`."""
        return self._topics.partitions(topic, age_s_max=age_s_max)

    def topic_names(self) -> Sequence[str]:
        """Return the names of all topics, at most ``metadata.max.age.ms`` old.

        Raises:
            TransportError: the brokers did not answer.
        """
        with self._mutex:
            if time.monotonic() >= self._names_until:
                self._names = self._topics.names()
                self._names_until = time.monotonic() + self._age_s
            return list(self._names)

    def end_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        """Return the ends of partitions for committed readers (last stable offsets). Records of an
        open transaction, and all records after its first, are beyond them."""
        return self._offsets(topics, partial(self._topics.ends, committed=True))

    def start_offsets(self, topics: Sequence[str]) -> Mapping[TopicPartition, int]:
        return self._offsets(topics, self._topics.starts)

    def _offsets(
        self,
        topics: Sequence[str],
        ask: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]],
    ) -> Mapping[TopicPartition, int]:
        for left in reversed(range(MOVED_TRIES)):
            try:
                places = self._places(topics)
                found = ask(places)
            except TopicGoneError:
                # The next look either finds that the topic does not exist, or succeeds because the
                # topic was only being created.
                if not left:
                    raise
                time.sleep(MOVED_S)
            else:
                return {place: found[place] for place in places}
        raise AssertionError("the last try returns or raises")

    def _places(self, topics: Sequence[str]) -> list[TopicPartition]:
        return [
            (topic, partition)
            for topic in topics
            for partition in range(self._topics.known(topic, age_s_max=self._age_s) or 0)
        ]

    @cached_property
    def _age_s(self) -> float:
        """Greatest age of metadata, in seconds, as for the connector's consumers. A reader without
        a group finds its topics and partitions by this metadata."""
        return metadata_age_s(self._settings.consumer(READER, READER))

    def read(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> Sequence[ConsumerRecord]:
        """Read a range of offsets. It also stops at the last stable offset."""
        return self.read_columns(topic, partition, start, end, limit).records()

    def read_columns(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> MessageColumns:
        """As `read`, but return columns."""
        self.partitions(topic)
        place = (topic, partition)
        stop = min(end, self._topics.ends([place], committed=True)[place])
        found: list[Message] = []
        with self._mutex:
            reader = self._readers.get(topic)
            if reader is None:
                settings = {**self._settings.consumer(READER, READER), **_RANGE}
                reader = self._readers[topic] = TopicReader(settings, topic, self._warn)
            if reader.positions != {partition: start}:
                self._check_start(place, start)
                reader.start({partition: start})
            moved_at = time.monotonic()
            while reader.positions[partition] < stop and len(found) < limit:
                before = reader.positions[partition]
                found += reader.take(limit - len(found), WAIT_S)
                if reader.positions[partition] != before:
                    moved_at = time.monotonic()
                elif time.monotonic() - moved_at > READ_MS / 1000:
                    raise reader.stuck(partition, stop, READ_MS)
        while found and offset_of(found[-1]) >= end:
            found.pop()
        return MessageColumns(place, found)

    def _check_start(self, place: TopicPartition, start: int) -> None:
        first = self._topics.starts([place])[place]
        if start < first:
            raise TransportError(
                f"{place[0]}-{place[1]} at {self._topics.contact.servers} begins at offset {first} "
                f"by now, what was asked for from {start} on is gone: retention took it"
            )

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        asked = self._topics.client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_S
        )
        try:
            found = asked[group].result(REQUEST_S * 2).topic_partitions or []
        except KafkaException as failed:
            what = f"offsets of group {group!r} could not be read"
            raise self._error(what, failed, f"Describe on Group:{group}") from None
        places = {(place.topic, place.partition): place.offset for place in found}
        return {place: offset for place, offset in sorted(places.items()) if offset >= 0}

    def commit_unguarded(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets of a group that has no members. None deletes an offset.

        Raises:
            GroupInUseError: the group has members.
            TransportError: some offsets were not set.
        """
        wanted = [Place(*place, offset) for place, offset in offsets.items() if offset is not None]
        if wanted:
            self._set_offsets(group, wanted)
        gone = [place for place, offset in offsets.items() if offset is None]
        if gone:
            self._raw.delete_offsets(group, gone)

    def _set_offsets(self, group: str, wanted: Sequence[Place]) -> None:
        what = f"offsets of group {group!r} were not set"
        asked = self._topics.client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, list(wanted))], request_timeout=REQUEST_S
        )
        try:
            done = asked[group].result(REQUEST_S * 2).topic_partitions or []
        except KafkaException as failed:
            error = self._error(what, failed, f"Read on Group:{group}")
            code = kafka_error(failed)
            if code is not None and code.code() in _HAS_MEMBERS:
                raise GroupInUseError(str(error)) from None
            raise error from None
        errors = {f"{p.topic}-{p.partition}": p.error.str() for p in done if p.error}
        if errors:
            contact, hint = self._topics.contact, ""
            if any(p.error and p.error.code() in _HAS_MEMBERS for p in done):
                text = "a group with members can only be changed by these"
                raise GroupInUseError(f"{what} at {contact.servers}: {errors}; {text}")
            refused = next((p for p in done if p.error and p.error.code() in NO_RIGHT), None)
            if refused is not None and refused.error is not None:
                of_topic = refused.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
                resource = f"Topic:{refused.topic}" if of_topic else f"Group:{group}"
                hint = f"; {contact.lacking(refused.error, f'Read on {resource}')}"
            raise TransportError(f"{what} at {contact.servers}: {errors}{hint}")

    def producer(
        self,
        client_id: str,
        transactional_id: str | None,
        membership: tuple[str, str, int] | None,
    ) -> Producer:
        """Make a producer. `membership` is ignored, as Kafka has no use for it (see
        `TransactionalProducer`)."""
        settings = self._settings.producer(client_id, transactional_id)
        if transactional_id is None:
            return PlainProducer(settings, self._partitions_to_write, self._warn)
        return TransactionalProducer(
            settings,
            transactional_id,
            self._offset_topics,
            self._partitions_to_write,
            self._raw.transaction_state,
            self._warn,
        )

    def consumer(self, group: str, topics: SinkTopics, client_id: str) -> KafkaConsumer:
        settings = self._settings.consumer(client_id, group)
        return KafkaConsumer(settings, topics, self._warn, self._settings.poll_records)

    def close(self) -> None:
        with self._mutex:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()

    def _error(self, what: str, failed: KafkaException, right: str = "") -> TransportError:
        self._topics.client.poll(0)
        return self._topics.contact.error(what, kafka_error(failed), right=right)
