"""Values in the partition columns of a Delta table, which are text in its log.

Some come out of it as others, as delta-rs writes and reads them, so they are refused by name.
"""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headgate.connector.data_error import DataError
from headgate_connectors.tables.sink import TableError

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows with null. delta-rs takes this text for null where a batch has both."""


def check_partition_types(columns: Any, partitions: Sequence[str]) -> None:
    """
    Args:
        columns: pyarrow.Schema of the table.

    Raises:
        TableError: a partition column is of bytes, which delta-rs reads as the escapes that it
            has written for them.
    """
    for name in partitions:
        if _is_bytes(columns.field(name).type):
            raise TableError(
                f"column {name} of the table's partitions has bytes, which delta-rs does not read "
                "as they were written: choose another column for partition.by"
            )


def check_partition_values(name: str, column: Any) -> None:
    """
    Args:
        column: values of the partition column, as the table stores them.

    Raises:
        DataError: one of them has no form in Delta's log.
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
