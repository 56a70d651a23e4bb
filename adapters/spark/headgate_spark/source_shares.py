"""What SparkSource reads in the modes bulk and incrementing: one share of the rows at a time.

An offset of bulk is the number of rows that were read in the order of their JSON text, with the sum
of their hashes. A query that is run again skips that many rows and compares the sum. So a change of
the source meanwhile is noticed, and nothing is lost or doubled silently.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headgate.connector.api import (
    DataError,
    OffsetUpdate,
    Partition,
    SourceItem,
    SourceRecord,
    SourceTaskContext,
)
from headgate.connector.config import ConfigError
from headgate_spark.arrow_rows import RowReader, check_columns, tables
from headgate_spark.source_config import Settings

_HASH: Final = "__headgate_hash"
_TEXT: Final = "__headgate_text"
_MASK: Final = 2**64 - 1
_MICROS: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_AS_TEXT: Final = {
    "timestampFormat": f"{_MICROS}XXX",
    "timestampNTZFormat": _MICROS,
    "ignoreNullFields": "false",
}
"""Options of to_json that keep all of a value."""


class SourceChangedError(Exception):
    """The source has changed since its first rows were read. The message is for users."""


def share_partition(settings: Settings, share: int) -> dict[str, Any]:
    """Return the source partition of one share."""
    return {"source": settings.source, "share": share, "of": settings.shares}


def check_shares(context: SourceTaskContext, settings: Settings) -> None:
    """Check committed offsets against the settings.

    Raises:
        ConfigError: rows of another source were written, or with another number of shares.
    """
    again = (
        "set it back, or stop the connector and reset its offsets to write everything anew, or "
        "give the connector another name"
    )
    for partition, _ in context.offsets.committed():
        if "of" not in partition:
            continue
        if partition["of"] != settings.shares:
            text = f"rows were written with {partition['of']} shares: {again}"
            raise ConfigError.of("shares", settings.shares, text)
        if partition["source"] != settings.source:
            name, value = settings.source_setting
            before = partition["source"]
            raise ConfigError.of(name, value, f"rows of {before} were written: {again}")


class Share(ABC):
    """Rows of one share, in the order of their offsets. Subclasses define the query."""

    def __init__(self, settings: Settings, context: SourceTaskContext, share: int) -> None:
        self._settings = settings
        self._context = context
        self._share = share
        self.partition: Partition = share_partition(settings, share)
        self._reader = RowReader()
        self._stream: Iterator[Any] | None = None

    def next_batch(self, session: Any) -> list[SourceItem]:
        """Return the next rows. Empty: there are none now.

        Raises:
            DataError, SourceChangedError: rows cannot be used.
            Exception: as Spark's client raises it. `rewind` goes back to the last batch.
        """
        if self._stream is None:
            self._stream = self._open(session)
        if self._stream is None:
            return []
        for table in self._stream:
            if items := self._items(table):
                return items
        self._stream = None
        return self._exhausted()

    def rewind(self) -> None:
        """Forget the query under way."""
        self._stream = None

    @abstractmethod
    def _open(self, session: Any) -> Iterator[Any] | None:
        """Return the Arrow tables of a query. None: there is nothing new."""

    @abstractmethod
    def _items(self, table: Any) -> list[SourceItem]:
        """Return the records of one table."""

    @abstractmethod
    def _exhausted(self) -> list[SourceItem]:
        """Handle the end of the query's rows. Return items that say so, if any."""

    def _mine(self, frame: Any, number: Any) -> Any:
        from pyspark.sql import functions as fn

        if self._settings.shares == 1:
            return frame
        return frame.where(fn.expr(f"pmod({number}, {self._settings.shares}) = {self._share}"))

    def _records(self, table: Any, offsets: list[Mapping[str, Any]]) -> list[SourceItem]:
        schema, values = self._reader.values(table)
        partition, topic = self.partition, self._settings.topic
        return [
            SourceRecord(partition, offset, topic, value, value_schema=schema)
            for offset, value in zip(offsets, values, strict=True)
        ]


class BulkShare(Share):
    def __init__(self, settings: Settings, context: SourceTaskContext, share: int) -> None:
        super().__init__(settings, context, share)
        given = context.offsets.offset(self.partition) or {}
        self._rows = int(given.get("rows", 0))
        self._sum = int(given.get("sum", "0"))
        self._done = bool(given.get("done"))
        self._passed = self._seen = 0

    def _open(self, session: Any) -> Iterator[Any] | None:
        from pyspark.sql import functions as fn

        if self._done:
            return None
        frame = self._settings.load(session)
        check_columns(frame)
        text = fn.to_json(fn.struct(*(frame[_quoted(name)] for name in frame.columns)), _AS_TEXT)
        frame = frame.withColumn(_TEXT, text).withColumn(_HASH, fn.expr(f"xxhash64({_TEXT})"))
        frame = self._mine(frame, _HASH).orderBy(_TEXT).drop(_TEXT)
        self._passed = self._seen = 0
        return tables(session, frame)

    def _items(self, table: Any) -> list[SourceItem]:
        hashes = table.column(_HASH).to_pylist()
        table = table.drop_columns([_HASH])
        skip = min(self._rows - self._passed, table.num_rows)
        if skip > 0:
            self._passed += skip
            self._seen = (self._seen + sum(hashes[:skip])) & _MASK
            if self._passed == self._rows:
                self._check()
            table, hashes = table.slice(skip), hashes[skip:]
        offsets: list[Mapping[str, Any]] = []
        total = self._sum
        for number, found in enumerate(hashes, self._rows + 1):
            total = (total + found) & _MASK
            offsets.append({"rows": number, "sum": str(total)})
        items = self._records(table, offsets)
        self._rows += len(offsets)
        self._passed += len(offsets)
        self._sum = total
        return items

    def _check(self) -> None:
        if self._seen != self._sum:
            raise SourceChangedError(
                f"the first {self._rows} rows of share {self._share} are not those that were "
                "written: the source has changed since. Put it back, or stop the connector and "
                "reset its offsets to write all of it anew"
            )

    def _exhausted(self) -> list[SourceItem]:
        if self._passed < self._rows:
            raise SourceChangedError(
                f"share {self._share} has {self._passed} rows now, but {self._rows} of it were "
                "written: the source has changed since. Put it back, or stop the connector and "
                "reset its offsets to write all of it anew"
            )
        self._done = True
        offset = {"rows": self._rows, "sum": str(self._sum), "done": True}
        return [OffsetUpdate(self.partition, offset)]


class IncrementingShare(Share):
    def __init__(self, settings: Settings, context: SourceTaskContext, share: int) -> None:
        super().__init__(settings, context, share)
        given = context.offsets.offset(self.partition)
        self._at: int | None = None if given is None else int(given["at"])
        self._bound: int | None = None
        """Greatest number that was there at `_bound_at`."""
        self._bound_at = 0.0
        self._looked_at = float("-inf")

    def _open(self, session: Any) -> Iterator[Any] | None:
        now = time.monotonic()
        if self._bound is None:
            if now - self._looked_at < self._settings.interval_s:
                return None
            self._looked_at = now
            if not self._look(*self._frame(session)):
                return None
        if time.monotonic() - self._bound_at < self._settings.settle_s:
            self._context.await_input()
            return None
        frame, column = self._frame(session)
        rows = frame.where(column <= self._bound)
        if self._at is not None:
            rows = rows.where(column > self._at)
        return tables(session, self._mine(rows, _quoted(self._settings.column)).orderBy(column))

    def _frame(self, session: Any) -> tuple[Any, Any]:
        """Return the source's DataFrame, and the column in it."""
        frame = self._settings.load(session)
        self._check_column(frame)
        return frame, frame[_quoted(self._settings.column)]

    def _look(self, frame: Any, column: Any) -> bool:
        """Find the greatest number. Return whether it is a new one.

        Raises:
            DataError: a row has none.
        """
        from pyspark.sql import functions as fn

        if self._at is not None:
            frame = frame.where((column > self._at) | column.isNull())
        row = frame.agg(fn.max(column), fn.count_if(column.isNull())).collect()[0]
        greatest, nulls = row
        if nulls:
            raise DataError(
                f"{nulls} rows have null in column {self._settings.column}, so they would never be "
                "read: give them numbers, or leave them out (for JDBC by option.query)"
            )
        if greatest is None:
            return False
        self._bound, self._bound_at = int(greatest), time.monotonic()
        return True

    def _check_column(self, frame: Any) -> None:
        """Check the column.

        Raises:
            ConfigError: there is no such column, or it does not have whole numbers.
        """
        check_columns(frame)
        name = self._settings.column
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        if name not in kinds:
            raise ConfigError.of("incrementing.column", name, f"expected one of {', '.join(kinds)}")
        kind = kinds[name]
        if kind not in _WHOLE and not (kind.startswith("decimal") and kind.endswith(",0)")):
            raise ConfigError.of(
                "incrementing.column", name, f"is of type {kind}, expected whole numbers"
            )

    def _items(self, table: Any) -> list[SourceItem]:
        numbers = [int(found) for found in table.column(self._settings.column).to_pylist()]
        at = self._at
        for number in numbers:
            if number == at:
                raise DataError(
                    f"column {self._settings.column} has {number} in more than one row, expected "
                    "each number once: rows that come later with a number that was read are lost"
                )
            at = number
        items = self._records(table, [{"at": number} for number in numbers])
        self._at = at
        return items

    def _exhausted(self) -> list[SourceItem]:
        # Rows of other shares are not this one's: it has seen all of its rows up to there.
        if self._bound is not None and self._settings.shares > 1:
            self._at = self._bound
        self._bound = None
        return []


_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
