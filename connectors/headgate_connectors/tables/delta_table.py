"""A Delta table as an exactly-once sink sees it, by delta-rs: no Spark, no JVM. Needs deltalake.

Each commit of a batch names, for every topic-partition in it, an application transaction of Delta's
protocol: an id of ours, and as its version the offset after the last record. So the table itself
says what it has. Before a commit the version is compared with where the batch begins, on the very
snapshot that the commit is made against; and a commit against a snapshot that is older than another
commit with the same id is refused by delta-rs. So of any number of processes that hold the same
records one commits, also one that was frozen in between.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema as DeltaSchema

from headgate.connector.data_error import DataError
from headgate.ports import TopicPartition
from headgate_connectors.tables.columns import Evolution, conform, merge_columns
from headgate_connectors.tables.delta_types import stored_schema, stored_type
from headgate_connectors.tables.sink import Batch, TableError

_ARROW: Final = re.compile(r"\n|(?:\x1b\[\d*m|↳)+")
_DELETED: Final = "__headgate_deleted"
_TRIES: Final = 50
"""Commits that may fail, each since another process has committed meanwhile."""


class DeltaTarget:
    """The table of one folder; one thread."""

    knows_offsets = True

    def __init__(
        self, path: Path, app: str, partition_by: Sequence[str], evolution: Evolution
    ) -> None:
        """`app`: what ids of transactions begin with."""
        self._path = path
        self._app = app
        self._partition_by = list(partition_by)
        self._evolution = evolution
        self._table: DeltaTable | None = None
        self._columns: Any = None
        self._partitions = self._partition_by
        """Columns of the table's partitions, or of those that it will get."""
        self._schema_json = ""

    # -- what is there --

    def read(self) -> None:
        """Look at the newest version of the table, if there is one.

        Raises:
            TableError: it is partitioned by other columns than the sink's, or its log is not the
                one that was read before.
        """
        if self._table is None:
            try:
                self._table = DeltaTable(self._path)
            except TableNotFoundError:
                return
            self._check_partitions(self._table)
            self._partitions = list(self._table.metadata().partition_columns)
        else:
            with self._going_on():
                self._table.update_incremental()
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
            DataError: an empty text in a column of the table's partitions.
        """
        for name in self._partitions:
            if name not in rows.schema.names:
                continue
            column = rows.column(name)
            is_text = pa.types.is_string(column.type) or pa.types.is_binary(column.type)
            if is_text and pc.any(pc.equal(pc.binary_length(column), 0)).as_py():
                raise DataError(
                    f"column {name} of partition.by has an empty text, which Delta reads as null: "
                    "give it a text, or leave the column out of partition.by"
                )

    def check_names(self, columns: Any) -> None:
        """delta-rs writes to no table whose columns may be renamed."""

    def reached(self, place: TopicPartition) -> int | None:
        """Offset up to which the snapshot that was read last has the records; None: it has none."""
        if self._table is None:
            return None
        with self._going_on():
            found: int | None = self._table.transaction_version(self._id(place))
        return found

    def _id(self, place: TopicPartition) -> str:
        return f"{self._app}/{place[0]}-{place[1]}"

    # -- a batch --

    def commit(self, batch: Batch) -> bool:
        """Write the batch in one commit.

        False: the table has other offsets than those that the batch begins at; nothing was written.

        Raises:
            DataError: its columns do not fit the table's.
            TableError: the table cannot be written.
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
                told = _in_a_line(error)
                raise TableError(f"the table at {self._path} was not written: {told}") from error
        raise TableError(
            f"the table at {self._path} was changed by others during each of {_TRIES} commits"
        )

    def close(self) -> None: ...

    def _create(self, columns: Any) -> None:
        missing = [name for name in self._partition_by if name not in columns.names]
        if missing:
            raise DataError(f"partition.by names {missing[0]}, which the value has no column for")
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
        transactions = [Transaction(self._id(place), end) for place, end in batch.ends.items()]
        properties = CommitProperties(app_transactions=transactions)
        data = conform(batch.data, self._columns)
        if batch.keys:
            _merge(table, data, batch, properties)
        else:
            write_deltalake(table, data, mode="append", commit_properties=properties)


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


def _in_a_line(error: Exception) -> str:
    """What delta-rs says, without the arrows and colours between its parts."""
    return ": ".join(part.strip() for part in _ARROW.split(str(error)) if part.strip())


def _quoted(name: str) -> str:
    return f"`{name}`"


def _columns_of(schema: Any) -> Any:
    """The table's columns as a pyarrow.Schema, spelt as `stored_schema` spells types."""
    there = pa.schema(schema.to_arrow())
    return pa.schema([(one.name, stored_type(one.type, one.name)) for one in there])
