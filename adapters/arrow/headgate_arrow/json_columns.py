"""A writer of batches as JSON, column by column. Each row has the text that Connect's JsonConverter
writes.

The texts of a column's values are an Arrow array, and Arrow joins those of each row, with the
fields' names between them. Python writes single values only if no kernel of Arrow gives the same
text: floats that Java writes with an exponent, bytes, and text outside the Basic Multilingual
Plane. `headgate.connector.json_values` defines what is written.
"""

import binascii
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.json_converter import JsonForm
from headgate.connector.json_values import DecimalFormat, writer
from headgate.connector.schema import DECIMAL, FLOAT32, FLOAT64, Schema, SchemaType, logical_type
from headgate.java.json import as_java
from headgate_arrow.arrow_types import carrier
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

Texts: TypeAlias = Any
"""A large_string array without nulls, with the JSON of each value of a column."""
Column: TypeAlias = Callable[[Any], Texts]

_TEXT: Final = pa.large_string()


class Member(NamedTuple):
    """The writer of a struct's field."""

    label: str
    """The text before its value: the separator and the field's name."""
    texts: Column
    is_text: bool
    """Whether its value is a text. Without nulls its quotes are the same for all rows, and so
    constants."""


class JsonColumns:
    """A writer of batches of one schema.

    Args:
        schema: a STRUCT.
        form: how JsonConverter writes its values.

    Raises:
        DataError: JsonConverter refuses the schema too.
    """

    def __init__(self, schema: Schema, form: JsonForm) -> None:
        self._numbers, self._use_defaults = form.numbers, form.use_defaults
        self._members = self._members_of(schema)
        self._start, self._end = form.start.decode(), form.end.decode()

    def values(self, batch: Any) -> list[bytes]:
        """Return the JSON of each row of a RecordBatch.

        Raises:
            pyarrow.ArrowException, ValueError: the batch cannot be written by columns.
        """
        parts = [self._start, *_object(self._members, batch.columns), self._end]
        return as_bytes(_joined(parts, batch.num_rows))

    def _members_of(self, schema: Schema) -> list[Member]:
        found: list[Member] = []
        for field in schema.fields:
            before = "," if found else "{"
            label = before + _java_text(field.name) + ":"
            is_text = field.schema.type is SchemaType.STRING
            found.append(Member(label, self._column(field.schema), is_text))
        return found

    # -- a column --

    def _column(self, schema: Schema) -> Column:
        """Return the writer of a column.

        Raises:
            DataError: the schema has the name of a logical type, but another type than that.
        """
        null = self._null(schema)
        some = self._some(schema)
        nulls_stay = some in _NULLS_STAY

        def texts(array: Any) -> Texts:
            array = plain(array)
            if not array.null_count:
                return some(array)
            if null is None:
                raise ValueError("a null where it takes none")
            if nulls_stay:
                return pc.fill_null(some(array), null)
            nulls = pa.repeat(pa.scalar(null, _TEXT), len(array))
            if array.null_count == len(array):
                return nulls
            return pc.replace_with_mask(nulls, array.is_valid(), some(array.drop_null()))

        return texts

    def _null(self, schema: Schema) -> str | None:
        write = writer(schema, self._numbers, self._use_defaults)
        if schema.optional or (schema.default is not None and self._use_defaults):
            return as_java(write(None)).decode()
        return None

    def _some(self, schema: Schema) -> Column:
        """Return the writer of values of which none is null. Those in `_NULLS_STAY` also take
        nulls."""
        kind, logical = schema.type, logical_type(schema)
        if logical == DECIMAL:
            return _same_text if self._numbers is DecimalFormat.NUMERIC else _unscaled
        if logical is not None or kind in _WHOLE:
            return _whole_number
        if kind is SchemaType.STRUCT:
            return self._struct(schema)
        if kind is SchemaType.MAP:
            return self._map(schema)
        if kind is SchemaType.ARRAY:
            return self._list(schema)
        return _WRITERS[kind]

    def _struct(self, schema: Schema) -> Column:
        members = self._members_of(schema)
        return lambda array: _joined(_object(members, array.flatten()), len(array))

    def _list(self, schema: Schema) -> Column:
        item = self._column(cast(Schema, schema.value_schema))

        def texts(array: Any) -> Texts:
            items = _per_list(item(array.flatten()), places(array))
            return _joined(["[", items, "]"], len(array))

        return texts

    def _map(self, schema: Schema) -> Column:
        keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
        key, value = self._column(keys), self._column(values)
        is_object = keys.type is SchemaType.STRING
        outer = "{}" if is_object else "[]"
        before, between, after = ("", ":", "") if is_object else ("[", ",", "]")

        def texts(array: Any) -> Texts:
            some_keys, items, begins = map_entries(array)
            parts = [before, key(some_keys), between, value(items), after]
            pairs = _joined(parts, len(some_keys))
            return _joined([outer[0], _per_list(pairs, begins), outer[1]], len(array))

        return texts


def _object(members: Sequence[Member], columns: Sequence[Any]) -> Parts:
    if not members:
        return ["{}"]
    parts: Parts = []
    for member, array in zip(members, columns, strict=True):
        parts.append(member.label)
        if member.is_text and not (texts := plain(array)).null_count:
            parts += ['"', _escaped(texts), '"']
        else:
            parts.append(member.texts(array))
    return [*parts, "}"]


def _joined(parts: Parts, count: int) -> Texts:
    return joined(parts, count, _TEXT)


def _per_list(items: Texts, begins: Any) -> Texts:
    """Return the text of each list, with commas between its items.

    Args:
        begins: where each list begins in `items`, and where the last one ends.
    """
    lists = pa.LargeListArray.from_arrays(begins, items)
    return pc.binary_join(lists, pa.scalar(",", _TEXT))


# -- values --


def _whole_number(array: Any) -> Texts:
    return whole_numbers(array).cast(_TEXT)


def _same_text(array: Any) -> Texts:
    """Write booleans, or decimals as numbers. Arrow writes them as Java does."""
    return array.cast(_TEXT)


def _unscaled(array: Any) -> Texts:
    """Write decimals as the base64 of their unscaled numbers' bytes."""
    coded = [_base64(twos_complement(one)) for one in unscaled_numbers(array)]
    return pa.array(coded, _TEXT)


def _bytes(array: Any) -> Texts:
    return pa.array([_base64(one) for one in array.to_pylist()], _TEXT)


def _base64(data: bytes) -> str:
    return f'"{binascii.b2a_base64(data, newline=False).decode()}"'


def _floating(array: Any) -> Texts:
    """Write floats. Arrow writes the same digits as Java if Java writes no exponent. Python writes
    the others."""
    array = array.cast(carrier(array.type))  # of 16 bits
    size = pc.abs(array)
    no_exponent = pc.and_(pc.greater_equal(size, _FIXED[0]), pc.less(size, _FIXED[1]))
    usual = pc.or_(no_exponent, pc.equal(size, 0.0))
    texts = array.cast(_TEXT)
    whole = pc.invert(pc.match_substring(texts, "."))
    if pc.any(whole).as_py():
        texts = pc.if_else(whole, _joined([texts, ".0"], len(texts)), texts)
    if pc.all(usual).as_py() is not False:
        return texts
    write = _SINGLE if array.type == pa.float32() else _DOUBLE
    return _replaced(texts, pc.invert(usual), write, array)


def _text(array: Any) -> Texts:
    return _joined(['"', _escaped(array), '"'], len(array))


def _escaped(array: Any) -> Texts:
    """Return texts with the escapes of Jackson, Java's JSON library."""
    texts = array.cast(_TEXT)
    _, places, data = texts.buffers()
    if data is None or not len(texts):
        return texts
    ends = memoryview(places).cast("q")
    start, end = ends[texts.offset], ends[texts.offset + len(texts)]
    odd = set(data.slice(start, end - start).to_pybytes().translate(None, _USUAL))
    for byte in sorted(odd, key=lambda one: one != _BACKSLASH):  # others are escaped with it
        if byte < _FOUR_BYTES:
            by = _java_text(chr(byte))[1:-1]
            texts = pc.replace_substring(texts, pattern=chr(byte), replacement=by)
    if any(byte >= _FOUR_BYTES for byte in odd):
        mask = pc.match_substring_regex(texts, _BEYOND)
        texts = _replaced(texts, mask, lambda one: as_java(one).decode(), texts)
    return texts


def _replaced(texts: Texts, mask: Any, write: Callable[[Any], str], values: Any) -> Texts:
    """Return `texts`, with those where `mask` is true replaced by what `write` returns for the
    value."""
    found = [write(one) for one in values.filter(mask).to_pylist()]
    return pc.replace_with_mask(texts, mask, pa.array(found, _TEXT))


def _java_text(text: str) -> str:
    return as_java(encode_basestring(text)).decode()


_FIXED: Final = (1e-3, 1e7)
"""Java writes a float between these without an exponent."""
_BACKSLASH: Final = ord("\\")
_FOUR_BYTES: Final = 0xF0
"""From this on, bytes begin characters of four bytes, which are escaped as surrogate pairs."""
_BEYOND: Final = r"[\x{10000}-\x{10FFFF}]"
_USUAL: Final = bytes(one for one in range(0x20, _FOUR_BYTES) if one not in b'"\\')
"""Bytes that need no escape in JSON."""
_WHOLE: Final = (SchemaType.INT8, SchemaType.INT16, SchemaType.INT32, SchemaType.INT64)
_WRITERS: Final[Mapping[SchemaType, Column]] = {
    SchemaType.BOOLEAN: _same_text,
    SchemaType.FLOAT32: _floating,
    SchemaType.FLOAT64: _floating,
    SchemaType.STRING: _text,
    SchemaType.BYTES: _bytes,
}
_NULLS_STAY: Final = (_whole_number, _same_text, _floating, _text)
"""Writers that return a null for a null, so that nulls need not be dropped before."""
_SINGLE: Final = writer(FLOAT32, DecimalFormat.NUMERIC, True)
_DOUBLE: Final = writer(FLOAT64, DecimalFormat.NUMERIC, True)
