"""A copy of a run's records in a folder, which other processes can open."""

import tempfile
import weakref
from collections.abc import Mapping, Sequence
from typing import Final

from headgate.ports import ConsumerRecord, ProducerRecord
from headgate_runtime.testing.file_points import remove_folder
from headgate_runtime.transports.select import open_transport

_NAME: Final = "headgate-test-log-"


class LogElsewhere:
    """An embedded log in a temporary folder, which is removed with this object.

    It has the records at their offsets. Offsets of groups are those in memory: the task's process
    commits them.
    """

    def __init__(self) -> None:
        from headgate_embedded import transport_settings

        folder = tempfile.mkdtemp(prefix=_NAME)
        self._end = weakref.finalize(self, remove_folder, folder)
        self.transport: Mapping[str, str] = transport_settings(folder)
        """Argument of `headgate_runtime.transports.select.open_elsewhere`."""
        self._partitions: dict[str, int] = {}

    def can_take(self, topics: Mapping[str, Sequence[object]]) -> bool:
        """Return whether no topic has got more partitions: an embedded log adds none."""
        return all(self._partitions.get(one, len(of)) == len(of) for one, of in topics.items())

    def copy(self, topics: Mapping[str, Sequence[Sequence[ConsumerRecord]]]) -> None:
        """Add the records that it does not have yet.

        Args:
            topics: each topic's partitions, with all their records from offset 0 on.
        """
        opened = open_transport(self.transport)
        try:
            log = opened.record_log
            for topic, partitions in topics.items():
                if topic not in self._partitions:
                    log.create_topic(topic, len(partitions))
                    self._partitions[topic] = len(partitions)
            ends = log.end_offsets(list(topics))
            new = [
                _copied(record)
                for topic, partitions in topics.items()
                for number, records in enumerate(partitions)
                for record in records[ends[topic, number] :]
            ]
            if new:
                producer = log.producer("headgate-test", None, None)
                producer.send(new)
                producer.acks()
                producer.close()
        finally:
            opened.close()


def _copied(record: ConsumerRecord) -> ProducerRecord:
    return ProducerRecord(
        record.topic,
        record.partition,
        record.key,
        record.value,
        record.headers,
        record.timestamp_ms,
    )
