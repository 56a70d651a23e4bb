"""A Delta table as an exactly-once sink sees it, by delta-rs: no Spark, no JVM. Needs deltalake.

Each commit of a batch names, for every topic-partition in it, an application transaction of Delta's
protocol: an id of ours, and as its version the offset after the last record. So the table itself
says what it has. Before a commit the version is compared with where the batch begins, on the very
snapshot that the commit is made against; and a commit against a snapshot that is older than another
commit with the same id is refused by delta-rs. So of any number of processes that hold the same
records one commits, also one that was frozen in between.

A RESTORE sets the rows back and leaves the transactions. So a second transaction for each partition
names a version at which its rows were there, and the log is read from that one on. A third one has
the timestamp of the last record: it tells a log that was made anew, whose offsets begin at 0 again.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema as DeltaSchema

from headgate.connector.data_error import DataError
from headgate.ports import TopicPartition
from headgate_connectors.tables.columns import Evolution, conform, merge_columns
from headgate_connectors.tables.delta_errors import in_a_line
from headgate_connectors.tables.delta_history import DeltaLog
from headgate_connectors.tables.delta_partitions import (
    check_partition_types,
    check_partition_values,
)
from headgate_connectors.tables.delta_types import stored_schema, stored_type
from headgate_connectors.tables.sink import NO_TIME, Batch, TableError
from headgate_connectors.tables.unwritable import check_years

_log = logging.getLogger("headgate.connector")

_DELETED: Final = "__headgate_deleted"
_TRIES: Final = 50
"""Commits that may fail, each since another process has committed meanwhile."""
_BEHIND: Final = 100
"""Commits after which a partition that has no new rows is looked after, too: so a task that starts
reads the log from there at most, as long as the sink was writing."""


class DeltaTarget:
    """The table of one folder; one thread."""

    knows_offsets = True

    def __init__(
        self,
        path: Path,
        app: str,
        partition_by: Sequence[str],
        evolution: Evolution,
        *,
        accepts_loss: bool = False,
    ) -> None:
        """
        Args:
            path: of the table's folder.
            app: what ids of transactions begin with.
            partition_by: columns of a new table's partitions.
            evolution: what becomes of columns that the table lacks.
            accepts_loss: go on behind rows that others have taken away.
        """
        self._path = path
        self._app = app
        self._accepts_loss = accepts_loss
        self._partition_by = list(partition_by)
        self._evolution = evolution
        self._table: DeltaTable | None = None
        self._columns: Any = None
        self._partitions = self._partition_by
        """Columns of the table's partitions, or of those that it will get."""
        self._schema_json = ""
        self._looked_at = -1
        """Version up to which nobody has undone what was committed for the ids of `_anchors`."""
        self._anchors: dict[str, int] = {}
        """Versions that the table says were looked at, for each id."""

    # -- what is there --

    def read(self) -> None:
        """Look at the newest version of the table, if there is one.

        Raises:
            TableError: it is partitioned by other columns than the sink's, its log is not the
                one that was read before, or others have undone commits of the sink.
        """
        if self._table is None:
            try:
                self._table = DeltaTable(self._path)
            except TableNotFoundError:
                return
            self._check_partitions(self._table)
            self._partitions = list(self._table.metadata().partition_columns)
            check_partition_types(_columns_of(self._table.schema()), self._partitions)
        else:
            with self._going_on():
                self._table.update_incremental()
        self._check_history(self._table, self._looked_at, list(self._anchors))
        self._looked_at = self._table.version()
        schema = self._table.schema()
        text = schema.to_json()
        if text != self._schema_json:
            self._schema_json, self._columns = text, _columns_of(schema)

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Reads the log further, which delta-rs may do late. Raises `TableError`."""
        try:
            yield
        except DeltaError as error:
            raise TableError(
                f"the table at {self._path} does not go on where it was ({error}): it was "
                "dropped, made anew or set back. Put it back, then restart the task"
            ) from error

    def _check_partitions(self, table: DeltaTable) -> None:
        there = list(table.metadata().partition_columns)
        if self._partition_by and there != self._partition_by:
            raise TableError(
                f"the table at {self._path} is partitioned by {', '.join(there) or 'nothing'}, "
                f"expected {', '.join(self._partition_by)}, as partition.by says"
            )

    def _check_history(self, table: DeltaTable, since: int, ids: Sequence[str]) -> None:
        undone = DeltaLog(self._path).undone(table.version(), since, ids) if ids else None
        if undone is None:
            return
        text = (
            f"the table at {self._path} {undone.told}: rows that the sink has committed before "
            "are not in it any more"
        )
        if not self._accepts_loss:
            raise TableError(
                f"{text}. Restore it to version {undone.version - 1}, or set on.missing.output = "
                "accept to go on behind them, or give the connector another name to write "
                "everything anew; then restart the task"
            )
        _log.warning("%s; on.missing.output = accept: it goes on behind them", text)

    @property
    def columns(self) -> Any:
        """A pyarrow.Schema; None: there is no table."""
        return self._columns

    def stored_schema(self, columns: Any) -> Any:
        """See `headgate_connectors.tables.delta_types`."""
        return stored_schema(columns)

    def check_rows(self, rows: Any) -> None:
        """
        Raises:
            DataError: a date is beyond year 9999, or a column of the table's partitions has a
                value that Delta has no form for.
        """
        check_years(rows, timestamps=False)
        for name in self._partitions:
            if name in rows.schema.names:
                check_partition_values(name, rows.column(name))

    def check_names(self, columns: Any) -> None:
        """delta-rs writes to no table whose columns may be renamed."""

    def promotes(self, was: Any, now: Any) -> bool:
        """delta-rs changes the type of no column: a table keeps those that it has."""
        return False

    def reached(self, place: TopicPartition) -> int | None:
        """Offset up to which the snapshot that was read last has the records; None: it has none.

        Raises:
            TableError: others have undone commits of records of `place`.
        """
        if self._table is None:
            return None
        name = self._id(place)
        with self._going_on():
            found: int | None = self._table.transaction_version(name)
            if name in self._anchors:
                return found
            anchor = self._table.transaction_version(_anchor(name))
        version = self._table.version()
        if anchor is not None:
            self._check_history(self._table, anchor, [name])
        self._anchors[name] = version if anchor is None else anchor
        return found

    def last_time(self, place: TopicPartition) -> int | None:
        """Timestamp in ms of the last record of `place` in that snapshot; None: not known."""
        if self._table is None:
            return None
        with self._going_on():
            found: int | None = self._table.transaction_version(_time(self._id(place)))
        return None if found == NO_TIME else found

    def _id(self, place: TopicPartition) -> str:
        return f"{self._app}/{place[0]}-{place[1]}"

    # -- a batch --

    def commit(self, batch: Batch) -> bool:
        """Write the batch in one commit.

        False: the table has other offsets than those that the batch begins at; nothing was written.

        Raises:
            DataError: its columns do not fit the table's.
            TableError: the table cannot be written, or others have undone commits of the sink.
        """
        for _ in range(_TRIES):
            self.read()
            if any(self.reached(place) != start for place, start in batch.starts.items()):
                return False
            try:
                if self._table is None:
                    self._create(batch.data.schema)
                    continue
                if self._add_columns(self._table, batch):
                    continue  # the offsets are looked at again, on the new snapshot
                self._write(self._table, batch)
                return True
            except CommitFailedError:
                continue  # another process has committed meanwhile: look again
            except (DeltaError, OSError) as error:
                told = in_a_line(error)
                raise TableError(f"the table at {self._path} was not written: {told}") from error
        raise TableError(
            f"the table at {self._path} was changed by others during each of {_TRIES} commits"
        )

    def close(self) -> None: ...

    def _create(self, columns: Any) -> None:
        missing = [name for name in self._partition_by if name not in columns.names]
        if missing:
            raise DataError(f"partition.by names {missing[0]}, which the value has no column for")
        check_partition_types(columns, self._partition_by)
        self._path.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(self._path, columns, partition_by=self._partition_by)
        except DeltaError:
            if not DeltaTable.is_deltatable(str(self._path)):
                raise
            # Another task was faster.

    def _add_columns(self, table: DeltaTable, batch: Batch) -> bool:
        """Add the columns that the table lacks, in a commit of their own. False: it lacks none."""
        wanted = merge_columns(self._columns, batch.data.schema, self._evolution)
        if len(wanted) == len(self._columns):
            return False
        added = DeltaSchema.from_arrow(pa.schema(list(wanted)[len(self._columns) :]))
        table.alter.add_columns(added.fields)
        return True

    def _write(self, table: DeltaTable, batch: Batch) -> None:
        ends = {self._id(place): end for place, end in batch.ends.items()}
        old = self._looked_at - _BEHIND
        looked_at = {
            name: self._looked_at
            for name, anchor in self._anchors.items()
            if name in ends or anchor < old
        }
        times = {
            _time(self._id(place)): NO_TIME if time is None else time
            for place, time in batch.times.items()
        }
        named = ends | times | {_anchor(name): version for name, version in looked_at.items()}
        properties = CommitProperties(
            app_transactions=[Transaction(name, version) for name, version in named.items()]
        )
        data = conform(batch.data, self._columns)
        if batch.keys:
            _merge(table, data, batch, properties)
        else:
            write_deltalake(table, data, mode="append", commit_properties=properties)
        self._anchors |= looked_at


def _anchor(name: str) -> str:
    """Id of the transaction whose version is one of the table's: the one that was looked at."""
    return f"{name}/version"


def _time(name: str) -> str:
    """Id of the transaction whose version is the timestamp of the last record."""
    return f"{name}/time"


def _merge(table: DeltaTable, data: Any, batch: Batch, properties: CommitProperties) -> None:
    """Update, insert and delete by key; `batch` has each key once."""
    source = data.append_column(_DELETED, pa.array(batch.deleted, pa.bool_()))
    on = " AND ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in batch.keys)
    columns: Mapping[str, str] = {
        _quoted(name): f"source.{_quoted(name)}" for name in data.schema.names
    }
    (
        table.merge(
            source,
            on,
            source_alias="source",
            target_alias="target",
            commit_properties=properties,
        )
        .when_matched_delete(f"source.{_DELETED}")
        .when_matched_update(dict(columns))
        .when_not_matched_insert(dict(columns), f"NOT source.{_DELETED}")
        .execute()
    )


def _quoted(name: str) -> str:
    return f"`{name}`"


def _columns_of(schema: Any) -> Any:
    """The table's columns as a pyarrow.Schema, spelt as `stored_schema` spells types."""
    there = pa.schema(schema.to_arrow())
    return pa.schema([(one.name, stored_type(one.type, one.name)) for one in there])
