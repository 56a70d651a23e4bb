"""Choice of the partitions for a producer's records, while topics grow, or are recreated with fewer
partitions."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.ports import ProducerRecord, TransportError, UnknownTopicError
from headgate_kafka.failures import UNKNOWN_TOPIC, Contact, kafka_error

ASK_S: Final = 15.0
MADE_MS: Final = 5_000
"""How long to wait for a topic that brokers may be creating."""
BY_KEY: Final = -1
"""The partition number by which the client's partitioner decides."""
_MAYBE_SOON: Final = UNKNOWN_TOPIC | {KafkaError.LEADER_NOT_AVAILABLE}
_ASK_WAIT_S: Final = 0.1
_LOOK_S: Final = 3.0
"""Time limit of a request whose answer only makes an error message clearer."""


class PartitionChoice:
    """The partition counts of the topics that a producer writes to, and its turn in each topic.

    Counts are fetched again when they are `age_s` old, as in Java's producer, and when the client
    has refused a partition. The request updates the client's own metadata too.

    Args:
        count: as `RecordLog.partitions`, for a topic that was not written to before.
        client: returns the client that sends. None as long as there is none.
    """

    def __init__(
        self,
        count: Callable[[str], int],
        contact: Contact,
        client: Callable[[], Producer | None],
        age_s: float,
    ) -> None:
        self._count = count
        self._contact = contact
        self._client = client
        self._age_s = age_s
        self._counts: dict[str, int] = {}
        self._older: dict[str, int] = {}
        """Old partition counts of topics whose count is fetched again before their next record."""
        self._fresh_until = time.monotonic() + age_s
        self._turns: dict[str, int] = {}
        self._changed: dict[str, int] = {}
        """Topics whose partition count has changed while records are under way, with their earlier
        counts."""

    @property
    def topics(self) -> Sequence[str]:
        """Topics that records were sent to, sorted."""
        return sorted(self._counts.keys() | self._older.keys())

    def choose(self, records: Sequence[ProducerRecord]) -> dict[str, int]:
        """Return, by topic, the partition for these records if they have no key and no partition.

        Raises:
            UnknownTopicError, ValueError: as `Producer.send`.
            TransportError: a topic that existed is gone.
        """
        if time.monotonic() >= self._fresh_until:
            self._older |= self._counts
            self._counts.clear()
            self._fresh_until = time.monotonic() + self._age_s
        counts = self._counts
        turns: dict[str, int] = {}
        same = None
        """The topic of the record before, if its partition is chosen. It makes the usual case
        fast, in which consecutive records have the same topic."""
        for record in records:
            topic, wanted = record.topic, record.partition
            if topic is same and wanted is None:
                continue
            count = counts.get(topic)
            if count is None:
                count = counts[topic] = self._learn(topic)
            if wanted is None:
                if record.key is None and topic not in turns:
                    turns[topic] = (self._turns.get(topic, -1) + 1) % count
                    same = topic
            elif wanted >= count:
                count = counts[topic] = self._ask(topic)[0] or count
            if wanted is not None and not 0 <= wanted < count:
                raise ValueError(f"partition {wanted} of {topic}, expected 0 to {count - 1}")
        self._turns.update(turns)
        return turns

    def choose_again(self, topic: str) -> int:
        """Fetch the topic's partition count and choose another partition, after the client has
        refused one.

        Raises:
            TransportError: the topic is gone, or no broker answered.
        """
        count, error = self._ask_patiently(topic)
        if not count:
            raise self._gone(topic, error)
        self._note(topic, self._counts.get(topic, count), count)
        self._counts[topic] = count
        turn = self._turns[topic] = (self._turns.get(topic, -1) + 1) % count
        return turn

    def exists(self, topic: str, partition: int) -> bool:
        """Return whether a partition exists, by the count that is known. `BY_KEY` always does."""
        return partition < self._counts[topic]

    def changed(self) -> str:
        """Say, for an error message, how a topic that was written to has changed. Empty: no change
        is known."""
        for topic, before in self._changed.items():
            return f"topic {topic!r} has other partitions now than the {before} it had"
        with suppress(TransportError):  # then the message does not say it
            for topic in self.topics:
                before = self._counts.get(topic) or self._older[topic]
                count, error = self._ask(topic, _LOOK_S)
                if error in UNKNOWN_TOPIC:
                    return f"topic {topic!r} is gone"
                if count and count != before:
                    return f"topic {topic!r} has other partitions now than the {before} it had"
        return ""

    def settle(self) -> None:
        """Forget earlier changes of topics, because all records that were sent have arrived."""
        self._changed.clear()

    def _learn(self, topic: str) -> int:
        before = self._older.pop(topic, None)
        if before is None:
            return self._first(topic)
        try:
            count, error = self._ask_patiently(topic)
        except TransportError:
            return before  # the records wait for the brokers, and the count is fetched later
        if not count and error in _MAYBE_SOON:
            raise self._gone(topic, error)
        self._note(topic, before, count)
        return count or before

    def _note(self, topic: str, before: int, count: int) -> None:
        if count not in (0, before):
            self._changed.setdefault(topic, before)

    def _gone(self, topic: str, error: int | None) -> TransportError:
        return self._contact.error(
            f"topic {topic!r}, which was there, is not any more",
            None if error is None else KafkaError(error),
        )

    def _first(self, topic: str) -> int:
        """Return the partition count of a topic that was not written to before.

        Asking the producer for metadata makes the brokers create the topic, if they have
        ``auto.create.topics.enable``, as for Java's producer.
        """
        try:
            return self._count(topic)
        except UnknownTopicError:
            count, _ = self._ask_patiently(topic)
            if not count:
                raise
            return count

    def _ask_patiently(self, topic: str) -> tuple[int, int | None]:
        """As `_ask`, for a topic that brokers may be creating."""
        until = time.monotonic() + MADE_MS / 1000
        while True:
            count, error = self._ask(topic)
            if count or error not in _MAYBE_SOON or time.monotonic() > until:
                return count, error
            time.sleep(_ASK_WAIT_S)

    def _ask(self, topic: str, limit_s: float = ASK_S) -> tuple[int, int | None]:
        """Ask the brokers for a topic's partition count. Return the count and an error code or
        None. 0 and None: there is no client yet.

        Raises:
            TransportError: no broker answered.
        """
        client = self._client()
        if client is None:
            return 0, None
        try:
            told = client.list_topics(topic, limit_s).topics[topic]
        except (KafkaException, SystemError) as failed:
            error = kafka_error(failed)
            raise self._contact.error(f"topic {topic!r} could not be asked for", error) from None
        return len(told.partitions), None if told.error is None else told.error.code()
