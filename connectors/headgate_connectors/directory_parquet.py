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
from headgate_connectors.directory_reader import FileFault, NotReady, Row

_MAGIC = b"PAR1"


class ParquetReader:
    """Positions are rows. A file without its footer is still being written."""

    def __init__(self, path: Path, offset: Mapping[str, Any] | None) -> None:
        self._crc = _footer_crc(path)
        position = 0 if offset is None else offset.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise FileFault(f"its source offset {offset} has no position of 0 or more")
        self._position = position
        self._arrow, self._parquet = _pyarrow()
        try:
            self._file = self._parquet.ParquetFile(path)
        except (self._arrow.ArrowException, OSError) as error:
            raise FileFault(f"its footer does not parse: {error}") from error
        count = self._file.metadata.num_rows
        changed = offset is not None and offset.get("crc", self._crc) != self._crc
        if position > count or changed:
            self._file.close()
            raise FileFault(
                f"it was read up to row {position} and is another file now, of {count} rows: "
                "replaced. Give new data a new name, or alter the connector's offset for the file"
            )
        self._groups = self._starts()
        self._batches: Any = None

    def read(self, limit: int, settled: bool) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit and self._position < self._groups[-1]:
            group = self._group()
            start = self._position
            try:
                batch = self._next_batch(group, limit - len(rows))
                values = [_text(row) for row in batch]
            except (self._arrow.ArrowException, OSError, ValueError, TypeError) as error:
                self._position = self._groups[group + 1]
                reason = f"rows {start} to {self._position} cannot be read: {error}"
                rows.append(Row(start, self._position, None, reason, self._crc))
                self._batches = None
                continue
            rows += [
                Row(row, row + 1, value, None, self._crc) for row, value in enumerate(values, start)
            ]
            self._position += len(values)
        return rows

    @property
    def has_tail(self) -> bool:
        return False

    def close(self) -> None:
        self._file.close()

    def _starts(self) -> list[int]:
        """First row of each row group, and the count of all rows."""
        starts = [0]
        for group in range(self._file.num_row_groups):
            starts.append(starts[-1] + self._file.metadata.row_group(group).num_rows)
        return starts

    def _group(self) -> int:
        return next(n for n in range(len(self._groups) - 1) if self._position < self._groups[n + 1])

    def _next_batch(self, group: int, limit: int) -> list[dict[str, Any]]:
        """Up to `limit` rows of this row group from the position on."""
        if self._batches is None or self._batches[0] != group:
            self._batches = (group, self._file.read_row_group(group))
        skip = self._position - self._groups[group]
        part = self._batches[1].slice(skip, limit)
        return _plain(self._arrow, part).to_pylist()  # type: ignore[no-any-return]


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
