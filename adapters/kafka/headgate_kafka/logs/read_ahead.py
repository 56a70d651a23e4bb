"""A consumer with a thread of its own that fetches records and tells the reader when some came.

Only that thread takes records from librdkafka, since two threads could store them in the wrong
order. The thread also asks for the position, after it has stored the records it was given. Another
thread could see a position beyond a record that is still on its way out of librdkafka.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

PULL_S: Final = 0.1
"""How long the thread waits for a record in one call. A transaction marker that comes without
records, and a request to stop, are noticed with at most this delay."""
KEPT: Final = 5_000
"""The number of stored records at which the thread pauses. One more fetch may add as many."""


class ReadAhead:
    """The methods of a consumer that `TopicReader` uses. For one thread at a time besides its own.

    Args:
        consumer: used by this object alone from now on.
        arrived: called on the thread when the first record is stored after there was none.
    """

    def __init__(self, consumer: Consumer, arrived: Callable[[], None]) -> None:
        self._consumer = consumer
        self._arrived = arrived
        self._changed = threading.Condition()
        self._kept: list[Message] = []
        self._passed: Sequence[TopicPartition] = ()
        """librdkafka's positions. All records before them were stored."""
        self._bug: Exception | None = None
        """The exception that ended the thread."""
        self._pulling: tuple[threading.Thread, threading.Event] | None = None

    def assign(self, places: Sequence[TopicPartition]) -> None:
        """Read from these positions on. Records that were fetched before are dropped."""
        self._halt()
        self._kept, self._passed, self._bug = [], (), None
        self._consumer.assign(list(places))
        over = threading.Event()
        plain = [TopicPartition(place.topic, place.partition) for place in places]
        thread = threading.Thread(
            target=self._pull, args=(plain, over), name="read-ahead", daemon=True
        )
        thread.start()
        self._pulling = thread, over

    def consume(self, limit: int, _timeout_s: float) -> list[Message]:
        """Return the stored records, at most `limit`, without waiting."""
        with self._changed:
            return self._take(limit)

    def poll(self, timeout_s: float) -> Message | None:
        with self._changed:
            self._changed.wait_for(lambda: self._kept or self._bug, timeout_s)
            return next(iter(self._take(1)), None)

    def position(self, _places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Return the positions after all records. Empty while there are records to take."""
        with self._changed:
            return () if self._kept else self._passed

    def close(self) -> None:
        self._halt()
        self._consumer.close()

    def _take(self, limit: int) -> list[Message]:
        if self._bug is not None and not self._kept:
            raise RuntimeError(
                f"the thread that reads ahead has failed: {self._bug!r}"
            ) from self._bug
        taken = self._kept[:limit]
        del self._kept[:limit]
        self._changed.notify_all()
        return taken

    def _halt(self) -> None:
        if self._pulling is not None:
            thread, over = self._pulling
            with self._changed:
                over.set()
                self._changed.notify_all()
            thread.join()
            self._pulling = None

    # -- on the thread --

    def _pull(self, places: list[TopicPartition], over: threading.Event) -> None:
        try:
            while not over.is_set():
                found = self._pulled()
                self._keep(found, self._consumer.position(places))
                with self._changed:
                    self._changed.wait_for(lambda: len(self._kept) < KEPT or over.is_set())
        except Exception as bug:  # raised by the next `consume` or `poll`
            with self._changed:
                self._bug = bug
                self._changed.notify_all()
            self._arrived()

    def _pulled(self) -> list[Message]:
        first = self._consumer.poll(PULL_S)
        return [] if first is None else [first, *self._consumer.consume(KEPT, 0)]

    def _keep(self, found: list[Message], passed: Sequence[TopicPartition]) -> None:
        with self._changed:
            first = not self._kept
            self._kept += found
            self._passed = passed
            self._changed.notify_all()
        if found and first:
            self._arrived()
