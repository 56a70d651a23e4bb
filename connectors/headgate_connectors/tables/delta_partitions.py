"""Checks of the values in partition columns of a Delta table, which its log holds as text.

delta-rs reads some values back as other ones than were written. They are refused, and the error
names the column.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.data_error import DataError
from headgate_connectors.tables.sink import TableError

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""Folder of the rows with null. If a batch has both nulls and this text, delta-rs takes the text
for null."""


def check_partition_types(columns: Any, partitions: Sequence[str]) -> None:
    """Check the types of the partition columns.

    Args:
        columns: pyarrow.Schema of the table.

    Raises:
        TableError: a partition column has bytes. delta-rs writes escapes for them, and reads the
            escapes back as the value.
    """
    for name in partitions:
        if _is_bytes(columns.field(name).type):
            raise TableError(
                f"column {name} of the table's partitions has bytes, which delta-rs does not read "
                "as they were written: choose another column for partition.by"
            )


def check_partition_values(name: str, column: Any) -> None:
    """Check the values of one partition column.

    Args:
        column: values of the partition column, as the table stores them.

    Raises:
        DataError: Delta's log cannot hold one of the values.
    """
    kind = column.type
    if pa.types.is_string(kind):
        if pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
            raise _refused(name, "an empty text, which Delta reads as null", "a text")
        if pc.any(pc.equal(column, _NULL)).as_py():
            raise _refused(name, f"the text {_NULL}, which stands for null", "another text")
    elif pa.types.is_decimal(kind) and kind.scale and pc.any(pc.less(column, 0)).as_py():
        raise _refused(name, "a decimal below zero, which delta-rs cannot write", "another value")


def _refused(name: str, what: str, instead: str) -> DataError:
    return DataError(
        f"column {name} of partition.by has {what}: give it {instead}, or leave the column out of "
        "partition.by"
    )


def _is_bytes(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )
