"""Finds dates and timestamps that Spark wrote in the old (hybrid Julian) calendar.

Before version 3.0, and still with a setting, Spark counts days before 15 October 1582 by the Julian
calendar, and times before 1900 by the local mean time of its zone. Then the number in the file
means another day than in Parquet's definition. The metadata of the file say which calendar was
used. Source: Spark, DataSourceUtils.datetimeRebaseSpec and int96RebaseSpec, RebaseDateTime.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from headgate_connectors.formats.arrow_leaves import leaves

_VERSION: Final = b"org.apache.spark.version"
_LEGACY_TIMES: Final = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96: Final = b"org.apache.spark.legacyINT96"
_FIRST_DAY: Final = -141_427
"""15 October 1582, in days since 1970."""
GREGORIAN_SECOND: Final = _FIRST_DAY * 86_400
"""The beginning of 15 October 1582, in seconds since 1970."""
_FIRST_SECOND: Final = -2_208_988_800
"""The beginning of 1900, in seconds since 1970. Source: RebaseDateTime.lastSwitchJulianTs."""
_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def old_calendar_fault(arrow: Any, file: Any, int96: list[str]) -> Callable[[Any], str | None]:
    """Return a function that says why one of the given rows would be read as another value. It
    returns None if none would.

    Args:
        file: a `pyarrow.parquet.ParquetFile`, whose rows are passed to the function.
        int96: names of the columns that have INT96 timestamps.
    """
    told = file.metadata.metadata or {}
    version = told.get(_VERSION)
    if version is None:
        return lambda _rows: None  # the file does not say who wrote it, so the definition holds
    times = version < b"3.0.0" or _LEGACY_TIMES in told
    old_int96 = version < b"3.1.0" or _LEGACY_INT96 in told
    if not times and not old_int96:
        return lambda _rows: None

    def fault(rows: Any) -> str | None:
        for name in rows.column_names:
            is_int96 = name in int96
            wrong = old_int96 if is_int96 else times
            if wrong and has_older(arrow, rows.column(name), _FIRST_SECOND, local=is_int96):
                return (
                    f"column {name} has a date before 1582 or a time before 1900, which Spark "
                    f"{version.decode(errors='replace')} wrote by the old calendar: read the file "
                    "by SparkSource, or write it anew with Spark's setting "
                    "spark.sql.parquet.datetimeRebaseModeInWrite = CORRECTED (for INT96 "
                    "int96RebaseModeInWrite)"
                )
        return None

    return fault


def has_older(arrow: Any, column: Any, first_second: int, *, local: bool = False) -> bool:
    """Return whether a column has, at any depth, a date before 15 October 1582 or a timestamp
    before `first_second`, in seconds since 1970.

    Args:
        local: include timestamps without a zone. Spark's TIMESTAMP_NTZ does not use the old
            calendar.
    """
    return any(
        _is_old(arrow, part, first_second, local)
        for chunk in (column.chunks if isinstance(column, arrow.ChunkedArray) else [column])
        for part in _parts(arrow, chunk)
    )


def _parts(arrow: Any, array: Any) -> Iterator[Any]:
    for part in leaves(arrow, array):
        yield part.dictionary if arrow.types.is_dictionary(part.type) else part


def _is_old(arrow: Any, array: Any, first_second: int, local: bool) -> bool:
    import pyarrow.compute as pc

    kind = array.type
    if arrow.types.is_date32(kind):
        first, array = _FIRST_DAY, array.cast(arrow.int32())
    elif arrow.types.is_timestamp(kind) and (local or kind.tz is not None):
        first, array = first_second * _UNITS[kind.unit], array.cast(arrow.int64())
    else:
        return False
    least = pc.min(array).as_py()
    return least is not None and least < first
