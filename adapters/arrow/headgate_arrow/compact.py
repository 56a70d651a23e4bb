"""Removal of data that the rows of a batch do not use.

A slice of a dictionary column has the whole dictionary, a slice of a view column has the text of
all rows, and a slice of nested lists has all their offsets. So together the slices of a batch would
be many times as large as the batch.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def compacted(values: Any) -> Any:
    """Return a RecordBatch with the same values and types, without data that its rows do not
    use."""
    arrays = [_compact(column) for column in values.columns]
    if all(new is old for new, old in zip(arrays, values.columns, strict=True)):
        return values
    return pa.RecordBatch.from_arrays(arrays, schema=values.schema)


def parts(values: Any, bytes_max: int) -> list[Any]:
    """Split a batch into batches of at most `bytes_max` bytes each, if rows allow it.

    Data that rows share is repeated in each part. The parts together have at most twice the bytes
    of the whole, and are larger than `bytes_max` if that is necessary.
    """
    whole = compacted(values)
    return _parts(whole, bytes_max, 2 * _size(whole))


def _parts(values: Any, bytes_max: int, most: int) -> list[Any]:
    """As `parts`, of a compacted batch.

    Args:
        most: limit of the bytes of all parts together.
    """
    if values.num_rows <= 1 or _size(values) <= bytes_max:
        return [values]
    half = values.num_rows // 2
    halves = [compacted(values.slice(0, half)), compacted(values.slice(half))]
    both = sum(map(_size, halves))
    if both > most:
        return [values]
    return [
        part for one in halves for part in _parts(one, bytes_max, most * _size(one) // max(both, 1))
    ]


def first_part(values: Any, bytes_max: int) -> Any:
    """Return the first rows of `values`, of at most `bytes_max` bytes. They are more if it is a
    single row, or if fewer rows would hardly have fewer bytes."""
    values = compacted(values)
    while values.num_rows > 1 and (size := _size(values)) > bytes_max:
        less = compacted(values.slice(0, max(1, values.num_rows * bytes_max // size)))
        if 4 * _size(less) > 3 * size:
            break
        values = less
    return values


def _size(values: Any) -> int:
    """Return the bytes of a compacted batch."""
    return sum(
        _written(one)
        if pa.types.is_nested(one.type) and _plain(one.type) != one.type
        else one.nbytes
        for one in values.columns
    )


def _written(array: Any) -> int:
    """Return the bytes of an array as it is written. (`nbytes` ignores dictionaries inside
    lists.)"""
    out = pa.MockOutputStream()
    with pa.ipc.new_stream(out, pa.schema([("", array.type)])) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([array], [""]))
    return int(out.size())


def _compact(array: Any) -> Any:
    kind = array.type
    if pa.types.is_dictionary(kind):
        if array.dictionary.nbytes <= array.nbytes - array.dictionary.nbytes:
            return array  # the dictionary is not larger than the indices
        if kind.ordered:
            return _with_used_values(array)
    plain = _plain(kind)
    shares = plain != kind or array.get_total_buffer_size() > 2 * array.nbytes
    if pa.types.is_nested(kind) and shares:
        # A copy has only its own rows' offsets of inner lists. Writing and casting keep all.
        array = pa.concat_arrays([array])
    if plain == kind:
        return array
    try:
        return array.cast(plain).cast(kind)
    except (pa.ArrowException, ValueError):
        return array


def _with_used_values(array: Any) -> Any:
    """Return a dictionary array with only the values that are used, in their order."""
    used = pc.unique(array.indices.drop_null())
    used = used.take(pc.sort_indices(used))
    indices = pc.index_in(array.indices, used).cast(array.type.index_type)
    found = pa.DictionaryArray.from_arrays(
        indices, array.dictionary.take(used), ordered=array.type.ordered
    )
    return found.cast(array.type)


def _plain(kind: Any) -> Any:
    """Return `kind` without dictionaries and views, at any depth. An ordered dictionary remains,
    because the order of its values would be lost."""
    types = pa.types
    if types.is_dictionary(kind):
        return kind if kind.ordered else _plain(kind.value_type)
    if kind == pa.string_view():
        return pa.large_string()
    if kind == pa.binary_view():
        return pa.large_binary()
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([one.with_type(_plain(one.type)) for one in fields])
    if types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_plain(kind.key_type)),
            kind.item_field.with_type(_plain(kind.item_type)),
            kind.keys_sorted,
        )
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        return kind
    child = kind.value_field.with_type(_plain(kind.value_type))
    if types.is_large_list(kind):
        return pa.large_list(child)
    return pa.list_(child, kind.list_size if types.is_fixed_size_list(kind) else -1)
