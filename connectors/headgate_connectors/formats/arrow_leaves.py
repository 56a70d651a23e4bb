"""The arrays of plain values within an array of lists, maps or structs."""

from typing import Any


def leaves(arrow: Any, array: Any) -> list[Any]:
    """The arrays without parts that stand in an array of structs, maps or lists."""
    types = arrow.types
    if types.is_struct(array.type):
        inner = array.flatten()
    elif types.is_map(array.type):
        # Of a slice they are those of the whole.
        start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        inner = [one.slice(start, end - start) for one in (array.keys, array.items)]
    elif types.is_nested(array.type):
        inner = [array.flatten()]
    else:
        return [array]
    return [part for one in inner for part in leaves(arrow, one)]
