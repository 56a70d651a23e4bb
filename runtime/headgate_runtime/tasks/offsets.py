"""Source offsets as the offsets topic holds them, for one connector.

Key: JSON array [connector, source partition]; value: JSON object, the source offset. Source:
Connect's OffsetStorageWriter, OffsetStorageReaderImpl. Differs: source partitions are looked up as
maps, not as bytes, so the order of their keys does not matter (Connect keeps two keys apart that
differ in it alone).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from headgate.connector.api import Partition
from headgate.ports import KeyedLog

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_PRIMITIVES = (str, bool, int, float, type(None))


def offset_key(connector: str, partition: Partition) -> bytes:
    return _encode([connector, checked(partition, "partition")]).encode()


def offset_value(offset: Partition) -> bytes:
    return _encode(checked(offset, "offset")).encode()


def checked(fields: Partition, what: str) -> Mapping[str, Any]:
    """
    Raises:
        TypeError: not a map of strings to primitive values, as Connect requires.
    """
    if not isinstance(fields, Mapping):
        raise TypeError(f"a source {what} must be a mapping, not {type(fields).__name__}")
    for key, value in fields.items():
        if not isinstance(key, str):
            raise TypeError(f"Offsets may only use String keys, but {key!r} is none ({what})")
        if not isinstance(value, _PRIMITIVES):
            raise TypeError(
                "Offsets may only contain primitive types as values, but field "
                f"{key} contains {type(value).__name__}"
            )
    return fields


class SourceOffsets:
    """`OffsetReader` for one connector: reads the offsets topic to its end before each answer."""

    def __init__(self, log: KeyedLog, connector: str) -> None:
        self._log = log
        self._connector = connector
        self._position = 0
        self._prefix = _encode([connector])[:-1].encode() + b","
        self._found: dict[str, Mapping[str, Any]] = {}

    def read_to_end(self) -> None:
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
        return [self._found.get(_canonical(partition)) for partition in partitions]

    def _apply(self, key: bytes, value: bytes | None) -> None:
        try:
            parsed = json.loads(key)
            offset = None if not value else json.loads(value)
        except ValueError:
            return  # not ours: Connect warns about such records and passes over them
        if len(parsed) != 2 or not isinstance(parsed[1], dict | None):
            return
        name = _canonical(parsed[1])
        if isinstance(offset, dict):
            self._found[name] = offset
        else:
            self._found.pop(name, None)


def _canonical(partition: Partition | None) -> str:
    return json.dumps(partition, sort_keys=True, separators=(",", ":"))
