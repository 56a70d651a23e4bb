"""Source offsets as a task sees them: read from the offsets topic, for one connector."""

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from headgate.connector.api import Partition
from headgate.offsets import decode_key, decode_value, key_prefix, partition_identity
from headgate.ports import KeyedLog, TransportError


class SourceOffsets:
    """`OffsetReader` for one connector, from any thread: reads the offsets topic to its end before
    each answer.

    Source partitions are compared as maps, not as bytes (see `headgate.offsets`).
    """

    def __init__(self, log: KeyedLog, connector: str) -> None:
        self._log = log
        self._connector = connector
        self._position = 0
        self._reading = threading.RLock()
        self._prefix = key_prefix(connector)
        self._found: dict[str, Mapping[str, Any] | None] = {}

    def read_to_end(self) -> None:
        """
        Raises:
            OffsetFormatError: an offset of this connector is stored but unreadable.
            TransportError: the end could not be read.
        """
        with self._reading:
            self._read_on(self._log.end())

    def rest(self) -> None:
        """The task has begun: most never ask again. Who does has the topic read anew."""
        with self._reading:
            self._log.rest()
            self._position = 0
            self._found.clear()

    def _read_on(self, end: int) -> None:
        while (position := self._position) < end:
            records, self._position = self._log.read(position)
            if self._position == position:
                raise TransportError(
                    f"the offsets topic ends at {end}, nothing is read at {position}"
                )
            for record in records:
                if record.key is not None and record.key.startswith(self._prefix):
                    self._apply(record.key, record.value)

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]:
        with self._reading:
            self.read_to_end()
            return [self._found.get(partition_identity(partition)) for partition in partitions]

    def _apply(self, key_bytes: bytes, value: bytes | None) -> None:
        key = decode_key(key_bytes)
        if key is not None and key.connector == self._connector:
            self._found[partition_identity(key.partition)] = decode_value(value)
