"""Helpers of the column writers: the parts of which each row's bytes consist, and their joining."""

from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headgate_arrow.arrow_types import carrier

Parts: TypeAlias = list[Any]
"""Constants (str or bytes) and arrays, which are concatenated in each row."""

_WORD: Final = 32
_NOTHING: Final = pa.scalar("", pa.large_string())
_NO_VIEW: Final = {
    pa.string_view(): pa.large_string(),
    pa.binary_view(): pa.large_binary(),
}


def plain(array: Any) -> Any:
    """Return the array without dictionary or view type. Arrow cannot drop nulls from a view
    array."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = _NO_VIEW.get(array.type)
    return array if kind is None else array.cast(kind)


def whole_numbers(array: Any) -> Any:
    """Return an array of integers from one of numbers, dates or times, as converters write them:
    days, milliseconds or other units."""
    if pa.types.is_integer(array.type):
        return array
    by_way = array.cast(carrier(array.type))
    return by_way.cast(pa.int32() if by_way.type.bit_width == _WORD else pa.int64())


def joined(parts: Parts, count: int, kind: Any) -> Any:
    """Return an array with the concatenated parts of each row.

    Args:
        parts: at least one part.
        count: the number of rows.
        kind: type of the parts and the result, large_string or large_binary.
    """
    found: Parts = []
    for part in parts:
        if found and isinstance(part, (str, bytes)) and isinstance(found[-1], (str, bytes)):
            found[-1] += part  # type: ignore[operator]
        else:
            found.append(part)
    if all(isinstance(part, (str, bytes)) for part in found):
        return pa.repeat(pa.scalar(found[0], kind), count)
    scalars = [pa.scalar(part, kind) if isinstance(part, (str, bytes)) else part for part in found]
    return pc.binary_join_element_wise(*scalars, _NOTHING.cast(kind))


def places(lists: Any) -> Any:
    """Return where each list begins in the array that `flatten` returns, and where the last one
    ends."""
    lengths = pc.list_value_length(lists).cast(pa.int64())
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])


def map_entries(maps: Any) -> tuple[Any, Any, Any]:
    """Return the keys and values of all maps, and an array with the place where each map begins in
    them and where the last one ends."""
    first, last = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    keys, items = (one.slice(first, last - first) for one in (maps.keys, maps.items))
    return keys, items, pc.subtract(maps.offsets, first).cast(pa.int64())


def as_bytes(texts: Any) -> list[bytes]:
    """Return the values of a large_string or large_binary array. It is three times as fast as
    `to_pylist`."""
    _, ends_of, data = texts.buffers()
    count, first = len(texts), texts.offset
    ends = memoryview(ends_of).cast("q")[first : first + count + 1].tolist()
    held = data.to_pybytes() if data is not None else b""
    return [held[start:end] for start, end in pairwise(ends)]


def unscaled_numbers(array: Any) -> list[int]:
    """Return the unscaled numbers of an array of decimals, or the numbers of a uint64 array. It has
    no nulls."""
    if not len(array):  # it may have no buffer
        return []
    if array.type == pa.uint64():
        return array.to_pylist()  # type: ignore[no-any-return]
    width = array.type.byte_width
    data, first = array.buffers()[1].to_pybytes(), array.offset * width
    where = range(first, first + len(array) * width, width)
    return [int.from_bytes(data[at : at + width], "little", signed=True) for at in where]


def twos_complement(number: int) -> bytes:
    """Return the two's complement of `number` in as few bytes as possible, big-endian."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)
