"""Finds the arrays of plain values inside nested Arrow arrays."""

from typing import Any


def leaves(arrow: Any, array: Any) -> list[Any]:
    """Return the arrays of plain values inside an array of structs, maps or lists."""
    types = arrow.types
    if types.is_struct(array.type):
        inner = array.flatten()
    elif types.is_map(array.type):
        # For a slice, `keys` and `items` are those of the whole array.
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        inner = [one.slice(start, end - start) for one in (array.keys, array.items)]
    elif types.is_nested(array.type):
        inner = [array.flatten()]
    else:
        return [array]
    return [part for one in inner for part in leaves(arrow, one)]
