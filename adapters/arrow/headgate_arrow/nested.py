"""Helpers for nested Arrow arrays, and for dictionary arrays with odd codes.

In the fields of a null struct, pyarrow puts a dictionary code whose word may not exist, and Arrow's
casts look at it. Other writers store a null as a word of the dictionary, which Arrow does not count
as a null.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def inner_arrays(array: Any) -> list[Any]:
    """Return the arrays inside an array of structs, maps or lists, without the content of null
    ones."""
    if pa.types.is_struct(array.type):
        return list(array.flatten())
    if pa.types.is_map(array.type):
        offsets = array.offsets
        start, end = offsets[0].as_py(), offsets[-1].as_py()
        return [one.slice(start, end - start) for one in (array.keys, array.items)]
    return [array.flatten()]


def null_count(array: Any) -> int:
    """Return the number of null values, including those whose dictionary word is null."""
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary_decode()
    return int(array.null_count)


def has_odd_codes(values: Any) -> bool:
    """Return whether a RecordBatch has odd dictionary codes: a word is null, or a null value hides
    a code without a word."""
    return any(_is_odd(one) for one in values.columns if has_dictionary(one.type))


def _is_odd(array: Any) -> bool:
    if pa.types.is_dictionary(array.type):
        return bool(array.dictionary.null_count)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return any(_is_odd(one) for one in inner_arrays(array) if has_dictionary(one.type))


def decoded(table: Any) -> Any:
    """Return a Table with the same values, without dictionaries inside structs, lists and maps."""
    columns = [_decoded_column(column) for column in table.columns]
    if all(new is old for new, old in zip(columns, table.columns, strict=True)):
        return table
    fields = [
        field.with_type(column.type) for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _decoded_column(column: Any) -> Any:
    if not pa.types.is_nested(column.type) or not has_dictionary(column.type):
        return column
    kind = _without(column.type)
    return pa.chunked_array([_decoded(chunk) for chunk in column.chunks], kind)


def has_dictionary(kind: Any) -> bool:
    """Return whether a type is dictionary-encoded, or has such a type inside."""
    if pa.types.is_dictionary(kind):
        return True
    return any(has_dictionary(kind.field(at).type) for at in range(kind.num_fields))


def _without(kind: Any) -> Any:
    """Return `kind` without dictionaries inside. Its inner fields are nullable, because null values
    hide nulls in them."""
    types = pa.types
    if types.is_dictionary(kind):
        return kind.value_type
    if not has_dictionary(kind):
        return kind
    inner = [kind.field(at) for at in range(kind.num_fields)]
    fields = [one.with_type(_without(one.type)).with_nullable(True) for one in inner]
    if types.is_struct(kind):
        return pa.struct(fields)
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        item = item.with_type(_without(item.type)).with_nullable(True)
        return pa.map_(key.with_type(_without(key.type)), item)
    if types.is_large_list(kind):
        return pa.large_list(fields[0])
    return pa.list_(fields[0], kind.list_size if types.is_fixed_size_list(kind) else -1)


def _decoded(array: Any) -> Any:
    kind, types = array.type, pa.types
    if types.is_dictionary(kind):
        return array.dictionary_decode()
    if not has_dictionary(kind):
        return array
    made = _without(kind)
    valid = array.is_valid().buffers()[1] if array.null_count else None
    inner = [_decoded(one) for one in inner_arrays(array)]
    if types.is_struct(kind):
        return pa.Array.from_buffers(made, len(array), [valid], children=inner)
    if types.is_map(kind):
        ends = pc.subtract(array.offsets, array.offsets[0]).buffers()[1]
        keys, items = inner
        pair = pa.struct([made.key_field, made.item_field])
        entries = pa.Array.from_buffers(pair, len(keys), [None], children=[keys, items])
        return pa.Array.from_buffers(made, len(array), [valid, ends], children=[entries])
    if types.is_fixed_size_list(kind):
        # `flatten` returns no items for null lists, but the list array needs room for them.
        items, some = iter(range(len(inner[0]))), array.is_valid().to_pylist()
        at = [next(items) if one else None for one in some for _ in range(kind.list_size)]
        inner = [inner[0].take(pa.array(at, pa.int64()))]
        return pa.Array.from_buffers(made, len(array), [valid], children=inner)
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    first = pa.array([0], lengths.type)
    ends = pa.concat_arrays([first, pc.cumulative_sum(lengths)])
    return pa.Array.from_buffers(made, len(array), [valid, ends.buffers()[1]], children=inner)
