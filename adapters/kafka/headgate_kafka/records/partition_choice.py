"""Which partition a producer's records go to, while topics grow, or are made anew with fewer."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from headgate.ports import ProducerRecord, TransportError, UnknownTopicError
from headgate_kafka.failures import UNKNOWN_TOPIC, Contact, kafka_error

ASK_S: Final = 15.0
MADE_MS: Final = 5_000
"""So long a topic is awaited that brokers may be making."""
BY_KEY: Final = -1
"""The partition that the client's partitioner decides."""
_MAYBE_SOON: Final = UNKNOWN_TOPIC | {KafkaError.LEADER_NOT_AVAILABLE}
_ASK_WAIT_S: Final = 0.1
_LOOK_S: Final = 3.0
"""For what only makes a message clearer."""


class PartitionChoice:
    """Counts are asked again when they are `age_s` old, as Java's producer does, and when the
    client has refused a partition. Asking makes the client hear of it too.

    Args:
        count: as `RecordLog.partitions`, for a topic that was not met before.
        client: the one that sends; None as long as there is none.
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
        """Topics to be asked about again before their next record, and their older partition
        counts."""
        self._fresh_until = time.monotonic() + age_s
        self._turns: dict[str, int] = {}
        self._changed: dict[str, int] = {}
        """Topics that had so many partitions when something was sent that is on its way."""

    @property
    def topics(self) -> Sequence[str]:
        """Topics that records went to."""
        return sorted(self._counts.keys() | self._older.keys())

    def choose(self, records: Sequence[ProducerRecord]) -> dict[str, int]:
        """The partition of records without key and partition, by topic.

        Raises:
            UnknownTopicError, ValueError: as `Producer.send`.
            TransportError: a topic is gone that was there.
        """
        if time.monotonic() >= self._fresh_until:
            self._older |= self._counts
            self._counts.clear()
            self._fresh_until = time.monotonic() + self._age_s
        counts = self._counts
        turns: dict[str, int] = {}
        same = None
        """A topic that has its turn: most records are of the one before."""
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
        """As `choose`, after the client has refused a partition of the topic.

        Raises:
            TransportError: the topic is gone, or nobody answered.
        """
        count, error = self._ask_patiently(topic)
        if not count:
            raise self._gone(topic, error)
        self._note(topic, self._counts.get(topic, count), count)
        self._counts[topic] = count
        turn = self._turns[topic] = (self._turns.get(topic, -1) + 1) % count
        return turn

    def exists(self, topic: str, partition: int) -> bool:
        """As far as is known; what the key decides does."""
        return partition < self._counts[topic]

    def changed(self) -> str:
        """What became of the topics that were met, for a message; empty: nothing that is known."""
        for topic, before in self._changed.items():
            return f"topic {topic!r} has other partitions now than the {before} it had"
        with suppress(TransportError):  # the message does without
            for topic in self.topics:
                before = self._counts.get(topic) or self._older[topic]
                count, error = self._ask(topic, _LOOK_S)
                if error in UNKNOWN_TOPIC:
                    return f"topic {topic!r} is gone"
                if count and count != before:
                    return f"topic {topic!r} has other partitions now than the {before} it had"
        return ""

    def settle(self) -> None:
        """What was sent has arrived: topics that changed before that do not matter to it."""
        self._changed.clear()

    def _learn(self, topic: str) -> int:
        before = self._older.pop(topic, None)
        if before is None:
            return self._first(topic)
        try:
            count, error = self._ask_patiently(topic)
        except TransportError:
            return before  # what is sent waits for the brokers; asked again another time
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
        """Partition count of a new topic, once the brokers have made it, as they do for Java's
        producer, which asks for metadata (``auto.create.topics.enable``)."""
        try:
            return self._count(topic)
        except UnknownTopicError:
            count, _ = self._ask_patiently(topic)
            if not count:
                raise
            return count

    def _ask_patiently(self, topic: str) -> tuple[int, int | None]:
        """As `_ask`, for a topic that brokers may be making."""
        until = time.monotonic() + MADE_MS / 1000
        while True:
            count, error = self._ask(topic)
            if count or error not in _MAYBE_SOON or time.monotonic() > until:
                return count, error
            time.sleep(_ASK_WAIT_S)

    def _ask(self, topic: str, limit_s: float = ASK_S) -> tuple[int, int | None]:
        """How many partitions the client is told now, and the code of an error; 0 and None: there
        is no client yet.

        Raises:
            TransportError: nobody answered.
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
