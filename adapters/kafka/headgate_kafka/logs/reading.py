"""Reading of a topic from its beginning on, committed records only, without a consumer group.

The end of a partition is the brokers' high watermark. Transaction markers, aborted records and gaps
left by compaction move a position although no record comes. librdkafka reports the end of a
partition for committed readers with an event, and again when an open transaction has ended.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    OffsetSpec,
)

from headgate.ports import Place, TransportError, UnknownTopicError
from headgate_kafka.admin.controller import ask_controller
from headgate_kafka.failures import NO_RIGHT, UNKNOWN_TOPIC, Contact, kafka_error
from headgate_kafka.logs.read_ahead import ReadAhead
from headgate_kafka.records.consumer import metadata_age_s

T = TypeVar("T")

BATCH: Final = 5_000
REQUEST_S: Final = 15.0
WAIT_S: Final = 0.002
"""How long one attempt to take records waits. Records end the wait at once, transaction markers do
not. With `ReadAhead`, markers that come without records are noticed within its `PULL_S`."""
MOVED_TRIES: Final = 30
MOVED_S: Final = 0.1
"""Pause before partitions are asked for again. A broker that restarts or hands partitions over does
not know their new leader at once."""
_MOVED: Final = frozenset(
    {
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,  # librdkafka's own: it knows the leader of none of the partitions
    }
)
READER: Final = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    # By default the client pauses for a second each time its queue is full.
    "fetch.queue.backoff.ms": 5,
}
"""librdkafka's settings that every reader must have."""
_OF_THE_GROUP: Final = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
"""Errors about the consumer group. librdkafka must be given a group and looks for its coordinator,
but the group is not used."""
RESET: Final = (
    "the topic was made anew or cut off while it was read: what was read before is not in it any "
    "more. Start this process again"
)


class NoRightError(TransportError):
    """This client may not describe a topic, so the brokers do not say whether it exists."""


class TopicGoneError(TransportError):
    """A topic that existed is gone, or the leader of its partition does not know it."""


class _LeaderMovedError(Exception):
    def __init__(self, told: TransportError) -> None:
        super().__init__(str(told))
        self.told = told


class Topics:
    """A client that asks the brokers of one cluster about topics. Safe from any thread."""

    def __init__(self, settings: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self.contact = Contact(settings, warn)
        self.client = AdminClient(self.contact.settings)
        self._mutex = threading.Lock()
        self._age_s = metadata_age_s(settings)
        self._counts: dict[str, tuple[int, float]] = {}
        """Partition count by topic, and when the brokers were asked for it."""

    def partitions(self, topic: str, *, age_s_max: float | None = None) -> int:
        """Return the number of a topic's partitions, which may grow.

        Args:
            age_s_max: greatest age of a known answer that is used again, 0 to ask the brokers now.
                None: this client's ``metadata.max.age.ms``.

        Raises:
            UnknownTopicError: the topic does not exist.
            NoRightError: this client may not describe the topic.
            TransportError: no broker answered.
        """
        now = time.monotonic()
        count, asked_at = self._counts.get(topic, (0, 0.0))
        if count and now - asked_at < (self._age_s if age_s_max is None else age_s_max):
            return count
        count = self._count(topic)
        with self._mutex:
            self._counts[topic] = count, now
        return count

    def _count(self, topic: str) -> int:
        try:
            return self._ask(partial(self._count_once, topic))
        except KafkaException as failed:
            error = self._heard(failed)
            if error is not None and error.code() in UNKNOWN_TOPIC:
                raise UnknownTopicError(
                    f"topic {topic!r} does not exist at {self.contact.servers}: create it first"
                ) from None
            if error is not None and error.code() == KafkaError.TOPIC_EXCEPTION:
                raise UnknownTopicError(
                    f"topic {topic!r} cannot exist at {self.contact.servers}: {error.str()}"
                ) from None
            told = self.contact.error(
                f"topic {topic!r} could not be described", error, right=f"Describe on Topic:{topic}"
            )
            if error is not None and error.code() in NO_RIGHT:
                raise NoRightError(str(told)) from None
            raise told from None

    def _count_once(self, topic: str, limit_s: float) -> int:
        asked = self.client.describe_topics(TopicCollection([topic]), request_timeout=limit_s)
        return len(asked[topic].result().partitions)

    def names(self) -> list[str]:
        """Return the names of all topics that exist now, the brokers' own included, sorted.

        Raises:
            TransportError: the brokers did not answer.
        """
        try:
            return sorted(self.client.list_topics(timeout=REQUEST_S).topics)
        except KafkaException as failed:
            error = self._heard(failed)
            raise self.contact.error("the topics could not be listed", error) from None

    def settings(self, resources: Sequence[ConfigResource]) -> dict[str, Any]:
        """Return the settings of each resource, by its name.

        Raises:
            KafkaException: the brokers did not answer, or refuse to.
        """

        def describe(limit_s: float) -> dict[str, Any]:
            asked = self.client.describe_configs(list(resources), request_timeout=limit_s)
            return {about.name: answer.result() for about, answer in asked.items()}

        return self._ask(describe)

    def _ask(self, ask: Callable[[float], T]) -> T:
        return ask_controller(self.client, ask, lambda: self.contact.refusal)

    def await_topic(self, topic: str) -> None:
        """Wait until the brokers know a topic that was just created.

        Raises:
            UnknownTopicError: they do not know it within `REQUEST_S`.
            NoRightError, TransportError: as `partitions`.
        """
        deadline = time.monotonic() + REQUEST_S
        while True:
            try:
                self.partitions(topic)
                return
            except UnknownTopicError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(MOVED_S)

    def known(self, topic: str, *, age_s_max: float | None = None) -> int | None:
        """As `partitions`, but None if the topic does not exist."""
        try:
            return self.partitions(topic, age_s_max=age_s_max)
        except UnknownTopicError:
            return None

    def ends(
        self,
        places: Sequence[tuple[str, int]],
        *,
        committed: bool = False,
    ) -> dict[tuple[str, int], int]:
        """Return the end of each partition.

        Args:
            places: topics and partitions.
            committed: return last stable offsets, where committed readers stop for now. Otherwise
                high watermarks.

        Raises:
            TransportError: the end of some partition could not be had.
        """
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        spec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(places, spec, level)

    def starts(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the first offset that is left in each partition. A consumer of librdkafka finds it
        by itself too, but takes half a second longer.

        Raises:
            TransportError: the start of some partition could not be had.
        """
        spec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._offsets(places, spec, IsolationLevel.READ_UNCOMMITTED)

    def topic_starts(self, topic: str) -> dict[int, int]:
        """As `starts`, for all partitions of one topic, by partition.

        Raises:
            UnknownTopicError, NoRightError, TransportError: as `partitions` and `starts`.
        """
        places = [(topic, partition) for partition in range(self.partitions(topic))]
        found = self.starts(places)
        return {partition: found[topic, partition] for _, partition in places}

    def _offsets(
        self,
        places: Sequence[tuple[str, int]],
        spec: OffsetSpec,
        level: IsolationLevel,
    ) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        for left in reversed(range(MOVED_TRIES)):
            try:
                return self._offsets_once(places, spec, level)
            except _LeaderMovedError as moved:
                if not left or not self._are_there(places):
                    raise moved.told from None
                time.sleep(MOVED_S)
        raise AssertionError("the last try returns or raises")

    def _are_there(self, places: Sequence[tuple[str, int]]) -> bool:
        """Return whether the brokers know these partitions. The answer also gives the client the
        current leaders."""
        try:
            topics = self.client.list_topics(timeout=REQUEST_S).topics
        except KafkaException as failed:
            self._heard(failed)
            return False
        return all(
            topic in topics and partition in topics[topic].partitions for topic, partition in places
        )

    def _offsets_once(
        self,
        places: Sequence[tuple[str, int]],
        spec: OffsetSpec,
        level: IsolationLevel,
    ) -> dict[tuple[str, int], int]:
        futures = self.client.list_offsets(
            {TopicPartition(*place): spec for place in places},
            isolation_level=level,
            request_timeout=REQUEST_S,
        )
        found: dict[tuple[str, int], int] = {}
        for place, future in futures.items():
            try:
                found[place.topic, place.partition] = future.result(REQUEST_S * 2).offset
            except KafkaException as failed:
                error = self._heard(failed)
                told = self.contact.error(
                    f"offsets of {place.topic}-{place.partition} could not be read",
                    error,
                    right=f"Describe on Topic:{place.topic}",
                )
                if error is not None and error.code() in _MOVED:
                    raise _LeaderMovedError(told) from None
                if error is not None and error.code() in UNKNOWN_TOPIC:
                    with self._mutex:
                        self._counts.pop(place.topic, None)  # to be asked for again
                    raise TopicGoneError(str(told)) from None
                raise told from None
        return found

    def _heard(self, failed: KafkaException) -> KafkaError | None:
        self.client.poll(0)  # the client's error callbacks only run in `poll`
        return kafka_error(failed)


def place_of(message: Message) -> Place:
    return cast(int, message.partition()), cast(int, message.offset())


class TopicReader:
    """A reader of partitions of one topic. For one thread at a time.

    Args:
        settings: librdkafka's settings of a consumer. Those in `READER` override them.
        arrived: called, on a thread of the reader's own, when there are records to take after there
            were none. None: there is no such thread, and the caller polls.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        warn: Callable[[str], None],
        arrived: Callable[[], None] | None = None,
    ) -> None:
        self.topic = topic
        self.contact = Contact({**settings, **READER}, warn)
        consumer = Consumer(self.contact.settings)
        self._consumer = consumer if arrived is None else ReadAhead(consumer, arrived)
        self.positions: dict[int, int] = {}
        """Position by partition. All records before it were returned."""
        self._problem: KafkaError | None = None

    def start(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these positions on. Each must be an offset that exists.
        Records that were fetched before are dropped."""
        self.positions = dict(positions)
        self._consumer.assign(
            [
                TopicPartition(self.topic, partition, position)
                for partition, position in positions.items()
            ]
        )

    def take(self, limit: int, wait_s: float = 0.0) -> list[Message]:
        """Return the records that are there or come within `wait_s`. It may be empty although
        positions moved.

        Raises:
            TransportError: the topic cannot be read any further.
        """
        found = self._consumer.consume(limit, 0)
        if not found and wait_s > 0:
            first = self._consumer.poll(wait_s)
            if first is not None:
                found = [first, *self._consumer.consume(max(limit - 1, 1), 0)]
        records: list[Message] = []
        positions = self.positions
        if len(positions) == 1 and found and all(one.error() is None for one in found):
            # The fast path of the usual case: only records, of one partition.
            (partition,) = positions
            positions[partition] = cast(int, found[-1].offset()) + 1
            return found
        for message in found:
            error = message.error()
            if error is None:
                positions[message.partition()] = message.offset() + 1  # type: ignore[index, operator]
                records.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                partition, end = cast(int, message.partition()), cast(int, message.offset())
                positions[partition] = max(positions[partition], end)
            elif not error.retriable() and error.code() not in _OF_THE_GROUP:
                self._problem = error
        if self._problem is not None and not records:
            raise self._failure(self._problem)
        if not records and (wait_s > 0 or len(positions) == 1):
            self._pass_markers()
        return records

    def _pass_markers(self) -> None:
        """Move positions past transaction markers, to librdkafka's own positions. Only when there
        are no records to return. The event of a partition's end would come half a second later."""
        places = [TopicPartition(self.topic, partition) for partition in self.positions]
        for place in self._consumer.position(places):
            if place.offset > self.positions[place.partition]:
                self.positions[place.partition] = place.offset

    def wait_past(
        self, ends: Mapping[int, int], timeout_ms: int, taken: Callable[[list[Message]], None]
    ) -> None:
        """Take records until all partitions are read up to `ends`, and pass them to `taken`.

        Raises:
            TransportError: no position moved for `timeout_ms`. The message says which partition
                hangs and what the cause may be.
        """
        moved_at = time.monotonic()
        while behind := [p for p, end in ends.items() if self.positions[p] < end]:
            before = dict(self.positions)
            taken(self.take(BATCH, WAIT_S))
            if self.positions != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > timeout_ms / 1000:
                raise self.stuck(behind[0], ends[behind[0]], timeout_ms)

    def stuck(self, partition: int, end: int, timeout_ms: int) -> TransportError:
        """Return the error for a partition that does not reach its end: because of an open
        transaction, or because no broker answers."""
        return self.contact.error(
            f"{self.topic}-{partition} ends at {end}, but nothing committed came after "
            f"{self.positions[partition]} for {timeout_ms} ms. If brokers answer there is an open "
            "transaction: it ends when its producer is fenced, or after its "
            "transaction.timeout.ms. Seen"
        )

    def close(self) -> None:
        self._consumer.close()

    def _failure(self, error: KafkaError) -> TransportError:
        self._problem = None
        what = f"topic {self.topic!r} cannot be read"
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            what = f"{what}: {RESET}"
        elif error.code() in UNKNOWN_TOPIC:
            what = f"{what}: it does not exist"
        return self.contact.error(what, error, right=f"Read on Topic:{self.topic}")
