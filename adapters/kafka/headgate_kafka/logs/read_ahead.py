"""A consumer with a thread of its own that waits for the brokers, so that who reads need not look
whether something has come: it is told.

Only that thread asks librdkafka for records. Two that ask could keep them in the wrong order; and a
position that is asked for while a record is on its way out of librdkafka is ahead of that record,
so the thread asks for it, too, once it has kept what it was given.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

PULL_S: Final = 0.1
"""How long the thread waits at a time: records end it at once. The marker of a transaction that
comes without any is noticed, and a stop obeyed, so much later at the most."""
KEPT: Final = 5_000
"""With so many that nobody has taken the thread rests. The last it fetched may be as many."""


class ReadAhead:
    """What `TopicReader` uses of a consumer; for one thread at a time besides its own.

    Args:
        consumer: this one's alone from now on.
        arrived: called on the thread when there is something to take, after there was nothing.
    """

    def __init__(self, consumer: Consumer, arrived: Callable[[], None]) -> None:
        self._consumer = consumer
        self._arrived = arrived
        self._changed = threading.Condition()
        self._kept: list[Message] = []
        self._passed: Sequence[TopicPartition] = ()
        """librdkafka's positions, where all that came before them was kept."""
        self._bug: Exception | None = None
        """Why the thread has ended, if nobody asked it to."""
        self._pulling: tuple[threading.Thread, threading.Event] | None = None

    def assign(self, places: Sequence[TopicPartition]) -> None:
        """Nothing that was fetched before comes after this."""
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
        """What is there; waits for nothing."""
        with self._changed:
            return self._take(limit)

    def poll(self, timeout_s: float) -> Message | None:
        with self._changed:
            self._changed.wait_for(lambda: self._kept or self._bug, timeout_s)
            return next(iter(self._take(1)), None)

    def position(self, _places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Position behind all that was taken; none while there is something to take."""
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
        except Exception as bug:  # told to who takes next: this thread must not end in silence
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
