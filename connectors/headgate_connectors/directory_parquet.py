"""Rows of a Parquet file as JSON objects. Needs pyarrow (the extra `connectors`).

How types that JSON has not are written: dates, times and timestamps in ISO 8601, decimals as text
(nothing is lost), binary as base64, durations as seconds, maps as lists of pairs, NaN and infinite
numbers as null. Nanoseconds are kept.
"""

import base64
import datetime
import decimal
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headgate.errors import MissingExtraError
from headgate_connectors.directory_input import Marks, crc_of_first, position_of, stat_text
from headgate_connectors.directory_int96 import Int96
from headgate_connectors.directory_reader import FileFault, NotReady, ReplacedError, Row

_MAGIC = b"PAR1"


class ParquetReader:
    """Positions are rows. A file without its footer is still being written."""

    def __init__(self, path: Path, offset: Mapping[str, Any] | None) -> None:
        self._crc = _footer_crc(path)
        self._position = position = position_of(offset)
        self._arrow, self._parquet = _pyarrow()
        self.marks, self._content = _identity(path, offset)
        try:
            self._file = self._parquet.ParquetFile(path, coerce_int96_timestamp_unit="us")
            self._int96 = Int96.of(self._arrow, self._parquet, self._file, path)
        except (self._arrow.ArrowException, OSError) as error:
            raise FileFault(f"its footer does not parse: {error}") from error
        count = self._file.metadata.num_rows
        known = offset or {}
        changed = known.get("crc", self._crc) != self._crc
        if position > count or changed or known.get("prefix", self._content) != self._content:
            self.close()
            raise ReplacedError(
                f"it was read up to row {position} and is another file now, of {count} rows: "
                "replaced"
            )
        self._groups = self._starts()
        self._batches: Any = None

    def read(self, limit: int, settled: bool) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit and self._position < self._groups[-1]:
            group = self._group()
            start = self._position
            try:
                part = self._next_part(group, limit - len(rows))
            except (self._arrow.ArrowException, OSError, ValueError, TypeError) as error:
                self._position = end = self._groups[group + 1]
                reason = f"rows {start} to {end} cannot be read: {error}"
                lost = end - start
                rows.append(Row(start, end, None, reason, self._crc, self._content, lost))
                self._batches = None
                continue
            self._position += part.num_rows
            rows += [
                Row(row, row + 1, value, reason, self._crc, self._content)
                for row, (value, reason) in enumerate(self._texts(part), start)
            ]
        return rows

    @property
    def has_tail(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()
        self._int96.close()

    def _starts(self) -> list[int]:
        """First row of each row group, and the count of all rows."""
        starts = [0]
        for group in range(self._file.num_row_groups):
            starts.append(starts[-1] + self._file.metadata.row_group(group).num_rows)
        return starts

    def _group(self) -> int:
        return next(n for n in range(len(self._groups) - 1) if self._position < self._groups[n + 1])

    def _next_part(self, group: int, limit: int) -> Any:
        """Up to `limit` rows of this row group from the position on, as an Arrow table."""
        if self._batches is None or self._batches[0] != group:
            self._batches = (group, self._int96.exact(self._file.read_row_group(group), group))
        skip = self._position - self._groups[group]
        return self._batches[1].slice(skip, limit)

    def _texts(self, part: Any) -> list[tuple[str | None, str | None]]:
        """Value or reason of each row. A cell that has no value in Python costs its row alone."""
        errors = (self._arrow.ArrowException, ValueError, TypeError, OverflowError)
        try:
            return [(_text(row), None) for row in _plain(self._arrow, part).to_pylist()]
        except errors as error:
            if part.num_rows > 1:
                middle = part.num_rows // 2
                return self._texts(part.slice(0, middle)) + self._texts(part.slice(middle))
            return [(None, _bad_cell(self._arrow, part, errors) or str(error))]


def _pyarrow() -> tuple[Any, Any]:
    """Raises MissingExtraError, and not FileFault: it is no fault of the file, so a tolerance of
    errors must not pass over its rows."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtraError("connectors") from error
    return pyarrow, pyarrow.parquet


def _footer_crc(path: Path) -> int:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size >= 4:
            file.seek(0)
            if file.read(4) != _MAGIC:
                raise FileFault("it does not begin as a Parquet file does (PAR1)")
        file.seek(max(0, size - 64))
        tail = file.read()
    if size < 12 or not tail.endswith(_MAGIC):
        raise NotReady("it has no Parquet footer")
    return zlib.crc32(tail, size)


def _identity(path: Path, offset: Mapping[str, Any] | None) -> tuple[Marks, int | None]:
    """Marks of the file and the CRC-32 of all its bytes, which is read again where the file may
    have changed: footers of equal length with equal ends are common."""
    stat = path.stat()
    marks = {"stat": stat_text(stat)}
    known = None if offset is None else offset.get("prefix")
    if offset is not None and offset.get("stat") == marks["stat"] and isinstance(known, int):
        return marks, known
    with path.open("rb") as file:
        return marks, crc_of_first(file, stat.st_size)


def _bad_cell(arrow: Any, row: Any, errors: tuple[type[Exception], ...]) -> str:
    """Names the columns of this one row that have no value in Python."""
    found = []
    for name, column in zip(row.column_names, row.columns, strict=True):
        try:
            _text({name: _plain(arrow, arrow.table([column], [name])).to_pylist()[0][name]})
        except errors as error:
            found.append(f"column {name}: {error}")
    return "; ".join(found)


def _plain(arrow: Any, table: Any) -> Any:
    """Nanoseconds as text, which Python's types cannot hold."""
    for index, field in enumerate(table.schema):
        kind = field.type
        if arrow.types.is_timestamp(kind) and kind.unit == "ns":
            text = table.column(index).cast(arrow.string())
            table = table.set_column(index, field.name, text)
    return table


def _text(row: dict[str, Any]) -> str:
    try:
        return json.dumps(
            row, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other
        )
    except ValueError:  # a NaN somewhere
        return json.dumps(
            _finite(row), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other
        )


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _other(value: object) -> Any:
    if isinstance(value, (datetime.date, datetime.time)):  # datetime is a date
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise TypeError(f"a value of type {type(value).__name__} has no form in JSON")
