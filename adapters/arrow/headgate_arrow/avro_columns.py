"""A writer of batches as Avro, column by column. Each row has the bytes that AvroConverter writes.

The bytes of a column's values are Arrow arrays, and Arrow joins those of each row. A varint is
looked up in a table, 14 bits at a time. Some schemas and values are refused with `NeedsRowsError`:
unions of several types, enums, Avro's fixed, fields whose default is needed, and fields that only
the Avro schema has. `headgate_registry.avro_write` defines what is written.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.registry_converters import AvroForm
from headgate.connector.schema import DECIMAL, Schema, SchemaType, logical_type
from headgate_arrow.column_parts import (
    Parts,
    as_bytes,
    joined,
    map_entries,
    places,
    plain,
    twos_complement,
    unscaled_numbers,
    whole_numbers,
)

Column: TypeAlias = Callable[[Any], Parts]
"""Returns the bytes of each value of an array, in parts."""

_BYTES: Final = pa.large_binary()
_PIECE_BITS: Final = 14
_PIECE: Final = 1 << _PIECE_BITS
_ENDED: Final = 2 * _PIECE
"""Index of the empty or null entry in a table of varints. Before it are the last pieces, then those
that others follow."""
_DOUBLE_BYTE: Final = 1 << 16
_PRECISION: Final = 64
"""Digits of a decimal whose Avro schema names none, as in `headgate_registry.avro_names`."""


class NeedsRowsError(Exception):
    """The rows must be written one by one. The message says why."""


class Around(NamedTuple):
    """The bytes before a value, and those in place of a null."""

    before: bytes
    null: bytes | None
    """Bytes of a null. None: a null is refused here."""


_ALONE: Final = Around(b"", None)


class AvroColumns:
    """A writer of batches of one schema.

    Args:
        schema: a STRUCT.
        form: how AvroConverter writes its values.

    Raises:
        NeedsRowsError: the schema cannot be written by columns.
    """

    def __init__(self, schema: Schema, form: AvroForm) -> None:
        self._named: Mapping[str, Any] = form.named
        self._keeps_nulls = form.keeps_nulls
        self._head = form.head
        self._column = self._of(schema.as_required(), form.root)

    def values(self, batch: Any) -> list[bytes]:
        """Return the bytes of each row of a RecordBatch.

        Raises:
            NeedsRowsError, pyarrow.ArrowException, ValueError: the batch cannot be written by
                columns.
        """
        parts = self._column(batch.to_struct_array())
        return as_bytes(joined([self._head, *parts], batch.num_rows, _BYTES))

    # -- a column --

    def _of(self, schema: Schema, node: Any, *, of_struct: bool = False) -> Column:
        """Return the writer of a column.

        Args:
            of_struct: as for `headgate_registry.avro_write.Encoders`.
        """
        node = self._at(node)
        around = _ALONE
        if isinstance(node, list):
            branches = [at for at, one in enumerate(node) if one != "null"]
            if len(branches) != 1:
                raise NeedsRowsError("a union of several types")
            has_default = schema.default is not None and (
                not schema.optional or (of_struct and not self._keeps_nulls)
            )
            null = None if has_default or "null" not in node else _varint(node.index("null"))
            around = Around(_varint(branches[0]), null)
            node = self._at(node[branches[0]])
            if isinstance(node, list):
                raise NeedsRowsError("a union in a union")
        write = self._some(schema, node if isinstance(node, dict) else {"type": node}, around)

        def parts(array: Any) -> Parts:
            array = plain(array)
            if array.null_count and around.null is None:
                raise NeedsRowsError("a null that is written as a default, or not at all")
            return write(array)

        return parts

    def _at(self, node: Any) -> Any:
        return self._named.get(node, node) if isinstance(node, str) else node

    def _some(self, schema: Schema, node: dict[str, Any], around: Around) -> Column:
        kind, logical, avro = schema.type, logical_type(schema), node["type"]
        if logical == DECIMAL and avro == "bytes":
            return _decimals(_decimal(schema, node), around)
        if avro in ("int", "long"):
            return lambda array: _varints(_zigzag(whole_numbers(array)), around)
        if avro == "boolean":
            return lambda array: _varints(array.cast(pa.uint8()).cast(pa.uint64()), around)
        if avro in _FLOATING:
            floating = _FLOATING[avro]
            return lambda array: _floats(array, floating, around)
        if (kind, avro) in _TEXTS:
            return lambda array: _texts(array.cast(_BYTES), around)
        if avro == "record" and kind is SchemaType.STRUCT:
            return _with_nulls(self._struct(schema, node), around)
        if avro == "array" and kind is SchemaType.ARRAY:
            return _with_nulls(self._list(schema, node), around)
        if kind is SchemaType.MAP:
            return _with_nulls(self._map(schema, node), around)
        raise NeedsRowsError(f"a {kind} as Avro's {avro}")

    def _struct(self, schema: Schema, node: dict[str, Any]) -> Column:
        at = {field.name: at for at, field in enumerate(schema.fields)}
        members: list[tuple[int, Column]] = []
        for one in node["fields"]:
            place = at.get(one["name"])
            if place is None:
                raise NeedsRowsError(f"the field {one['name']}, which the rows do not have")
            own = schema.fields[place].schema
            members.append((place, self._of(own, one["type"], of_struct=True)))

        def parts(array: Any) -> Parts:
            columns = array.flatten()
            return [part for place, write in members for part in write(columns[place])]

        return parts

    def _list(self, schema: Schema, node: dict[str, Any]) -> Column:
        item = self._of(cast(Schema, schema.value_schema), node["items"])

        def parts(array: Any) -> Parts:
            items = array.flatten()
            return _blocks(item(items), len(items), places(array))

        return parts

    def _map(self, schema: Schema, node: dict[str, Any]) -> Column:
        keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        key_first = True
        if node["type"] == "map":
            key, value = self._of(keys, "string"), self._of(values, node["values"])
        else:
            types = {one["name"]: one["type"] for one in self._at(node["items"])["fields"]}
            key, value = self._of(keys, types["key"]), self._of(values, types["value"])
            key_first = next(iter(types)) == "key"

        def parts(array: Any) -> Parts:
            some_keys, items, begins = map_entries(array)
            pair = [key(some_keys), value(items)]
            first, second = pair if key_first else pair[::-1]
            return _blocks([*first, *second], len(items), begins)

        return parts


def _blocks(items: Parts, count: int, begins: Any) -> Parts:
    """Return the bytes of lists. Each is one block with all its items, if it has any, and the end
    of blocks.

    Args:
        items: the items of all lists.
        count: the number of items.
        begins: where each list begins in `items`, and where the last one ends.
    """
    if not count:
        return [_END]
    lengths = pc.subtract(begins[1:], begins[:-1])
    codes = pc.if_else(pc.equal(lengths, 0), _NULL, pc.shift_left(lengths, 1)).cast(pa.uint64())
    whole = joined([b"", *items], count, _BYTES)
    _, ends_of, data = whole.buffers()
    ends = pa.Array.from_buffers(pa.int64(), count + 1, [None, ends_of], offset=whole.offset)
    taken = ends.take(begins)
    bodies = pa.Array.from_buffers(_BYTES, len(lengths), [None, taken.buffers()[1], data])
    return [*_varints(codes, Around(b"", b"")), bodies, _END]


def _with_nulls(some: Column, around: Around) -> Column:
    """Return a writer of values that may be null.

    Args:
        some: a writer of values of which none is null.
    """

    def parts(array: Any) -> Parts:
        if not array.null_count:
            return [around.before, *some(array)]
        nulls = pa.repeat(pa.scalar(around.null, _BYTES), len(array))
        valid = array.drop_null()
        if not len(valid):
            return [nulls]
        found = joined([around.before, *some(valid)], len(valid), _BYTES)
        return [pc.replace_with_mask(nulls, array.is_valid(), found)]

    return parts


# -- values --


def _varint(number: int) -> bytes:
    """Return the zigzag varint of an integer that is not negative."""
    code, found = number << 1, bytearray()
    while code > _LOW:
        found.append(code & _LOW | _LOW + 1)
        code >>= _LOW_BITS
    return bytes([*found, code])


def _zigzag(numbers: Any) -> Any:
    numbers = numbers.cast(pa.int64())
    double = pc.shift_left(numbers, 1)
    return pc.if_else(pc.less(numbers, 0), pc.bit_wise_not(double), double).view(pa.uint64())


def _varints(codes: Any, around: Around) -> Parts:
    """Return the varints of unsigned numbers, which have 7 bits in each byte, the least significant
    first."""
    most = pc.max(codes).as_py() or 0
    parts: Parts = []
    while most >= _PIECE:
        rest = pc.shift_right(codes, _code(_PIECE_BITS))
        low = pc.bit_wise_and(codes, _code(_PIECE - 1))
        at = pc.if_else(pc.equal(rest, _code(0)), low, pc.add(low, _code(_PIECE)))
        parts.append(_looked_up(at, codes, around, first=not parts))
        codes, most = rest, most >> _PIECE_BITS
    if most or not parts:
        parts.append(_looked_up(codes, codes, around, first=not parts))
    return parts


def _looked_up(at: Any, codes: Any, around: Around, *, first: bool) -> Any:
    """Return the bytes of one piece of each varint.

    Args:
        at: indexes into the table.
        codes: the remaining parts of the numbers. If it is not the first piece, zero means that the
            varint has ended.
    """
    if not first:
        at, around = pc.if_else(pc.equal(codes, _code(0)), _code(_ENDED), at), Around(b"", b"")
    if at.null_count:
        at = pc.fill_null(at, _code(_ENDED))
    return _table(around.before, around.null or b"").take(at)


def _code(number: int) -> Any:
    return pa.scalar(number, pa.uint64())


@lru_cache(maxsize=16)
def _table(before: bytes, null: bytes) -> Any:
    """Return a table with the bytes of all 14-bit numbers as last pieces, then as pieces that
    others follow, and the null."""
    last = [bytes([one]) if one <= _LOW else _two(one, one >> _LOW_BITS) for one in range(_PIECE)]
    followed = [_two(one, one >> _LOW_BITS | _LOW + 1) for one in range(_PIECE)]
    return pa.array([*[before + one for one in last + followed], null], _BYTES)


def _two(low: int, high: int) -> bytes:
    return bytes([low & _LOW | _LOW + 1, high])


def _texts(array: Any, around: Around) -> Parts:
    codes = pc.shift_left(pc.binary_length(array), 1).cast(pa.uint64())
    return [*_varints(codes, around), _filled(array)]


def _filled(array: Any) -> Any:
    return pc.fill_null(array, b"") if array.null_count else array


def _floats(array: Any, kind: Any, around: Around) -> Parts:
    if array.type != kind or (kind == pa.float32() and pc.any(pc.is_nan(array)).as_py()):
        # A signalling NaN becomes a quiet one in Python.
        array = array.cast(pa.float64()).cast(kind)
    if not len(array):
        return [around.before]
    width = kind.byte_width
    valid, data = array.buffers()
    raw = pa.Array.from_buffers(pa.binary(width), len(array), [valid, data], offset=array.offset)
    before: Any = around.before
    if array.null_count:
        before = pc.if_else(array.is_valid(), *(pa.scalar(one, _BYTES) for one in around))
    return [before, _filled(raw.cast(_BYTES))]


def _decimal(schema: Schema, node: dict[str, Any]) -> int:
    """Return the precision of a decimal in the Avro schema.

    Raises:
        NeedsRowsError: the Avro schema has another scale.
    """
    if node.get("logicalType") != "decimal" or int(node.get("scale") or 0) != schema.scale:
        raise NeedsRowsError("a decimal with another scale")
    return int(node.get("precision") or _PRECISION)


def _decimals(precision: int, around: Around) -> Column:
    each = _with_nulls(_each_decimal, around)

    def parts(array: Any) -> Parts:
        digits = _UINT64_DIGITS if array.type == pa.uint64() else array.type.precision
        if digits > precision:
            raise NeedsRowsError(f"{digits} digits, and the schema has {precision}")
        numbers = _unscaled(array)
        return each(array) if numbers is None else _short_decimals(numbers, around)

    return parts


def _unscaled(array: Any) -> Any:
    """Return the unscaled numbers as an int64 array. None: one of them is too large."""
    try:
        if array.type != pa.uint64():
            kind = _UNSCALED[type(array.type)](array.type.precision, 0)
            array = pa.Array.from_buffers(
                kind, len(array), array.buffers(), array.null_count, array.offset
            )
        return array.cast(pa.int64())
    except pa.ArrowException:
        return None


def _each_decimal(array: Any) -> Parts:
    return _texts(pa.array(map(twos_complement, unscaled_numbers(array)), _BYTES), _ALONE)


def _short_decimals(numbers: Any, around: Around) -> Parts:
    """Return the bytes of decimals: two's complement in as few bytes as possible, big-endian. They
    are looked up in a table, two bytes at a time."""
    size = pc.if_else(pc.less(numbers, 0), pc.bit_wise_not(numbers), numbers)
    most = pc.max(size).as_py() or 0
    lengths = pc.if_else(numbers.is_valid(), pa.scalar(1, pa.int64()), _NULL)
    for count in range(1, most.bit_length() // 8 + 1):
        longer = pc.greater_equal(size, 1 << 8 * count - 1)
        lengths = pc.add(lengths, longer.cast(pa.int64()))
    parts = _varints(pc.shift_left(lengths, 1).cast(pa.uint64()), around)
    for count in range(most.bit_length() // 8 // 2 * 2, -1, -2):
        two = pc.bit_wise_and(pc.shift_right(numbers, 8 * count), _DOUBLE_BYTE - 1)
        one = pc.add(pc.bit_wise_and(two, 0xFF), _DOUBLE_BYTE)
        none = pa.scalar(_DOUBLE_BYTE + 0x100, pa.int64())
        at = pc.if_else(
            pc.greater(lengths, count + 1), two, pc.if_else(pc.greater(lengths, count), one, none)
        )
        parts.append(_byte_pairs().take(pc.fill_null(at, none)))
    return parts


@lru_cache(maxsize=1)
def _byte_pairs() -> Any:
    """Return the table of all pairs of bytes, then all single bytes, then the empty entry."""
    return pa.array(
        [
            *[one.to_bytes(2, "big") for one in range(_DOUBLE_BYTE)],
            *[bytes([one]) for one in range(0x100)],
            b"",
        ],
        _BYTES,
    )


_END: Final = b"\0"
_NULL: Final = pa.scalar(None, pa.int64())
_LOW_BITS: Final = 7
_LOW: Final = 0x7F
_UINT64_DIGITS: Final = 20
_UNSCALED: Final = {
    type(make(1, 0)): make for make in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
}
_FLOATING: Final = {"float": pa.float32(), "double": pa.float64()}
_TEXTS: Final = frozenset(((SchemaType.STRING, "string"), (SchemaType.BYTES, "bytes")))
