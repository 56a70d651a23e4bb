"""What Parquet cannot hold of Arrow's columns, found before it is in a file.

Parquet's library finds it when it writes a whole row group, and does not name the column.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate_connectors.formats.arrow_leaves import leaves

_SECONDS_MAX: Final = (2**63 - 1) // 1000
"""Parquet has no seconds: they are kept as milliseconds, in 64 bits."""


def type_fault(columns: Any) -> str | None:
    """Which column of a pyarrow.Schema has a type that Parquet has not; None: none."""
    if _fault(columns) is None:
        return None
    for field in columns:
        if (reason := _fault(pa.schema([field]))) is not None:
            return f"column {field.name} is of type {field.type}, which Parquet has not: {reason}"
    return None


def _fault(columns: Any) -> str | None:
    try:
        pq.ParquetWriter(pa.BufferOutputStream(), columns).close()
    except (pa.ArrowException, OSError) as error:
        return str(error)
    return None


def value_fault(table: Any) -> str | None:
    """Which column of a Table has a time that Parquet does not hold; None: none."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if "timestamp[s" not in str(field.type):
            continue
        for chunk in column.chunks:
            for leaf in leaves(pa, chunk):
                if (wrong := _wrong_seconds(leaf)) is not None:
                    return (
                        f"column {field.name} of type {field.type} has a time of {wrong} s, which "
                        "is beyond the milliseconds that Parquet has"
                    )
    return None


def _wrong_seconds(array: Any) -> int | None:
    if not pa.types.is_timestamp(array.type) or array.type.unit != "s":
        return None
    found = pc.min_max(array.cast(pa.int64())).as_py()
    for number in (found["min"], found["max"]):
        if number is not None and abs(number) > _SECONDS_MAX:
            return int(number)
    return None
