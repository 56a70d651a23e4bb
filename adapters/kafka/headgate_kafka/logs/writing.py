"""Writing of records outside transactions. They are durable when `append` returns."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate_kafka.failures import Contact, kafka_error

_log = logging.getLogger(__name__)

APPEND_MS: Final = 10_000
PARTITIONER: Final = {"partitioner": "murmur2_random"}
"""Java's default partitioner. librdkafka's default puts keys into other partitions."""
DURABLE: Final = {
    **PARTITIONER,
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
}
_LATER_S: Final = 1.0
"""How long `append_later` waits at most for room in a full queue."""
_ROOM_S: Final = 0.01
_REPLACED: Final = frozenset(
    {"delivery.timeout.ms", "retries", "max.in.flight.requests.per.connection"}
)


def durable(settings: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
    """Return librdkafka's settings of a producer for internal topics."""
    kept = {key: value for key, value in settings.items() if key not in _REPLACED}
    # A record that was not written in time is given up. The caller repeats it, so a late write
    # would duplicate it.
    return {**kept, **DURABLE, "message.timeout.ms": timeout_ms}


KeyValue = tuple[bytes | str, bytes | None]


class PlainWriter:
    """An idempotent producer with acks=all. Safe from several threads.

    Records of one call are sent together and keep their order. They are not atomic, because Kafka
    promises that only within a transaction.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        warn: Callable[[str], None],
        timeout_ms: int = APPEND_MS,
        *,
        at_once: bool = False,
    ) -> None:
        """
        Args:
            at_once: connect now, because the first record of an idempotent producer takes half a
                second.
        """
        self._contact = Contact(durable(settings, timeout_ms), warn)
        self._timeout_s = timeout_ms / 1000
        self._client: Producer | None = None
        self._mutex = threading.Lock()
        if at_once:
            self._made()

    def append(self, topic: str, records: Sequence[KeyValue], partition: int = -1) -> int:
        """Append records, wait until they are durable, and return the last one's offset, plus 1.

        Raises:
            TransportError: not all of them were written.
            TooLargeError: one of them is too large.
        """
        reports: list[tuple[KafkaError | None, int | None]] = []

        def report(error: KafkaError | None, message: Message) -> None:
            reports.append((error, message.offset()))

        with self._mutex:
            try:
                client = self._made()
                _produce(client, topic, records, partition, report, self._timeout_s + 1)
                client.flush(self._timeout_s + 1)
            except (KafkaException, BufferError, SystemError) as failed:
                raise self._failed(topic, kafka_error(failed)) from None
        errors = [error for error, _ in reports if error is not None]
        if errors or len(reports) < len(records):
            raise self._failed(topic, errors[0] if errors else None)
        return max((offset or 0 for _, offset in reports), default=-1) + 1

    def append_later(self, topic: str, records: Sequence[KeyValue]) -> None:
        """Send records without waiting for their delivery, though it waits up to `_LATER_S` for
        room in the queue. Failures are only logged."""

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                _log.warning("a copy was not written: %s", self._failed(topic, error))

        with self._mutex:
            try:
                client = self._made()
                client.poll(0)
                _produce(client, topic, records, -1, report, _LATER_S)
            except (KafkaException, BufferError, SystemError) as failed:
                error = kafka_error(failed)
                told = failed if error is None else self._failed(topic, error)
                _log.warning("copies for topic %s were not written: %s", topic, told)

    def close(self) -> None:
        with self._mutex:
            if self._client is not None:
                with suppress(KafkaException, SystemError):
                    self._client.flush(self._timeout_s)
                self._client = None

    def _made(self) -> Producer:
        if self._client is None:
            self._client = Producer(self._contact.settings)
        return self._client

    def _failed(self, topic: str, error: KafkaError | None) -> Exception:
        if error is not None and (error.fatal() or error.code() == KafkaError._FATAL):
            self._client = None  # a fatal error ends the client, so the next append makes another
        what = f"topic {topic!r} could not be written to"
        return self._contact.write_error(what, error, right=f"Write on Topic:{topic}")


def _produce(
    client: Producer,
    topic: str,
    records: Sequence[KeyValue],
    partition: int,
    report: Callable[[KafkaError | None, Message], None],
    patience_s: float,
) -> None:
    """Put records into the client's queue. One batch of records may well fill it.

    Raises:
        BufferError: the queue stayed full for `patience_s`.
    """
    for key, value in records:
        since = 0.0
        while True:
            try:
                client.produce(topic, value, key, partition, on_delivery=report)
                break
            except BufferError:
                since = since or time.monotonic()
                if time.monotonic() - since > patience_s:
                    raise
                client.poll(_ROOM_S)
