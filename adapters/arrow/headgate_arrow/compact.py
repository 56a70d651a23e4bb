"""Batches without what their rows do not use.

A slice of a dictionary column has the whole dictionary, one of a view column all text of the whole,
and one of lists inside lists all their offsets. So the slices of a batch would be many times as
large as the batch.
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def compacted(values: Any) -> Any:
    """A RecordBatch with the same values and types, and with no more than its rows use."""
    arrays = [_compact(column) for column in values.columns]
    if all(new is old for new, old in zip(arrays, values.columns, strict=True)):
        return values
    return pa.RecordBatch.from_arrays(arrays, schema=values.schema)


def parts(values: Any, bytes_max: int) -> list[Any]:
    """`values` as batches of at most `bytes_max` bytes each, as far as rows can be parted. All of
    them together have at most twice the bytes of the whole: what rows share is in each part."""
    whole = compacted(values)
    return _parts(whole, bytes_max, 2 * _size(whole))


def _parts(values: Any, bytes_max: int, most: int) -> list[Any]:
    """
    Args:
        most: bytes that all parts may have.
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
    """The first rows of `values`, at most `bytes_max` bytes of them, as far as rows can be
    parted and fewer rows have fewer bytes."""
    values = compacted(values)
    while values.num_rows > 1 and (size := _size(values)) > bytes_max:
        less = compacted(values.slice(0, max(1, values.num_rows * bytes_max // size)))
        if 4 * _size(less) > 3 * size:
            break
        values = less
    return values


def _size(values: Any) -> int:
    """Bytes of a compacted batch."""
    return sum(
        _written(one)
        if pa.types.is_nested(one.type) and _plain(one.type) != one.type
        else one.nbytes
        for one in values.columns
    )


def _written(array: Any) -> int:
    """Bytes of an array as it is written: `nbytes` leaves out dictionaries inside lists."""
    out = pa.MockOutputStream()
    with pa.ipc.new_stream(out, pa.schema([("", array.type)])) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([array], [""]))
    return int(out.size())


def _compact(array: Any) -> Any:
    kind = array.type
    if pa.types.is_dictionary(kind):
        if array.dictionary.nbytes <= array.nbytes - array.dictionary.nbytes:
            return array  # the indices are most of it
        if kind.ordered:
            return _with_used_values(array)
    plain = _plain(kind)
    shares = plain != kind or array.get_total_buffer_size() > 2 * array.nbytes
    if pa.types.is_nested(kind) and shares:
        # Offsets of inner lists are written as the whole has them, and a cast keeps all of them.
        array = pa.concat_arrays([array])
    if plain == kind:
        return array
    try:
        return array.cast(plain).cast(kind)
    except (pa.ArrowException, ValueError):
        return array


def _with_used_values(array: Any) -> Any:
    """A dictionary array with the values that are used, in the order they have."""
    used = pc.unique(array.indices.drop_null())
    used = used.take(pc.sort_indices(used))
    indices = pc.index_in(array.indices, used).cast(array.type.index_type)
    found = pa.DictionaryArray.from_arrays(
        indices, array.dictionary.take(used), ordered=array.type.ordered
    )
    return found.cast(array.type)


def _plain(kind: Any) -> Any:
    """`kind` without dictionaries and views, wherever they are in it. What has an ordered one
    inside is as it is: the order of its values would be lost."""
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
