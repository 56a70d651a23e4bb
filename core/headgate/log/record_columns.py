"""Records of the log by columns, for readers that need no object per record."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from headgate.ports import ConsumerRecord, LogBatch, TopicPartition


class RecordColumns(ABC):
    """Consecutive records of one topic-partition. `records` makes objects of them; nothing else
    does."""

    place: TopicPartition
    after: int | None
    """Offset after the last record; None if there are none."""

    @property
    @abstractmethod
    def readable(self) -> bool:
        """Whether no record is `unreadable`; see `ConsumerRecord`."""

    @abstractmethod
    def values(self) -> Sequence[bytes | None]: ...

    @abstractmethod
    def keys(self) -> Sequence[bytes | None]: ...

    @abstractmethod
    def offsets(self) -> Sequence[int]: ...

    @abstractmethod
    def timestamps_ms(self) -> Sequence[int]: ...

    @abstractmethod
    def records(self) -> Sequence[ConsumerRecord]:
        """Return all records as objects."""


@runtime_checkable
class ColumnLog(Protocol):
    """What a `RecordLog` offers in addition if it returns records by columns."""

    def read_columns(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> RecordColumns | LogBatch:
        """Read as `RecordLog.read` does. If a batch comes next, return the whole batch; the caller
        leaves out rows from `end` on."""
        ...
