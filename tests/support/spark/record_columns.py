"""Records of a log in columns, as `read_columns` gives them."""

from collections.abc import Sequence

from headgate.log.record_columns import RecordColumns
from headgate.ports import ConsumerRecord


class Columns(RecordColumns):
    """Columns of the topic-partition t-0.

    Args:
        records: the records of the topic-partition.
    """

    def __init__(self, records: Sequence[ConsumerRecord]) -> None:
        self.place = ("t", 0)
        self._records = records
        self.after = records[-1].offset + 1 if records else None

    @property
    def readable(self) -> bool:
        return not any(one.unreadable for one in self._records)

    def values(self) -> Sequence[bytes | None]:
        return [one.value for one in self._records]

    def keys(self) -> Sequence[bytes | None]:
        return [one.key for one in self._records]

    def offsets(self) -> Sequence[int]:
        return [one.offset for one in self._records]

    def timestamps_ms(self) -> Sequence[int]:
        return [one.timestamp_ms for one in self._records]

    def records(self) -> Sequence[ConsumerRecord]:
        return self._records
