"""Source offsets: the records of an offsets topic, and the offset view made of them.

A key is ``["<connector>",{partition}]``, a value is the offset map, and a tombstone deletes its
key. Java compares keys as bytes, so a partition whose map was written in two orders has two keys.
We compare partitions structurally: the newest record of a partition counts, in whatever order its
key was written.

Two such keys usually lie in two partitions of the topic, and the order of reading says nothing
about which is newer. Therefore the record with the later timestamp counts; if the timestamps are
equal, the one whose key has our own order (`encode_key`). For records of one key, the order of the
log counts. A tombstone deletes only its own key: after compaction has removed the tombstone, nobody
could tell that more was meant.

A connector may have an offsets topic of its own beside the workers' global one. Its own comes
first; an offset that is only in the global topic is still seen. Source: KIP-618;
`ConnectorOffsetBackingStore`, `OffsetUtils`.
"""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from headgate.errors import CoreError
from headgate.java.double import java_double
from headgate.java.hash import in_map_order
from headgate.java.json import NotJsonError, dumps, parse
from headgate.ports import KeyedLog, LogRecord, Place, TransportError
from headgate.topics.config_records import java_text
from headgate.topics.rejected import kept, seen

Partition: TypeAlias = Mapping[str, Any]
"""Source partition: a map that names one input of a connector. Its values are primitives."""
Offset: TypeAlias = Mapping[str, Any]
"""Source offset: a map that says how far one source partition was read. Its values are
primitives."""

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
_KEY_EXPECTED: Final = 'expected ["<connector>",{partition}]'


class OffsetFormatError(CoreError, ValueError):
    """A source partition or source offset cannot be stored, or was stored and cannot be read."""


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Key of a source offset. The partition may be null; Java never lists such an offset."""

    connector: str
    partition: Partition | None


# -- bytes --


def encode_key(connector: str, partition: Partition | None) -> bytes:
    """Return the key of the record that holds the source offset of `partition`.

    The map is written in the order of a Java `HashMap`. Java writes it so when users alter offsets,
    and finds the key again in that order.

    Raises:
        OffsetFormatError: A name is not a string, or a value is not a primitive.
    """
    return b"[" + dumps(connector) + b"," + _encode_map(partition, hashed=True) + b"]"


def key_prefix(connector: str) -> bytes:
    """Return a prefix that all keys of `connector` have; records of other connectors can be skipped
    without parsing their keys.

    Java writes no whitespace either. For names that are not printable ASCII the prefix is only
    ``[``, since Java may write them with or without escapes (Jackson escapes outside the BMP).
    """
    plain = connector.isascii() and connector.isprintable()
    return b"[" + dumps(connector) + b"," if plain else b"["


def encode_value(offset: Offset | None) -> bytes | None:
    """Return the value of the record, in the order of the map; None is a tombstone.

    Raises:
        OffsetFormatError: A name is not a string, or a value is not a primitive.
    """
    return None if offset is None else _encode_map(offset, hashed=False)


def decode_key(key: bytes | None) -> OffsetKey | None:
    """Return the connector and partition that `key` names; None if it is not the key of a source
    offset.

    None is also returned for the markers of a finished migration in an early text of KIP-618
    (``["<connector>"]``). We ignore them, as Java does.
    """
    found = _key_or_reason(key)
    return found if isinstance(found, OffsetKey) else None


def _key_or_reason(key: bytes | None) -> OffsetKey | str:
    if key is None:
        return "a record without a key"
    try:
        parts = parse(key)
    except NotJsonError as error:
        return f"the key is {error}; {_KEY_EXPECTED}"
    if not isinstance(parts, list):
        return f"the key is {seen(parts)}, {_KEY_EXPECTED}"
    items = cast(list[object], parts)
    if len(items) != 2:
        return f"the key is an array of {len(items)}, {_KEY_EXPECTED}"
    connector, partition = items
    if not isinstance(connector, str):
        return f"the key's connector is {seen(connector)}, {_KEY_EXPECTED}"
    if partition is not None and not isinstance(partition, dict):
        return f"the key's partition is {seen(partition)}, {_KEY_EXPECTED}"
    return OffsetKey(connector, cast(Partition | None, partition))


def decode_value(value: bytes | None) -> Offset | None:
    """Return the source offset in `value`; None for a tombstone and for the JSON text ``null``.

    Raises:
        OffsetFormatError: The value is not a JSON object of primitives.
    """
    if value is None:
        return None
    try:
        content = parse(value)
    except NotJsonError as error:
        raise OffsetFormatError(f"the source offset is {error}") from error
    if content is None:
        return None
    if not isinstance(content, dict):
        raise OffsetFormatError(f"the source offset is {seen(content)}, expected an object")
    table = cast(dict[str, Any], content)
    for name, item in table.items():
        if isinstance(item, (dict, list)):
            raise OffsetFormatError(_not_primitive(name, cast(object, item)))
    return table


def _encode_map(table: Mapping[str, Any] | None, *, hashed: bool) -> bytes:
    if table is None:
        return b"null"
    if not isinstance(cast(object, table), Mapping):  # a connector may return anything
        raise OffsetFormatError(
            f"a source partition or source offset is {seen(table)}, expected a mapping (a dict)"
        )
    for name in cast(Mapping[object, Any], table):
        if not isinstance(name, str):
            raise OffsetFormatError(f"Offsets may only use String keys, not {name!r}")
    names = in_map_order(table) if hashed else list(table)
    try:
        items = [dumps(name) + b":" + _encode_primitive(name, table[name]) for name in names]
    except ValueError as error:
        raise OffsetFormatError(str(error)) from error
    return b"{" + b",".join(items) + b"}"


def _encode_primitive(name: str, value: object) -> bytes:
    if value is None or isinstance(value, (bool, str)):
        return dumps(value)
    if isinstance(value, int):
        if not _LONG_MIN <= value <= _LONG_MAX:
            raise OffsetFormatError(f"field {name} is {value}: integers have at most 64 bits")
        return dumps(value)
    if isinstance(value, float):
        if not math.isfinite(value):  # Java stores the text "NaN"
            raise OffsetFormatError(f"{value} cannot be stored: JSON has finite numbers only")
        return java_double(value).encode("ascii")
    if isinstance(value, (bytes, bytearray)):
        return dumps(base64.b64encode(value).decode("ascii"))
    raise OffsetFormatError(_not_primitive(name, value))


def _not_primitive(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        kind = "MAP"
    elif isinstance(value, (list, tuple)):
        kind = "ARRAY"
    else:
        kind = type(value).__name__
    return f"Offsets may only contain primitive types as values, but field {name} contains {kind}"


def partition_identity(partition: Partition | None) -> str:
    """Return a text that is equal for equal partitions, in whatever order their names stand.

    1, 1.0, true and "1" differ, as in Java. Bytes count as the base64 text that is stored, and -0.0
    counts as 0.0, since that is how they are read back.
    """
    if partition is None:
        return "null"
    plain = {name: _as_stored(value) for name, value in partition.items()}
    return json.dumps(plain, sort_keys=True)


def _as_stored(value: object) -> object:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    return value + 0.0 if isinstance(value, float) else value


# -- the records of one topic --


@dataclass(frozen=True, slots=True)
class StoredValue:
    """The value that an offsets topic holds under one key."""

    value: bytes
    timestamp_ms: int
    place: Place


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """Everything that one offsets topic holds for one source partition."""

    partition: Partition | None
    values: Mapping[bytes, StoredValue]
    """Values by key, as bytes of the topic; the last one is the one that counts. There is more than
    one if the partition's map was written in several orders."""

    @property
    def newest(self) -> StoredValue:
        return self.values[self.newest_key]

    @property
    def newest_key(self) -> bytes:
        return next(reversed(list(self.values)))


@dataclass(frozen=True, slots=True)
class OffsetRejected:
    """A rejected record: its key names no source partition, or its value is not a source offset."""

    key: str
    reason: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetTable:
    """State of one offsets topic. Immutable; made by `fold_offsets`."""

    connectors: Mapping[str, Mapping[str, StoredOffset]] = field(
        default_factory=dict[str, Mapping[str, StoredOffset]]
    )
    """Offsets by connector, then by `partition_identity`."""
    rejected: tuple[OffsetRejected, ...] = ()
    """The last `REJECTED_KEPT` records that could not be used. A value that cannot be read still
    counts as stored: the partition has an offset, though an unreadable one."""
    rejected_count: int = 0


def rejection(record: LogRecord) -> OffsetRejected | None:
    """Return why `record` of an offsets topic cannot be used; None if it can."""
    key = _key_or_reason(record.key)
    if isinstance(key, str):
        return _rejected(record, key)
    return _rejected_value(record)


def _rejected_value(record: LogRecord) -> OffsetRejected | None:
    try:
        decode_value(record.value)
    except OffsetFormatError as error:
        return _rejected(record, str(error))
    return None


def _rejected(record: LogRecord, reason: str) -> OffsetRejected:
    text = "" if record.key is None else java_text(record.key)
    return OffsetRejected(text, reason, *record.found_at)


def fold_offsets(
    table: OffsetTable, records: Iterable[LogRecord], only: str | None = None
) -> OffsetTable:
    """Return `table` after `records`. `table` is not changed.

    Records of one key must be in the order of their topic; the order among records of different
    keys does not matter.

    Args:
        only: The one connector whose offsets are kept; None keeps all.
    """
    connectors = dict(table.connectors)
    touched: dict[str, dict[str, StoredOffset]] = {}
    rejected: list[OffsetRejected] = []
    for record in records:
        key_bytes, value = record.key, record.value
        key = _key_or_reason(key_bytes)
        if isinstance(key, str) or key_bytes is None:
            rejected.append(_rejected(record, str(key)))
            continue
        if only is not None and key.connector != only:
            continue
        unreadable = _rejected_value(record)
        if unreadable is not None:
            rejected.append(unreadable)
        stored = touched.get(key.connector)
        if stored is None:
            stored = dict(connectors.get(key.connector, {}))
            touched[key.connector] = connectors[key.connector] = stored
        identity = partition_identity(key.partition)
        old = stored.get(identity)
        values = dict(old.values) if old is not None else {}
        values.pop(key_bytes, None)
        if value is not None:
            values[key_bytes] = StoredValue(value, record.timestamp_ms, record.found_at)
        if values:
            stored[identity] = StoredOffset(key.partition, _newest_last(key, values))
        else:
            stored.pop(identity, None)
    for name, stored in touched.items():
        if not stored:
            del connectors[name]
    return OffsetTable(
        connectors, kept(table.rejected, rejected), table.rejected_count + len(rejected)
    )


def _newest_last(
    key: OffsetKey, values: Mapping[bytes, StoredValue]
) -> Mapping[bytes, StoredValue]:
    if len(values) < 2:
        return values
    own = _own_key(key.connector, key.partition)

    def rank(item: tuple[bytes, StoredValue]) -> tuple[int, bool, bytes]:
        key_bytes, stored = item
        return stored.timestamp_ms, key_bytes == own, key_bytes

    return dict(sorted(values.items(), key=rank))


def _own_key(connector: str, partition: Partition | None) -> bytes:
    """Return what `encode_key` returns; empty bytes for a partition with values that no task of
    ours can have written."""
    try:
        return encode_key(connector, partition)
    except OffsetFormatError:
        return b""


def read_offsets(log: KeyedLog) -> OffsetTable:
    """Return everything that an offsets topic holds now.

    Raises:
        TransportError: The topic could not be read to its end.
    """
    table, position, end = OffsetTable(), 0, log.end()
    while position < end:
        before = position
        records, position = log.read(before)
        if position == before:
            raise TransportError(f"the offsets topic ends at {end}, nothing is read at {position}")
        table = fold_offsets(table, records)
    return table


# -- the offset view --


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """One line of the offset view. `problem` says why `offset` is None although there is a
    record."""

    partition: Partition
    offset: Offset | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetView:
    """The source offsets of connectors as tasks and users see them. An offset in the connector's
    own topic comes before one in the global topic.

    A tombstone looks like a missing record, so a tombstone in the own topic uncovers the global
    offset. Therefore tombstones are written to the global topic first. Source:
    `ConnectorOffsetBackingStore`.
    """

    shared: OffsetTable = field(default_factory=OffsetTable)
    """Offsets in the workers' global topic."""
    own: OffsetTable | None = None
    """Offsets in the connector's own topic; None if it has no topic of its own."""

    def offset(self, connector: str, partition: Partition | None) -> Offset | None:
        """Return the source offset of `partition`; None if there is none.

        Raises:
            OffsetFormatError: There is an offset, but it cannot be read. (Java logs this and reads
                the source from its beginning again.)
        """
        stored = self._stored(connector, partition_identity(partition))
        return None if stored is None else decode_value(stored.newest.value)

    def partitions(self, connector: str) -> tuple[PartitionOffset, ...]:
        """Return all partitions that have an offset, sorted by `partition_identity`. The null
        partition is never listed."""
        identities = {
            identity: None
            for table in self._tables()
            for identity in table.connectors.get(connector, {})
        }
        lines: list[PartitionOffset] = []
        for identity in sorted(identities):
            stored = self._stored(connector, identity)
            if stored is None or stored.partition is None:
                continue
            try:
                lines.append(PartitionOffset(stored.partition, decode_value(stored.newest.value)))
            except OffsetFormatError as error:
                lines.append(PartitionOffset(stored.partition, None, str(error)))
        return tuple(lines)

    def _tables(self) -> tuple[OffsetTable, ...]:
        return (self.shared,) if self.own is None else (self.own, self.shared)

    def _stored(self, connector: str, identity: str) -> StoredOffset | None:
        for table in self._tables():
            stored = table.connectors.get(connector, {}).get(identity)
            if stored is not None:
                return stored
        return None


# -- altering --


@dataclass(frozen=True, slots=True)
class OffsetWrites:
    """Records that alter source offsets. `shared_tombstones` are written first and awaited;
    `primary` follows, in a transaction if there is one; `shared_copies` come last."""

    shared_tombstones: tuple[tuple[bytes, None], ...]
    primary: tuple[tuple[bytes, bytes | None], ...]
    shared_copies: tuple[tuple[bytes, bytes], ...]


def plan_alteration(
    view: OffsetView, connector: str, changes: Iterable[tuple[Partition | None, Offset | None]]
) -> OffsetWrites:
    """Return the writes after which the offset view shows `changes`. An offset of None deletes the
    partition's offset; of several changes of one partition, the last one counts.

    Keys of the same partition that stand in the topics in another order of names get tombstones, so
    that one key remains. Order of the writes: KIP-618, `ConnectorOffsetBackingStore.set`.
    """
    wanted: dict[str, tuple[Partition | None, Offset | None]] = {}
    for partition, offset in changes:
        wanted[partition_identity(partition)] = (partition, offset)
    primary: list[tuple[bytes, bytes | None]] = []
    shared_tombstones: list[tuple[bytes, None]] = []
    shared_copies: list[tuple[bytes, bytes]] = []
    for identity, (partition, offset) in sorted(wanted.items()):
        value = encode_value(offset)
        encoded = _own_key if value is None else encode_key  # a delete takes any partition
        key = encoded(connector, partition)
        table = view.shared if view.own is None else view.own
        stale = [key] if value is None and key else []
        primary.extend((old, None) for old in _old_keys(table, connector, identity, key, stale))
        if value is not None:
            primary.append((key, value))
        if view.own is None:
            continue
        old_shared = _old_keys(view.shared, connector, identity, key, stale)
        shared_tombstones.extend((old, None) for old in old_shared)
        if value is not None:
            shared_copies.append((key, value))
    return OffsetWrites(tuple(shared_tombstones), tuple(primary), tuple(shared_copies))


def plan_reset(view: OffsetView, connector: str) -> OffsetWrites:
    """Return the writes after which `connector` has no source offset at all."""
    identities: dict[str, Partition | None] = {}
    for table in (view.shared, view.own):
        if table is not None:
            for identity, stored in table.connectors.get(connector, {}).items():
                identities[identity] = stored.partition
    return plan_alteration(view, connector, [(part, None) for part in identities.values()])


def _old_keys(
    table: OffsetTable, connector: str, identity: str, key: bytes, extra: list[bytes]
) -> list[bytes]:
    """Return the keys of one partition in `table` except `key`, followed by `extra`."""
    stored = table.connectors.get(connector, {}).get(identity)
    return [old for old in (stored.values if stored else ()) if old != key] + extra
