"""Records of an internal topic as its reader gets them, made from keys and values alone."""

from collections.abc import Iterable, Sequence

from headgate.ports import LogRecord


def log_records(pairs: Iterable[tuple[bytes | None, bytes | None]]) -> list[LogRecord]:
    """Return a record for each key and value, with offsets from 0."""
    return [LogRecord(offset, key, value) for offset, (key, value) in enumerate(pairs)]


class OneTopic:
    """An offsets topic whose records are all there before it is read. A position is a number of
    records."""

    def __init__(self, records: Iterable[LogRecord]) -> None:
        self.records = list(records)

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        raise AssertionError(records)

    def read(self, position: int, limit: int = 5_000) -> tuple[Sequence[LogRecord], int]:
        return self.records[position : position + limit], len(self.records)

    def end(self) -> int:
        return len(self.records)

    def rest(self) -> None:
        """Do nothing: the topic holds no resources."""
