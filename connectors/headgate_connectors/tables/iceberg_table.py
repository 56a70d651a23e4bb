"""An Iceberg table as an exactly-once sink sees it, by pyiceberg: no Spark, no JVM.

The offsets that the table has reached are properties of it, set in the transaction that writes the
rows. An upsert deletes the rows that have a key of the batch and appends the new ones, in the same
transaction. That alone guards nothing: pyiceberg by default tries a commit that was refused again
on the newest snapshot, and a frozen process that wakes up would write its rows once more. So such
tries are switched off (``commit.retry.num-retries`` = 0 in the metadata that the commit is made
against). Then a commit is refused unless the table's snapshot is the one whose offsets were
compared with where the batch begins. A commit that only sets properties would pass, whatever others
have done: so one that changes no row makes an empty snapshot.

A rollback sets the rows back and leaves the properties. So the id of the last snapshot with rows of
ours is a property, too: while the table's line of snapshots has it, the rows are there. The
timestamp of the last record is one as well: it tells a log that was made anew, whose offsets begin
at 0 again.
"""

import logging
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Or
from pyiceberg.table import Table, Transaction

from headgate.connector.data_error import DataError
from headgate.ports import TopicPartition
from headgate_connectors.tables.columns import Evolution, conform, merge_columns
from headgate_connectors.tables.delta_types import stored_schema
from headgate_connectors.tables.iceberg_connection import CatalogConnection
from headgate_connectors.tables.iceberg_history import is_rolled_back, renamed_columns
from headgate_connectors.tables.iceberg_partitions import (
    PartitionField,
    add_partitions,
    described,
    partitions_of,
    real_partitions,
)
from headgate_connectors.tables.sink import NO_TIME, Batch, TableError
from headgate_connectors.tables.unwritable import check_nulls, check_years

_log = logging.getLogger("headgate.connector")

RETRIES: Final = "commit.retry.num-retries"
_TRIES: Final = 50
"""Commits that may fail, each since another process has committed meanwhile."""
_CONFLICTS: Final = (CommitFailedException, CommitStateUnknownException)
_IN: Final[Callable[[str, Collection[Any]], BooleanExpression]] = cast(Any, In)
_EQUAL: Final[Callable[[str, Any], BooleanExpression]] = cast(Any, EqualTo)
"""As they are called; their annotations are those of pydantic."""
_ICEBERG: Final = "Iceberg"
_WIDER: Final = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}


class IcebergTarget:
    """One table of a catalog; one thread."""

    knows_offsets = True

    def __init__(
        self,
        name: str,
        catalog: CatalogConnection,
        app: str,
        evolution: Evolution,
        *,
        partition_by: tuple[PartitionField, ...] = (),
        accepts_loss: bool = False,
    ) -> None:
        """
        Args:
            name: namespace and table, with dots.
            catalog: raises `TableError`; it is closed with the target.
            app: what names of offsets begin with.
            partition_by: partitions of a new table.
            accepts_loss: go on behind rows that others have taken away.
        """
        self._name = name
        self._accepts_loss = accepts_loss
        self._missed = ""
        """Snapshot whose rows are gone, as was told and accepted."""
        self._catalog = catalog
        self._app = app
        self._evolution = evolution
        self._partition_by = partition_by
        self._table: Table | None = None
        self._columns: Any = None

    def read(self) -> None:
        """Look at the newest metadata of the table, if there is one.

        Raises:
            CatalogAwayError: the catalog does not answer.
            TableError: there was one, it has other partitions than the sink's, or it was rolled
                back behind rows of the sink's.
        """
        table = self._found()
        if table is None:
            if self._table is None:
                return
            raise TableError(
                f"table {self._name} is gone: it was dropped or renamed. Put it back, then restart "
                "the task"
            )
        self._check_partitions(table)
        self._check_history(table)
        self._table = table
        self._columns = self.stored_schema(table.schema().as_arrow())

    def _found(self) -> Table | None:
        """The table, with a refused commit not tried again; None: there is none."""
        for _ in range(_TRIES):
            table: Table | None = self._catalog.table(self._name)
            if table is None or table.properties.get(RETRIES) == "0":
                return table
            try:
                with table.transaction() as change:
                    change.set_properties({RETRIES: "0"})
            except _CONFLICTS:
                continue  # another task does the same, or has written
            except Exception as error:  # each catalog's library has its own
                failure = self._failure(error)
            else:
                continue
            raise failure
        raise self._always_changed()

    def _check_partitions(self, table: Table) -> None:
        there = partitions_of(table)
        if self._table is None and self._partition_by and there != self._partition_by:
            raise TableError(
                f"table {self._name} is partitioned by {described(there)}, expected "
                f"{described(self._partition_by)}, as partition.by says"
            )

    def _check_history(self, table: Table) -> None:
        last = table.properties.get(self._snapshot_key)
        if last is None or not is_rolled_back(table.metadata, int(last)):
            return
        text = (
            f"table {self._name} was rolled back by others: the rows that the sink has committed "
            f"up to snapshot {last} are not in it any more"
        )
        if not self._accepts_loss:
            raise TableError(
                f"{text}. Set the table to that snapshot again, or set on.missing.output = accept "
                "to go on behind them, or give the connector another name to write everything "
                "anew; then restart the task"
            )
        if last != self._missed:
            self._missed = last
            _log.warning("%s; on.missing.output = accept: it goes on behind them", text)

    @property
    def columns(self) -> Any:
        """A pyarrow.Schema; None: there is no table."""
        return self._columns

    def check_rows(self, rows: Any) -> None:
        """
        Raises:
            DataError: a time is beyond year 9999, a list or map of structs is null, or a column of
                the table's partitions has NaN.
        """
        check_years(rows, timestamps=True)
        check_nulls(rows)
        for name in () if self._table is None else real_partitions(self._table):
            if name in rows.schema.names and pc.any(pc.is_nan(rows.column(name))).as_py():
                raise DataError(
                    f"column {name} of the table's partitions has NaN, which pyiceberg cannot "
                    "write there: leave such rows out by a transform"
                )

    def stored_schema(self, columns: Any) -> Any:
        """As for Delta, but the least whole number has 32 bits."""
        stored = stored_schema(columns, _ICEBERG)
        return pa.schema([pa.field(one.name, _wider(one.type)) for one in stored])

    def check_names(self, columns: Any) -> None:
        """Raises TableError: one of `columns` has another name in the table by now."""
        if self._table is None:
            return
        renamed = renamed_columns(self._table.metadata)
        for name in columns.names:
            if name in renamed:
                raise TableError(
                    f"column {name} was renamed to {renamed[name]} in table {self._name}: give it "
                    "its name back there, or rename it by a transform (ReplaceField); then "
                    "restart the task"
                )

    def promotes(self, was: Any, now: Any) -> bool:
        """Source: Iceberg's specification, "Schema Evolution": what version 2 allows."""
        if pa.types.is_decimal(was) and pa.types.is_decimal(now):
            return bool(was.scale == now.scale and was.precision < now.precision)
        return (was, now) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))

    def reached(self, place: TopicPartition) -> int | None:
        """Offset up to which the metadata that was read last has the records; None: none."""
        if self._table is None:
            return None
        found = self._table.properties.get(self._key(place))
        return None if found is None else int(found)

    def last_time(self, place: TopicPartition) -> int | None:
        """Timestamp in ms of the last record of `place` in that metadata; None: not known."""
        properties = {} if self._table is None else self._table.properties
        found = int(properties.get(self._time_key(place), NO_TIME))
        return None if found == NO_TIME else found

    @property
    def _snapshot_key(self) -> str:
        """Name of the property with the last snapshot that has rows of ours."""
        return f"{self._app}.snapshot"

    def _key(self, place: TopicPartition) -> str:
        return f"{self._app}.{place[0]}-{place[1]}"

    def _time_key(self, place: TopicPartition) -> str:
        return f"{self._key(place)}.time"

    def commit(self, batch: Batch) -> bool:
        """Write the batch in one commit.

        False: the table has other offsets than those that the batch begins at; nothing was written.

        Raises:
            CatalogAwayError: the catalog does not answer. The batch may be there.
            DataError: its columns do not fit the table's.
            TableError: others have changed the table all the time, dropped it, rolled it back
                or renamed a column.
        """
        for _ in range(_TRIES):
            self.read()
            if any(self.reached(place) != start for place, start in batch.starts.items()):
                return False
            try:
                if self._table is None:
                    self._create(batch.data.schema)
                    continue
                self._write(self._table, batch)
                return True
            except _CONFLICTS:
                continue  # another process has committed meanwhile, or this one has: look again
            except (DataError, TableError):
                raise
            except Exception as error:  # each catalog's library has its own
                failure = self._failure(error)
            raise failure
        raise self._always_changed()

    def _failure(self, error: Exception) -> Exception:
        return self._catalog.failure(f"table {self._name} was not written", error)

    def _always_changed(self) -> TableError:
        return TableError(
            f"table {self._name} was changed by others during each of {_TRIES} commits"
        )

    def _create(self, columns: Any) -> None:
        self._catalog.ensure_namespace(self._name.rpartition(".")[0])
        catalog, properties = self._catalog.catalog, {RETRIES: "0"}
        with suppress(TableAlreadyExistsError):  # another task may be faster
            if not self._partition_by:
                catalog.create_table(self._name, schema=columns, properties=properties)
                return
            change = catalog.create_table_transaction(
                self._name, schema=columns, properties=properties
            )
            try:
                add_partitions(change, self._partition_by)
            except ValueError as error:
                text = f"partition.by = {described(self._partition_by)}: {error}"
                raise TableError(f"table {self._name} was not made: {text}") from error
            change.commit_transaction()

    def _write(self, table: Table, batch: Batch) -> None:
        assert table.properties.get(RETRIES) == "0", "a refused commit would be tried again"
        self.check_names(batch.data.schema)
        wanted = merge_columns(self._columns, batch.data.schema, self._evolution, self.promotes)
        before = table.metadata.current_snapshot_id
        ends = {self._key(place): str(end) for place, end in batch.ends.items()}
        for place, time in batch.times.items():
            ends[self._time_key(place)] = str(NO_TIME if time is None else time)
        with table.transaction() as change:
            if wanted.names != self._columns.names or wanted.types != self._columns.types:
                with change.update_schema() as schema:
                    schema.union_by_name(wanted)
            rows = conform(batch.data, wanted)
            if batch.keys:
                _delete(change, rows, batch.keys)
                rows = rows.filter(pc.invert(pa.array(batch.deleted, pa.bool_())))
            if rows.num_rows or change.table_metadata.current_snapshot_id == before:
                change.append(rows)  # without a snapshot of its own a late commit is not refused
            made = change.table_metadata.current_snapshot_id
            if made is not None and made != before:
                ends[self._snapshot_key] = str(made)
            change.set_properties(ends)

    def close(self) -> None:
        self._catalog.close()


def _delete(change: Transaction, rows: Any, keys: Sequence[str]) -> None:
    """Delete what has the key of one of `rows`. pyiceberg writes the files anew that have some."""
    with warnings.catch_warnings():
        # All keys may be new, and tables that ask for merge on read are told of each time.
        warnings.simplefilter("ignore", UserWarning)
        change.delete(_with_keys(rows, keys))


def _with_keys(rows: Any, keys: Sequence[str]) -> BooleanExpression:
    """True for what has the key of one of `rows`, which are not empty.

    pyiceberg takes over a millisecond for each part of an OR, so the column with the most values
    is compared with a set: a part for each combination of the others.
    """
    columns = {name: rows.column(name).to_pylist() for name in keys}
    *others, most = sorted(keys, key=lambda name: len(set(columns[name])))
    sets: dict[tuple[Any, ...], list[Any]] = {}
    for *group, value in zip(*(columns[name] for name in (*others, most)), strict=True):
        sets.setdefault(tuple(group), []).append(value)
    parts: list[BooleanExpression] = []
    for found, values in sets.items():
        part = _IN(most, values)
        for name, value in zip(others, found, strict=True):
            part = And(part, _EQUAL(name, value))
        parts.append(part)
    return parts[0] if len(parts) == 1 else Or(*parts)


def _wider(kind: Any) -> Any:
    types = pa.types
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([(field.name, _wider(field.type)) for field in fields])
    if types.is_map(kind):
        return pa.map_(_wider(kind.key_type), _wider(kind.item_type))
    if types.is_list(kind):
        return pa.list_(_wider(kind.value_type))
    return _WIDER.get(kind, kind)
