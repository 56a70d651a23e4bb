"""A check that reports records of the workers' offsets topic that are no source offsets.

A task reads only the keys of its own connector, and a worker reads offsets only when a call asks
for them. Without this check no log would mention such a record.
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
    """A reader that goes on where its last look ended, so it sees each record once. It has no
    consumer between two looks. Safe from several threads."""

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
        """Read the records since the last look and report those that are no source offsets.

        Args:
            report: called with each record that is no source offset.

        Raises:
            TransportError: the topic cannot be read. Records reported before are not reported
                again.
            UnknownTopicError: the topic does not exist.
        """
        with self._mutex:
            starts = self._topics.topic_starts(self._topic)
            # Up to the last stable offset only: reading must not wait for an open transaction.
            found = self._topics.ends([(self._topic, p) for p in starts], committed=True)
            ends = {partition: end for (_, partition), end in found.items()}
            behind = {p: self._from(p, starts[p], end) for p, end in ends.items()}
            behind = {p: position for p, position in behind.items() if position < ends[p]}
            if behind:
                self._read(behind, {p: ends[p] for p in behind}, report)

    def _from(self, partition: int, start: int, end: int) -> int:
        known = self._positions.get(partition, 0)
        # A position beyond the end means that the topic was deleted and created again.
        return max(start, known) if known <= end else start

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
