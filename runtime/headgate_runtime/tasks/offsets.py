"""Source offsets as a task sees them, read from the offsets topic for one connector."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headgate.connector.api import Partition
from headgate.ports import KeyedLog, TransportError
from headgate.topics.offsets import (
    OffsetFormatError,
    OffsetTable,
    StoredOffset,
    decode_value,
    fold_offsets,
    key_prefix,
    partition_identity,
)
from headgate_runtime.tasks.commit_under_way import CommitUnderWay


class SourceOffsets:
    """`OffsetReader` for one connector. It reads the offsets topic to its end before each answer.

    May be used from any thread. Source partitions are compared as maps, not as bytes (see
    `headgate.topics.offsets`).
    """

    def __init__(self, log: KeyedLog, connector: str) -> None:
        self._log = log
        self._connector = connector
        self._position = 0
        self._reading = threading.RLock()
        self._prefix = key_prefix(connector)
        self._table = OffsetTable()
        self.commit: CommitUnderWay | None = None
        """The last commit that was begun. Readers wait for it and get what it commits, too."""

    def read_to_end(self) -> None:
        """Read the offsets topic to its end.

        Raises:
            TransportError: the end could not be read.
        """
        with self._reading:
            self._read_on(self._log.end())

    def rest(self) -> None:
        """Forget what was read, once the task has begun: most tasks never ask again. A later
        question reads the topic anew."""
        with self._reading:
            self._log.rest()
            self._position = 0
            self._table = OffsetTable()

    def _read_on(self, end: int) -> None:
        while (position := self._position) < end:
            records, self._position = self._log.read(position)
            if self._position == position:
                raise TransportError(
                    f"the offsets topic ends at {end}, nothing is read at {position}"
                )
            ours = [r for r in records if r.key is not None and r.key.startswith(self._prefix)]
            self._table = fold_offsets(self._table, ours, self._connector)

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]:
        """Return the offset of each partition, or None if it has none.

        Raises:
            OffsetFormatError: one of them is stored but unreadable. That is not the same as none.
            TransportError: the end could not be read, or the commit under way failed.
        """
        if (commit := self.commit) is not None:
            commit.wait()
        with self._reading:
            self.read_to_end()
            found = self._table.connectors.get(self._connector, {})
        return [self._offset(found, partition_identity(partition)) for partition in partitions]

    def committed(self) -> Sequence[tuple[Partition, Mapping[str, Any]]]:
        """Return all partitions that have an offset, with their offsets.

        Raises:
            OffsetFormatError: an offset is stored but unreadable. That is not the same as none.
            TransportError: the end could not be read, or the commit under way failed.
        """
        if (commit := self.commit) is not None:
            commit.wait()
        with self._reading:
            self.read_to_end()
            found = self._table.connectors.get(self._connector, {})
        known = [(stored.partition, self._offset(found, one)) for one, stored in found.items()]
        return [
            (partition, offset)
            for partition, offset in known
            if partition is not None and offset is not None
        ]

    def _offset(self, found: Mapping[str, StoredOffset], identity: str) -> Mapping[str, Any] | None:
        if identity not in found:
            return None
        newest = found[identity].newest
        try:
            return decode_value(newest.value)
        except OffsetFormatError as error:
            partition, offset = newest.place
            raise OffsetFormatError(
                f"{error} (offsets topic, partition {partition}, offset {offset}: connector "
                f"{self._connector}, {identity}). Nobody can tell where its source was read to: "
                "stop the connector, and alter or reset its offsets"
            ) from error
