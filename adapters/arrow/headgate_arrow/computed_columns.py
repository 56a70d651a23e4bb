"""Computed columns: values are computed one by one, or by kernels of Arrow. It needs pyarrow.

A value is converted to Python and back by its type's carrier, as in a record. A kernel is used only
if it gives the transform's result for every value of the column.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.schema import SchemaType
from headgate.connector.transforms.columns import Computed
from headgate_arrow import arrow_types

_INTEGERS: Final[Mapping[SchemaType, Any]] = {
    SchemaType.INT8: pa.int8(),
    SchemaType.INT16: pa.int16(),
    SchemaType.INT32: pa.int32(),
    SchemaType.INT64: pa.int64(),
}
_FLOATS: Final[Mapping[SchemaType, Any]] = {
    SchemaType.FLOAT32: pa.float32(),
    SchemaType.FLOAT64: pa.float64(),
}
_WHOLE: Final = frozenset([pa.bool_(), *_INTEGERS.values()])
_OFTEN_EQUAL: Final = frozenset([*_WHOLE, pa.string(), pa.date32(), arrow_types.INSTANT])
"""Types whose equal values cannot be told apart in Python. (Equal floats can: `-0.0` and `0.0`.)"""


def computed(array: Any, column: Computed, kind: Any) -> Any:
    """Return an array of type `kind` with the result of `column` for each value of `array`.

    Raises:
        Exception: an exception of the column's function for some value, or of pyarrow.
    """
    if column.target is not None:
        found = _cast(array, column.target)
        if found is not None:
            return found
    if array.type not in _OFTEN_EQUAL:
        return _each(array, column.compute, kind)
    # Equal values are computed only once.
    encoded = array.dictionary_encode()
    return pc.take(_each(encoded.dictionary, column.compute, kind), encoded.indices)


def alike(array: Any, column: Computed, kind: Any) -> Any:
    """As `computed`, for a column whose result is the same for all values that are not null."""
    valid = array.is_valid()
    first = pc.index(valid, True).as_py()
    if first < 0:
        return pa.nulls(len(array), kind)
    made = _each(array.slice(first, 1), column.compute, kind)
    return pc.take(made, pc.if_else(valid, 0, pa.scalar(None, pa.int64())))


def _each(array: Any, compute: Callable[[Any], Any], kind: Any) -> Any:
    table = pa.table({"": array})
    rows = arrow_types.rows_of(table, arrow_types.carriers(table.schema))
    made = [None if row[""] is None else compute(row[""]) for row in rows]
    return pa.array(made, arrow_types.carrier(kind)).cast(kind)


def _cast(array: Any, target: SchemaType) -> Any:
    """Return `array` cast as the transform `Cast` does. None: no kernel does it for all of its
    values."""
    if array.type in _WHOLE:
        return _cast_whole(array, target)
    if array.type in (pa.float32(), pa.float64()):
        return _cast_float(array, target)
    return array if array.type == pa.string() and target is SchemaType.STRING else None


def _cast_whole(array: Any, target: SchemaType) -> Any:
    if target is SchemaType.BOOLEAN:
        return array if array.type == pa.bool_() else pc.not_equal(array, 0)
    if target is SchemaType.STRING:
        return array.cast(pa.string())
    if target in _INTEGERS:
        return array.cast(_INTEGERS[target], safe=False)  # what is too large is wrapped
    if array.type == pa.bool_():
        array = array.cast(pa.int8())
    return array.cast(_FLOATS[target], safe=False)


def _cast_float(array: Any, target: SchemaType) -> Any:
    if target in _FLOATS:
        return array.cast(_FLOATS[target], safe=False)
    if target not in _INTEGERS:
        return None
    # Beyond this, and for NaN, C++ does not define the result.
    most = 2.0**62 if target is SchemaType.INT64 else 2.0**31 - 1
    if not pc.all(pc.less(pc.abs(array), most)).as_py():
        return None
    return array.cast(pa.int64(), safe=False).cast(_INTEGERS[target], safe=False)
