"""Records of the log column by column, for whoever would not look at each."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from headgate.ports import ConsumerRecord, LogBatch, TopicPartition


class RecordColumns(ABC):
    """Records in a row of one topic-partition; none is an object of its own until `records`."""

    place: TopicPartition
    after: int | None
    """The offset behind the last of them; None: there are none."""

    @property
    @abstractmethod
    def readable(self) -> bool:
        """Whether none of them is `unreadable`, see `ConsumerRecord`."""

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
        """All records, as objects."""


@runtime_checkable
class ColumnLog(Protocol):
    """What a `RecordLog` has too that gives records by columns."""

    def read_columns(
        self, topic: str, partition: int, start: int, end: int, limit: int
    ) -> RecordColumns | LogBatch:
        """`RecordLog.read`. Where a batch comes next it is that batch as a whole: rows from `end`
        on are the caller's to leave out."""
        ...
