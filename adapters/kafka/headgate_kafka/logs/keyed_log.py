"""A compacted topic of latest values: the offsets topic or the status topic.

A position over several partitions is one number: the count of the changes that this reader has
seen. So it means nothing to another reader.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Message

from headgate.ports import LogRecord, Place, UnknownTopicError
from headgate_kafka.logs.reading import BATCH, WAIT_S, TopicReader, Topics, place_of
from headgate_kafka.logs.writing import PlainWriter

END_MS: Final = 60_000
_TURN_S: Final = 0.0002
"""Pause between two attempts to reach an end, in which other threads may take the mutex."""
_KEPT_MIN: Final = 1_000

_KEYLESS_KEPT: Final = 100

Change = tuple[int, bytes | None, bytes | None, int, Place | None]
"""(number, key, value, timestamp in ms, partition and offset) of a record."""


class Changes:
    """The latest record of each key, tombstones included, in the order of the changes. Records
    without a key, which no reader can use, are all kept, up to a bound."""

    def __init__(self) -> None:
        self.last = 0
        self._latest: dict[bytes, int] = {}
        self._changes: list[Change] = []
        """Changes in the order of their numbers. Some are superseded."""

    def add(
        self, key: bytes | None, value: bytes | None, timestamp_ms: int, place: Place | None = None
    ) -> None:
        self.last += 1
        if key is not None:
            self._latest[key] = self.last
        self._changes.append((self.last, key, value, timestamp_ms, place))
        if len(self._changes) > 2 * len(self._latest) + _KEPT_MIN:
            keyless = [change[0] for change in self._changes if change[1] is None]
            first = keyless[-_KEYLESS_KEPT] if len(keyless) > _KEYLESS_KEPT else 0
            self._changes = [
                change
                for change in self._changes
                if self._stands(change) and (change[1] is not None or change[0] >= first)
            ]

    def _stands(self, change: Change) -> bool:
        """Return whether no later change has superseded this one."""
        key = change[1]
        return key is None or self._latest[key] == change[0]

    def after(self, position: int, limit: int) -> tuple[Sequence[LogRecord], int]:
        found: list[LogRecord] = []
        for change in self._from(position):
            if self._stands(change):
                found.append(LogRecord(*change))
                if len(found) == limit:
                    return found, change[0]
        return found, max(position, self.last)

    def value(self, key: bytes) -> bytes | None:
        number = self._latest.get(key)
        if number is None:
            return None
        return next(self._from(number - 1))[2]

    def _from(self, position: int) -> Iterator[Change]:
        first = bisect_right(self._changes, position, key=lambda change: change[0])
        for index in range(first, len(self._changes)):
            yield self._changes[index]


class KafkaKeyedLog:
    """A compacted topic on Kafka, as a `KeyedLog`. Safe from several threads.

    Args:
        keep: returns whether this reader keeps records of a key. None: it keeps all records.
        end_ms: how long `end` waits without progress before it fails.
    """

    def __init__(
        self,
        topic: str,
        topics: Topics,
        reader_settings: Mapping[str, Any],
        writer: PlainWriter,
        warn: Callable[[str], None],
        *,
        keep: Callable[[bytes], bool] | None = None,
        end_ms: int = END_MS,
    ) -> None:
        self.topic = topic
        self._topics = topics
        self._reader_settings = reader_settings
        self.writer = writer
        self._warn = warn
        self._keep = keep
        self._end_ms = end_ms
        self._mutex = threading.Lock()
        self._reader: TopicReader | None = None
        self._on_arrival: Callable[[], None] | None = None
        self._changes = Changes()
        self._last_told = -1
        self._closed = False

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Have `on_change` called, from any thread, when there may be something to read. To be
        called before the first read."""
        self._on_arrival = on_change

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append records. They are durable when it returns. They are not atomic: some of them may
        be written although the call fails."""
        self.writer.append(self.topic, records)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        self._open()
        with self._mutex:
            self._drain()
            return self._changes.after(position, limit)

    def end(self) -> int:
        while True:
            self._open()
            with self._mutex:
                if (reader := self._reader) is None:
                    continue  # `rest` or `close` has released the reader just now
                places = [(self.topic, partition) for partition in reader.positions]
            ends = {place[1]: end for place, end in self._topics.ends(places).items()}
            if (reached := self._reach(reader, ends)) is not None:
                return reached

    def _reach(self, reader: TopicReader, ends: Mapping[int, int]) -> int | None:
        """Wait until `reader` is past `ends` and return the position. None: the reader was released
        meanwhile.

        It waits without the mutex, so that a worker's loop can read, and serve its group.
        """
        seen, moved_at = dict[int, int](), time.monotonic()
        while True:
            with self._mutex:
                if self._reader is not reader:
                    return None
                # With a wait the reader also passes transaction markers.
                self._note_while_open(reader.take(BATCH, WAIT_S))
                behind = [p for p, end in ends.items() if reader.positions[p] < end]
                if not behind:
                    return self._changes.last
                before, seen = seen, dict(reader.positions)
            if seen != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._end_ms / 1000:
                raise reader.stuck(behind[0], ends[behind[0]], self._end_ms)
            time.sleep(_TURN_S)

    def changed(self) -> bool:
        """Return whether a record came since the last call. It is cheap."""
        self._open()
        with self._mutex:
            self._drain()
            before, self._last_told = self._last_told, self._changes.last
            return before < self._last_told

    def rest(self) -> None:
        """Release the consumer until the next read, which begins at position 0.

        Differs: Connect's offset reader consumes the topic as long as the task lives, so each
        commit of one task is sent to all other tasks.
        """
        with self._mutex:
            self._release()
            self._changes = Changes()
            self._last_told = -1

    def close(self) -> None:
        self._closed = True  # without the mutex: the thread that holds it to read stops
        with self._mutex:
            self._release()

    def _release(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _drain(self) -> None:
        reader = self._reader
        while reader is not None and not self._closed and (records := reader.take(BATCH)):
            self._note(records)

    def _note_while_open(self, records: Sequence[Message]) -> None:
        self._check_open()
        self._note(records)

    def _check_open(self) -> None:
        if self._closed:
            raise self._topics.contact.error(f"the log of topic {self.topic!r} was closed")

    def _note(self, records: Sequence[Message]) -> None:
        keep, add = self._keep, self._changes.add
        for message in records:
            key = message.key()
            if keep is None or (key is not None and keep(key)):
                add(key, message.value(), message.timestamp()[1], place_of(message))

    def _open(self) -> None:
        """Start the reader, unless there is one. The brokers are asked without the mutex, so that
        `close` does not wait for them.

        Raises:
            TransportError: the topic does not exist, no broker answered, or this log was closed.
        """
        if self._reader is not None:
            return
        self._check_open()
        try:
            starts = self._topics.topic_starts(self.topic)
        except UnknownTopicError as error:
            raise self._topics.contact.error(str(error)) from None
        with self._mutex:
            self._check_open()
            if self._reader is None:
                reader = TopicReader(
                    self._reader_settings, self.topic, self._warn, self._on_arrival
                )
                reader.start(starts)
                self._reader = reader
