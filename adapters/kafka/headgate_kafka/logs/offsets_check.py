"""What of the workers' offsets topic nobody can use.

A task looks at the keys of its own connector alone, and a worker reads offsets when it is asked for
some: without this nobody would tell of a record that is no source offset.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from headgate.ports import LogRecord
from headgate.topics.offsets import OffsetRejected, rejection
from headgate_kafka.logs.keyed_log import END_MS
from headgate_kafka.logs.reading import TopicReader, Topics, place_of


class OffsetsCheck:
    """Reads the topic on each time it is asked, each record once. Holds no consumer meanwhile. Safe
    from several threads."""

    def __init__(
        self,
        topic: str,
        topics: Topics,
        reader_settings: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        self._topic = topic
        self._topics = topics
        self._reader_settings = reader_settings
        self._warn = warn
        self._mutex = threading.Lock()
        self._positions: dict[int, int] = {}

    def look(self, report: Callable[[OffsetRejected], None]) -> None:
        """
        Args:
            report: called with each record that is no source offset and came since the last look.

        Raises:
            TransportError: the topic cannot be read; what was told is not told again.
            UnknownTopicError: it is not there.
        """
        with self._mutex:
            starts = self._topics.topic_starts(self._topic)
            # Not what an open transaction hides: it would be waited for, and nobody waits for this.
            found = self._topics.ends([(self._topic, p) for p in starts], committed=True)
            ends = {partition: end for (_, partition), end in found.items()}
            behind = {p: self._from(p, starts[p], end) for p, end in ends.items()}
            behind = {p: position for p, position in behind.items() if position < ends[p]}
            if behind:
                self._read(behind, {p: ends[p] for p in behind}, report)

    def _from(self, partition: int, start: int, end: int) -> int:
        known = self._positions.get(partition, 0)
        return max(start, known) if known <= end else start  # else the topic was made anew

    def _read(
        self,
        positions: Mapping[int, int],
        ends: Mapping[int, int],
        report: Callable[[OffsetRejected], None],
    ) -> None:
        def note(messages: Sequence[Message]) -> None:
            for message in messages:
                place = place_of(message)
                record = LogRecord(place[1], message.key(), message.value(), place=place)
                if (found := rejection(record)) is not None:
                    report(found)

        reader = TopicReader(self._reader_settings, self._topic, self._warn)
        try:
            reader.start(positions)
            reader.wait_past(ends, END_MS, note)
        finally:
            self._positions |= reader.positions
            reader.close()
