"""Source offsets as a task sees them: read from the offsets topic, for one connector."""

from collections.abc import Iterable, Mapping
from typing import Any

from headgate.connector.api import Partition
from headgate.java_json import dumps
from headgate.offsets import decode_key, decode_value, partition_identity
from headgate.ports import KeyedLog


class SourceOffsets:
    """`OffsetReader` for one connector: reads the offsets topic to its end before each answer.

    Source partitions are compared as maps, not as bytes (see `headgate.offsets`).
    """

    def __init__(self, log: KeyedLog, connector: str) -> None:
        self._log = log
        self._connector = connector
        self._position = 0
        # Spares parsing the keys of other connectors; Java writes no whitespace either. Names
        # beyond ASCII may be written with escapes (Jackson: outside the BMP) or without.
        plain = connector.isascii() and connector.isprintable()
        self._prefix = b"[" + dumps(connector) + b"," if plain else b"["
        self._found: dict[str, Mapping[str, Any] | None] = {}

    def read_to_end(self) -> None:
        """
        Raises:
            OffsetFormatError: an offset of this connector is stored but unreadable.
        """
        while True:
            records, self._position = self._log.read(self._position)
            if not records:
                return
            for record in records:
                if record.key is not None and record.key.startswith(self._prefix):
                    self._apply(record.key, record.value)

    def offset(self, partition: Partition) -> Mapping[str, Any] | None:
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[Partition]) -> list[Mapping[str, Any] | None]:
        self.read_to_end()
        return [self._found.get(partition_identity(partition)) for partition in partitions]

    def _apply(self, key_bytes: bytes, value: bytes | None) -> None:
        key = decode_key(key_bytes)
        if key is not None and key.connector == self._connector:
            self._found[partition_identity(key.partition)] = decode_value(value)
