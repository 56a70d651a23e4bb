"""Records into a table that keeps the offsets itself, exactly once: what is common to the formats.

Rows are gathered for ``rotate.interval.ms``, ``rotate.records`` or ``rotate.bytes``, then committed
as one batch, together with the offsets that the table has reached for each topic-partition. What
the table says counts; the group's offsets only follow.
"""

import time
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol

import pyarrow as pa

from headgate.connector.api import DataError, RetriableError, SinkRecord, SinkTask
from headgate.connector.batches import SinkBatch
from headgate.connector.schema import Schema
from headgate.ports import TopicPartition
from headgate_arrow import arrow_types
from headgate_connectors.output.other_log import MADE_ANEW, other_log
from headgate_connectors.output.rows import VALUE, as_struct, at, refuse, value_schema
from headgate_connectors.tables import change_events
from headgate_connectors.tables.batch import Layout, Row, Taken
from headgate_connectors.tables.columns import Evolution, merge_columns, with_types
from headgate_connectors.tables.keys import KeyColumns

_ASK_AGAIN_MS: Final = 1_000
_NO_VALUE: Final = (pa.ArrowException, ValueError, OverflowError, KeyError)
NO_TIME: Final = -1
"""What a table has for the timestamp of a record that has none."""


class TableError(Exception):
    """The table cannot be read or written, or is not as the sink has left it. For users."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit writes."""

    data: Any
    """pyarrow.Table."""
    starts: Mapping[TopicPartition, int | None]
    """Offset that the table must have reached before; None: nothing of this partition."""
    ends: Mapping[TopicPartition, int]
    keys: Sequence[str] = ()
    """Columns of the key, each row of `data` with another; none: rows are appended."""
    deleted: Sequence[bool] = ()
    """For each row of `data`, if there are `keys`: what has its key is deleted."""
    times: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """Timestamps in milliseconds of the records before `ends`."""


class Target(Protocol):
    """A table; see `headgate_connectors.tables.delta_table` for what each call does."""

    knows_offsets: bool
    """False: it keeps none, so the group's offsets count, and rows may come twice."""

    def read(self) -> None: ...

    @property
    def columns(self) -> Any: ...

    def stored_schema(self, columns: Any) -> Any: ...

    def check_rows(self, rows: Any) -> None: ...

    def check_names(self, columns: Any) -> None: ...

    def promotes(self, was: Any, now: Any) -> bool: ...

    def reached(self, place: TopicPartition) -> int | None: ...

    def last_time(self, place: TopicPartition) -> int | None:
        """Timestamp of the record before the offset that `reached` tells; None: not known."""
        ...

    def commit(self, batch: Batch) -> bool: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings that all table sinks share."""

    keys: Sequence[str]
    """Columns of the key; none: rows are appended."""
    evolution: Evolution
    skips_null: bool
    accepts_loss: bool
    rows: int
    size: int
    interval_s: float
    change_events: bool = False
    """Values are change events of Debezium."""


@dataclass(slots=True)
class _Partition:
    committed: int | None
    """Offset that the table has reached; None: it has nothing of the partition."""
    next: int = -1
    """Offset after the last record that was taken; -1: none was."""
    time: int | None = None
    """Timestamp of that record in milliseconds."""
    began: int | None = None
    """Offset of the first record that was given, while the table has nothing of the partition."""
    taken: Taken = field(default_factory=Taken)
    resumed: bool = True
    """The rest of the batch under way is delivered anew, from `committed` on."""


class TableSinkTask(SinkTask):
    """Subclasses open the table."""

    # An executor would only hold a slot for it: what it needs is memory and the table.
    IN_WORKER_PROCESS: ClassVar[bool] = True

    @abstractmethod
    def open_target(self, config: Mapping[str, str]) -> tuple[TableSettings, Target]:
        """The settings that all tables share, and the table."""

    def start(self, config: Mapping[str, str]) -> None:
        self._settings, self._target = self.open_target(config)
        self._keys = KeyColumns(self._settings.keys)
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._layouts: dict[Schema, Layout] = {}
        self._given: Schema | None = None
        """Schema of the last row, whose layout is `_layout`."""
        self._layout: Layout | None = None
        self._columns: Any = None
        """Columns of the table and of what was taken since."""
        self._since: float | None = None
        """When the first row of the batch was taken; None: there is none."""
        self._unopened: set[TopicPartition] = set()
        """Partitions for which the table could not be asked where they end."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self._unopened.update(partitions)
        try:
            self._open_all()
        except RetriableError as error:
            self.context.log(str(error))
            self.context.timeout(_ASK_AGAIN_MS)

    def _open_all(self) -> None:
        """
        Raises:
            RetriableError: the table cannot be asked now. The next `put` does so again.
        """
        if self._unopened:
            places, by_group = sorted(self._unopened), self.context.committed()
            self._resume(places, by_group)
            for place in places:
                if not by_group.get(place):  # a log that was made anew has none
                    self._check_log(place)
            self._unopened.clear()

    def _resume(
        self, places: Collection[TopicPartition], by_group: Mapping[TopicPartition, int]
    ) -> None:
        """Go on where the table ends, or where the first record was if it has none yet.

        Args:
            by_group: what the sink's group has committed.
        """
        self._target.read()
        for place in places:
            reached = self._target.reached(place)
            if self._target.knows_offsets and reached is None and by_group.get(place, 0) > 0:
                self._tell_missing(place, by_group[place])
            before = self._partitions.get(place)
            began = None if before is None or reached is not None else before.began
            self._partitions[place] = _Partition(reached, began=began)
            start = began if reached is None else reached
            if start is not None:
                self.context.offset(*place, start)
        self._forget_columns()

    def _tell_missing(self, place: TopicPartition, by_group: int) -> None:
        text = (
            f"the table knows nothing of {place[0]}-{place[1]}, but the sink has committed its "
            f"records up to offset {by_group}: the table was made anew, or is another one"
        )
        if not self._settings.accepts_loss:
            raise TableError(
                f"{text}. Put the table back, or set on.missing.output = accept to go on behind "
                "them, or give the connector another name to write everything anew"
            )
        self.context.log(text)

    def _check_log(self, place: TopicPartition) -> None:
        """
        Raises:
            TableError: the table has records of another log, and that is not accepted.
        """
        reached = self._target.reached(place)
        if reached is None:
            return
        expected = self._target.last_time(place)
        text = other_log(self.context.record_time, "the table has", place, reached, expected)
        if text is None:
            return
        if not self._settings.accepts_loss:
            raise TableError(
                f"{text}. {MADE_ANEW}. Give the connector another name, and another table or path, "
                "to write them; to leave them out, set on.missing.output = accept"
            )
        self.context.log(f"{text}: going on behind them, as on.missing.output is accept")

    # -- records --

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._begin()
        for record in records:
            self._take(record)
        self._end()

    def takes_batches(self) -> bool:
        return not self._settings.keys

    def put_batch(self, batch: SinkBatch) -> None:
        self._begin()
        if not self._take_batch(batch):
            for record in _records(batch):
                self._take(record)
        self._end()

    def _begin(self) -> None:
        for partition in self._partitions.values():
            partition.resumed = False  # what comes now was read after the resume
        late = set(self._unopened)
        self._open_all()
        for place in late:
            # Where the table has nothing, what comes now is the first; else it is delivered anew.
            self._partitions[place].resumed = self._partitions[place].committed is not None

    def _end(self) -> None:
        for partition in self._partitions.values():
            partition.taken.convert(self._refuse)
        if self._is_due():
            self._commit()
            self.context.request_commit()
        self._ask_to_be_called()

    def _take_batch(self, batch: SinkBatch) -> bool:
        """Take the columns as they are. False: nothing was taken, and its records are to be."""
        partition = self._partitions.get((batch.topic, batch.partition))
        if partition is None or batch.offset < (partition.committed or 0):
            return False  # which is told of its first record
        start, end = max(batch.offset, partition.next), batch.offset + batch.count
        if partition.resumed or start >= end:
            return True  # it is delivered anew, or was delivered before
        part = batch.part(start - batch.offset, end - start)
        try:
            layout = self._layout_of_batch(part)
        except DataError:
            return False
        table = None if layout is None else layout.columns(part.values)
        if table is None:
            return False
        if partition.committed is None and partition.began is None:
            partition.began = start
        if self._since is None:
            self._since = time.monotonic()
        partition.taken.add_table(table)
        partition.next, partition.time = end, batch.timestamp_ms
        return True

    def _layout_of_batch(self, batch: SinkBatch) -> Layout | None:
        """Raises DataError, which does not name the record."""
        if batch.value_schema is not self._given or self._layout is None:
            self._layout = self._laid_out(batch.value_schema, deleted=False)
            self._given = batch.value_schema
        return self._layout

    def _take(self, record: SinkRecord) -> None:
        partition = self._partitions.get((record.topic, record.partition))
        if partition is None:
            raise DataError(
                f"{at(record)} is of none of the task's topics: a transform that renames the topic "
                "cannot be used before a sink that keeps its offsets in a table"
            )
        if partition.resumed:
            return  # it is delivered anew
        if partition.committed is None and partition.began is None:
            partition.began = record.offset
        if record.offset < (partition.committed or 0):
            raise TableError(
                f"{record.topic}-{record.partition} gives offset {record.offset}, but the table "
                f"has its records up to offset {partition.committed}: the topic was made anew, or "
                "has lost its end. Give the connector another name to write what is in it now"
            )
        if record.offset < partition.next:
            return  # delivered again after an error
        try:
            row = self._row(record)
        except DataError as error:
            self._refuse(record, error)
            row = None
        if row is not None:
            if self._since is None:
                self._since = time.monotonic()
            partition.taken.add(record, *row, self._refuse)
        partition.next, partition.time = record.offset + 1, record.timestamp_ms

    def _refuse(self, record: SinkRecord, error: DataError) -> None:
        refuse(self.context, record, error)

    def _row(self, record: SinkRecord) -> tuple[Layout, Row, bool] | None:
        """A record's row, how it becomes columns, and whether it is a deletion; None: it is passed
        over.

        Raises:
            DataError: the table cannot take it.
        """
        if self._settings.change_events:
            record = change_events.plain(record)
        if record.value is not None:
            given, deleted = value_schema(record), False
            if self._settings.keys:
                self._keys.check_value(record, given)
            row = record.value if as_struct(given) is given else {VALUE: record.value}
        elif self._settings.keys:
            given, row = self._keys.of_key(record)
            deleted = True
        else:
            self._check_null(record)
            return None
        layout = self._layout_of(record, given, deleted)
        return None if layout is None else (layout, row, deleted)

    def _check_null(self, record: SinkRecord) -> None:
        if not self._settings.skips_null:
            raise DataError(
                f"{at(record)} has no value (a tombstone), expected one: set on.null.value = skip "
                "to pass over such records, or write.mode = upsert to have rows deleted by them"
            )

    def _layout_of(self, record: SinkRecord, given: Schema, deleted: bool) -> Layout | None:
        """None: it is a deletion, and there is no table."""
        if given is not self._given or self._layout is None:
            try:
                self._layout = self._laid_out(given, deleted)
            except DataError as error:
                self._layout = None
                raise DataError(f"{at(record)}: {error}") from error
            self._given = given
        return self._layout

    def _laid_out(self, given: Schema, deleted: bool) -> Layout | None:
        layout = self._layouts.get(given)
        if layout is None:
            if deleted and self._columns is None:
                return None
            layout = Layout.of(given, self._target.stored_schema, self._target.check_rows)
            self._keys.check_types(layout.stored)
            self._target.check_names(layout.stored)
            self._columns = merge_columns(
                self._columns, layout.stored, self._settings.evolution, self._target.promotes
            )
            layout = self._layouts[given] = layout.in_columns(self._columns)
        return layout

    # -- batches --

    def _is_due(self) -> bool:
        if self._since is None:
            return False
        taken = [partition.taken for partition in self._partitions.values()]
        return (
            time.monotonic() - self._since >= self._settings.interval_s
            or sum(one.rows for one in taken) >= self._settings.rows
            or sum(one.size for one in taken) >= self._settings.size
        )

    def _commit(self) -> None:
        """Commit what was taken of all partitions. Where another process was first, go on where
        the table is now."""
        with_rows = {
            place: partition
            for place, partition in self._partitions.items()
            if partition.taken.rows
        }
        if not with_rows:
            self._since = None
            return
        batch = self._batch(with_rows)
        committed = self._target.commit(batch)
        self._since = None
        if committed:
            for place, partition in with_rows.items():
                partition.committed, partition.taken = batch.ends[place], Taken()
            return
        self._check_not_set_back()
        places = ", ".join(f"{topic}-{number}" for topic, number in sorted(with_rows))
        self.context.log(f"another task has written what follows in {places}: its rows count")
        self._resume(list(self._partitions), {})

    def _check_not_set_back(self) -> None:
        """Another task only moves a table on. One that has less than before is not ours any more,
        and what this task holds begins behind a gap in it."""
        for place, partition in self._partitions.items():
            before, now = partition.committed, self._target.reached(place)
            if before is not None and (now is None or now < before):
                has = "knows nothing of it" if now is None else f"has it up to offset {now}"
                raise TableError(
                    f"the table had {place[0]}-{place[1]} up to offset {before}, and now {has}: "
                    "somebody has made it anew or set it back. Put it back, then restart the task"
                )

    def _batch(self, with_rows: Mapping[TopicPartition, _Partition]) -> Batch:
        tables = [table for one in with_rows.values() for table in one.taken.tables]
        if self._settings.evolution is Evolution.WIDEN:
            tables = self._alike(tables)
        data = pa.concat_tables(tables, promote_options="default")
        starts = {place: one.committed for place, one in with_rows.items()}
        ends = {place: one.next for place, one in with_rows.items()}
        times = {place: one.time for place, one in with_rows.items()}
        if not self._settings.keys:
            return Batch(data, starts, ends, times=times)
        counts = {place: one.taken.rows for place, one in with_rows.items()}
        last = self._keys.last_rows(data, counts)
        deleted = [flag for one in with_rows.values() for flag in one.taken.deleted]
        kept = [deleted[row] for row in last]
        rows = data.take(pa.array(last))
        return Batch(rows, starts, ends, self._settings.keys, kept, times)

    def _alike(self, tables: list[Any]) -> list[Any]:
        """The tables with one type for each column, which may have become wider since the first
        of them was made. Raises `DataError`."""
        columns = self._columns
        for table in tables:
            columns = merge_columns(
                columns, table.schema, self._settings.evolution, self._target.promotes
            )
        return [with_types(table, columns) for table in tables]

    def _forget_columns(self) -> None:
        self._columns = self._target.columns
        self._layouts, self._given, self._layout = {}, None, None

    def _ask_to_be_called(self) -> None:
        if self._since is not None:
            left = self._since + self._settings.interval_s - time.monotonic()
            self.context.timeout(max(int(left * 1000), 0) + 1)

    # -- offsets --

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Offsets that the table has reached. The last batch is committed when the task stops."""
        if self.context.stopping:
            self._commit()
        safe: dict[TopicPartition, int] = {}
        for place, offset in offsets.items():
            partition = self._partitions.get(place)
            if partition is None:
                continue
            if not partition.resumed and not partition.taken.rows:
                safe[place] = offset  # what is not in the table was passed over
            elif partition.committed is not None:
                safe[place] = min(offset, partition.committed)
        return safe

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            self._partitions.pop(place, None)
            self._unopened.discard(place)
        if not any(partition.taken.rows for partition in self._partitions.values()):
            self._since = None

    def stop(self) -> None:
        self.close(list(getattr(self, "_partitions", ())))
        target: Target | None = getattr(self, "_target", None)
        if target is not None:
            target.close()


def _records(batch: SinkBatch) -> list[SinkRecord]:
    """The records that a batch stands for, without headers.

    Raises:
        DataError: a row has no form as a value, such as a map with a key twice; names the column.
    """
    table = pa.Table.from_batches([batch.values])
    try:
        rows = arrow_types.rows_of(table, arrow_types.carriers(table.schema))
    except _NO_VALUE:
        for name in table.schema.names:
            _check_column(table.select([name]), batch)
        raise
    place, key, at_ms = (batch.topic, batch.partition), batch.key, batch.timestamp_ms
    schemas = (batch.key_schema, batch.value_schema)
    return [
        SinkRecord(*place, batch.offset + number, key, row, (), at_ms, *schemas)
        for number, row in enumerate(rows)
    ]


def _check_column(table: Any, batch: SinkBatch) -> None:
    """Raises `DataError`: the one column of `table`, which is part of `batch`, has such a row."""
    try:
        arrow_types.rows_of(table, arrow_types.carriers(table.schema))
    except _NO_VALUE as error:
        raise DataError(
            f"a value of {batch.topic}-{batch.partition} from offset {batch.offset} on: column "
            f"{table.schema.names[0]}: {error}"
        ) from error
