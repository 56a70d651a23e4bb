"""DirectorySink: records to files of one folder, exactly once, without Spark.

The sibling of DirectorySource. A value with a schema is a row with its columns, each of the type
that the schema says; any other value is a row with the one column ``value``. A file takes records
of one topic-partition, and is published when it has ``rotate.records`` records, ``rotate.bytes``
bytes, or is ``rotate.interval.ms`` old. What is committed is told by the manifest
(`headgate_connectors.output.manifest`), not by the group's offsets, which follow.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from headgate.connector import schema as s
from headgate.connector.api import (
    DataError,
    ExactlyOnceSupport,
    SinkConnector,
    SinkRecord,
    SinkTask,
)
from headgate.connector.batches import SinkBatch
from headgate.connector.config import ConfigDef, ConfigError
from headgate.connector.schema import Schema, SchemaType
from headgate.connector.sink_names import sink_topics
from headgate.ports import TopicPartition
from headgate_arrow import arrow_types
from headgate_arrow.arrow_types import NoFormError
from headgate_arrow.rows import sink_records
from headgate_arrow.widening import LossError
from headgate_arrow.wider_columns import WiderColumns
from headgate_connectors.formats.column_kinds import parse_columns, struct_of_kinds
from headgate_connectors.output.directory_config import CONFIG, DIRECTORY, config_faults, path_fault
from headgate_connectors.output.folder_columns import SinkColumns
from headgate_connectors.output.folders import naming
from headgate_connectors.output.manifest import ManifestError, SinkManifest
from headgate_connectors.output.other_log import check_log
from headgate_connectors.output.parquet_columns import type_fault
from headgate_connectors.output.part_files import StagedFiles
from headgate_connectors.output.partition_state import PartitionState
from headgate_connectors.output.partitions import (
    HIDDEN,
    PartitionBy,
    hidden_fault,
    json_fields,
    json_names,
    pin_text,
)
from headgate_connectors.output.refill import LOOK_SECONDS, WAYS_ON, Refill, empty_text, loss_text
from headgate_connectors.output.rows import VALUE, as_struct, at, refuse, value_schema
from headgate_connectors.output.writers import (
    ENDINGS,
    LINE,
    FullError,
    Row,
    Writer,
    json_row,
    open_writer,
)


class DirectorySinkTask(SinkTask):
    def start(self, config: Mapping[str, str]) -> None:
        settings = CONFIG.parse(config)
        self._root = Path(config.get(DIRECTORY) or settings["path"]).absolute()
        self._format: str = settings["format"]
        self._most_rows: int = settings["rotate.records"]
        self._most_bytes: int = settings["rotate.bytes"]
        self._interval: float = settings["rotate.interval.ms"] / 1000
        self._skips_null = settings["on.null.value"] == "skip"
        self._on_missing: str = settings["on.missing.output"]
        self._connector = config.get("name", "")
        widens = settings["schema.evolution"] == "widen"
        self._columns = SinkColumns(self._root, widens=widens)
        self._kinds = parse_columns(settings["columns.types"])
        self._open_max: int = settings["open.max"]
        self._keeps_columns: bool = settings["partition.keep.columns"]
        by, timezone = settings["partition.by"], settings["partition.timezone"]
        self._by = PartitionBy(by, timezone)
        self._pin_text = pin_text(by, timezone, self._keeps_columns) if self._by else None
        self._open_folder()
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._given: Schema | None = None
        """Schema of the last value, whose columns are `_pinned`."""
        self._pinned = _ONLY_TEXT
        self._struct = _ONLY_TEXT
        """The same as a STRUCT."""
        self._wider: WiderColumns | None = None
        """What makes columns of `_struct` those of `_pinned`; None: they are of the same types."""

    def open(self, partitions: Collection[TopicPartition]) -> None:
        for topic, _ in partitions:
            if topic.startswith(HIDDEN):
                raise ConfigError(f"topic {hidden_fault(topic)}")
        by_group = self.context.committed() if partitions else {}
        for place in partitions:
            if not by_group.get(place):
                check_log(self.context, self._manifest, place, self._on_missing)
            self._resume(place, by_group.get(place, 0))
        self._ask_to_be_called()

    def _open_folder(self) -> None:
        self._manifest = SinkManifest(self._root, ENDINGS[self._format])
        self._manifest.claim(self._connector)
        self._manifest.pin_partitions(self._pin_text)
        if self._kinds:
            self._columns.take(struct_of_kinds(self._kinds))

    def _resume(self, place: TopicPartition, by_group: int) -> None:
        """Go on behind the last committed file, or write anew the first one that is gone.

        Args:
            by_group: offset that the sink's group has committed; 0: none, or it does not matter.

        Raises:
            ManifestError: a committed file is gone, or the whole folder is.
        """
        found = self._manifest.resume(place)
        rewrites, start, refill = self._on_missing == "rewrite", found.end, None
        if found.gone:
            self._tell(loss_text(self._root, found.gone, self._manifest))
        if found.gone and rewrites:
            refill = Refill(self._manifest, found.gone, ENDINGS[self._format])
            start = refill.start(self.context, found.end or 0)
        if found.end is None and by_group > 0:
            self._tell(empty_text(self._root, place, by_group))
            start = 0 if rewrites else by_group
        self._partitions[place] = PartitionState(
            found.end, resumed=True, last=found.last, refill=refill
        )
        if start is not None:
            self.context.offset(*place, start)

    def _tell(self, loss: str) -> None:
        """
        Raises:
            ManifestError: it is not to be passed over.
        """
        if self._on_missing == "fail":
            raise ManifestError(f"{loss}: {WAYS_ON}")
        does = {"rewrite": "writing them anew", "accept": "going on without them"}
        self.context.log(
            f"{loss}: {does[self._on_missing]}, as on.missing.output is {self._on_missing}"
        )

    def _is_there(self, place: TopicPartition, partition: PartitionState) -> bool:
        """Whether the folder has the last files of the partition. Else it is resumed.

        Raises:
            ManifestError: it has not, and `on.missing.output` is fail.
        """
        if partition.last is None or not self._manifest.missing(partition.last):
            return True
        if partition.files is not None:
            partition.files.drop()
        by_group = partition.committed or 0
        if not self._manifest.exists():
            if self._on_missing == "fail":
                self._tell(empty_text(self._root, place, by_group))
            self._open_folder()
            self._given = None  # the folder has no columns: those of the next record are pinned
        self._resume(place, by_group)
        return False

    def put(self, records: Sequence[SinkRecord]) -> None:
        for partition in self._partitions.values():
            partition.resumed = False  # what comes now was read after the resume
        with naming(self._root):
            for record in records:
                self._take(record)
            for place, partition in list(self._partitions.items()):
                if partition.files is not None:
                    partition.files.write()
                self._rotate(place, partition)
            self._end_refills()
        self._ask_to_be_called()

    def _take(self, record: SinkRecord) -> None:
        place = (record.topic, record.partition)
        partition = self._partitions.get(place)
        if partition is None:
            raise DataError(
                f"{at(record)} is of none of the task's topics: a transform that renames the "
                "topic cannot be used before a DirectorySink"
            )
        if not self._wants(place, partition, record.offset):
            return
        made = self._made(record)
        if made is not None and not self._add(place, partition, record, *made):
            return
        partition.next, partition.time = record.offset + 1, record.timestamp_ms
        if partition.refill is not None and partition.next >= partition.refill.entry.end:
            self._end_refill(place, partition, partition.refill)
        files = partition.files
        if files is not None and files.pending >= _ROWS_AT_ONCE:
            files.write()
            self._rotate(place, partition)

    def _wants(self, place: TopicPartition, partition: PartitionState, offset: int) -> bool:
        """False: what is there is delivered anew, was delivered before, or is in a file."""
        if partition.resumed or offset < partition.next:
            return False
        if partition.refill is None:
            return offset >= (partition.committed or 0)
        if offset >= partition.refill.entry.end:  # the log has lost those before it
            self._end_refill(place, partition, partition.refill)
            return False
        return offset >= partition.refill.entry.start

    def takes_batches(self) -> bool:
        return self._format in ("parquet", "arrow") and not self._by

    def put_batch(self, batch: SinkBatch) -> None:
        for partition in self._partitions.values():
            partition.resumed = False
        place, end = (batch.topic, batch.partition), batch.offset + batch.count
        known = self._partitions[place]
        start = max(batch.offset, known.next, known.committed or 0)
        if (refill := known.refill) is not None:
            start = max(batch.offset, known.next, refill.entry.start)
            end = min(end, refill.entry.end)
        with naming(self._root):
            if start < end:
                batch = batch.part(start - batch.offset, end - start)
                self._take_batch(place, known, batch)
            ended = refill is not None and max(known.next, batch.offset) >= refill.entry.end
            if refill is not None and ended and not self._partitions[place].resumed:
                self._end_refill(place, known, refill)
            for other, partition in list(self._partitions.items()):
                self._rotate(other, partition)
            self._end_refills()
        self._ask_to_be_called()

    def _take_batch(
        self, place: TopicPartition, partition: PartitionState, batch: SinkBatch
    ) -> None:
        if batch.value_schema is not self._given:
            self._pin(
                batch.value_schema, f"the batch at {place[0]}-{place[1]} offset {batch.offset}"
            )
        if self._wider is not None:
            try:
                batch = replace(batch, values=self._wider.batch(batch.values))
            except LossError:
                self._take_one_by_one(place, batch)
                return
        columns, taken = self._pinned, 0
        while taken < batch.count:
            files = self._files(place, partition, batch.offset + taken, columns)
            if files is None:
                return  # what was not written is delivered anew
            partition = self._partitions[place]
            left = batch.count - taken
            count = (
                left if partition.refill is not None else min(left, self._most_rows - files.rows)
            )
            if count > 0:
                part = batch.part(taken, count)
                try:
                    files.add_batch(part.values, count)
                except FullError:
                    if partition.refill is not None:
                        raise
                    self._finish(place, partition)
                    partition = self._partitions[place]
                    continue
                except DataError:
                    self._take_one_by_one(place, batch.part(taken, left))
                    return
                taken += count
                partition.next, partition.time = part.offset + count, batch.timestamp_ms
            self._rotate(place, partition)
            partition = self._partitions[place]

    def _take_one_by_one(self, place: TopicPartition, batch: SinkBatch) -> None:
        """Take the rows of a batch of which one is refused."""
        for record in sink_records(batch):
            self._take(record)
        files = self._partitions[place].files
        if files is not None:
            files.write()

    def _made(self, record: SinkRecord) -> tuple[Schema, Row, str] | None:
        """What `_row` makes of a record; None: it is passed over, or reported.

        Raises:
            DataError: no row can be made of it, and there is no errant record reporter.
        """
        try:
            if record.value is not None:
                return self._row(record)
            if not self._skips_null:
                raise DataError(
                    f"{at(record)} has no value (a tombstone), expected one: set on.null.value = "
                    "skip to pass over such records"
                )
        except DataError as error:
            refuse(self.context, record, error)
        return None

    def _add(
        self,
        place: TopicPartition,
        partition: PartitionState,
        record: SinkRecord,
        columns: Schema,
        row: Row,
        folder: str,
    ) -> bool:
        """Add the row of a record to its file. False: it is delivered anew."""
        if partition.refill is not None:
            if not partition.refill.wants(record, folder):
                return True
        elif self._by and (partition.files is None or folder not in partition.files):
            self._make_room()
            if self._partitions[place] is not partition:
                return False
        files = self._files(place, partition, record.offset, columns)
        if files is None:
            return False
        files.add(folder, row, record)
        return True

    def _files(
        self, place: TopicPartition, partition: PartitionState, offset: int, columns: Schema
    ) -> StagedFiles | None:
        """Files with such columns for the record at `offset`, which may be new ones. None: the
        record is delivered anew."""
        files = partition.files
        if files is not None and files.columns is not columns and files.columns != columns:
            if partition.refill is not None:
                self._fill_again(place, partition, partition.refill)
            else:
                self._finish(place, partition)
        if self._partitions[place] is not partition or partition.resumed:
            return None
        if partition.files is None:
            if not self._is_there(place, partition):
                return None
            partition.files = self._opened(place, partition, offset, columns)
        return partition.files

    def _opened(
        self, place: TopicPartition, partition: PartitionState, offset: int, columns: Schema
    ) -> StagedFiles:
        start = offset if partition.committed is None else partition.committed
        if partition.refill is not None:
            start = partition.refill.entry.start
        return StagedFiles(
            *(start, time.monotonic(), columns),
            partial(self._manifest.stage, place, start),
            self._open_file,
            partial(refuse, self.context),
        )

    def _make_room(self) -> None:
        """For one more file."""
        groups = {
            place: one.files
            for place, one in self._partitions.items()
            if one.files is not None and one.refill is None
        }
        if sum(map(len, groups.values())) >= self._open_max:
            place = max(groups, key=lambda one: len(groups[one]))
            self._finish(place, self._partitions[place])
            self.context.request_commit()

    def _open_file(self, staged: str, columns: Schema) -> Writer:
        if self._by.fields and not self._keeps_columns and columns is not LINE:
            columns = self._by.without_fields(columns)
        return open_writer(self._format, self._root / staged, columns)

    def _row(self, record: SinkRecord) -> tuple[Schema, Row, str]:
        """Columns of the folder, after those of this record, its row, and the folder of it."""
        if self._format == "jsonl":  # lines have no columns in common
            return self._json_row(record)
        given = value_schema(record)
        row = record.value if given.type is SchemaType.STRUCT else {VALUE: record.value}
        if given is not self._given:
            self._pin(given, at(record))
        folder = self._by.folder(record, self._struct, row) if self._by else ""
        if self._wider is not None:
            (wider,) = self._wider.rows([row])
            if isinstance(wider, str):
                raise DataError(f"{at(record)}: {wider}")
            row = {**row, **wider}
        return self._pinned, row, folder

    def _pin(self, given: Schema, where: str) -> None:
        struct = as_struct(given)
        try:
            self._by.check_names(found.name for found in struct.fields)
            fault = type_fault(arrow_types.arrow_schema(struct))
            if fault is not None and self._format == "parquet":
                raise DataError(f"{fault}; set format = arrow, or leave the column out")
            self._pinned = self._columns.take(struct)
        except (DataError, NoFormError) as error:
            raise DataError(f"{where}: {error}") from error
        self._given, self._struct = given, struct
        wider = WiderColumns(*map(arrow_types.arrow_schema, (struct, self._pinned)))
        self._wider = wider or None

    def _json_row(self, record: SinkRecord) -> tuple[Schema, Row, str]:
        value, schema = record.value, record.value_schema
        if not self._by:
            return LINE, {VALUE: json_row(record, schema, value)}, ""
        if self._by.fields:
            row, schema = json_fields(record, self._keeps_columns)
        else:
            row = {}
        try:
            self._by.check_names(row or json_names(record))
        except DataError as error:
            raise DataError(f"{at(record)}: {error}") from error
        folder = self._by.folder(record, schema, row)
        if self._by.fields and not self._keeps_columns:
            value = {name: one for name, one in row.items() if name not in self._by.fields}
            schema = None if schema is None else self._by.without_fields(schema)
        return LINE, {VALUE: json_row(record, schema, value)}, folder

    # -- files --

    def _rotate(self, place: TopicPartition, partition: PartitionState) -> None:
        files = partition.files
        if files is None or partition.refill is not None:
            return
        due = time.monotonic() - files.since >= self._interval
        if due or files.is_full(self._most_rows, self._most_bytes):
            self._finish(place, partition)
            self.context.request_commit()

    def _finish(self, place: TopicPartition, partition: PartitionState) -> None:
        """Commit the partition's files. Another task that was first has written its records."""
        files = partition.files
        if files is None or not self._is_there(place, partition):
            return
        files.write()
        partition.files = None
        staged = files.close()
        end = partition.next, files.rows, staged, partition.time
        entry = self._manifest.commit(place, files.start, *end)
        if entry is not None:
            partition.committed, partition.last = partition.next, entry
        else:
            self.context.log(
                f"{place[0]}-{place[1]} from offset {files.start} on was written by another task: "
                "its file counts"
            )
            self._resume(place, 0)

    def _end_refill(self, place: TopicPartition, partition: PartitionState, refill: Refill) -> None:
        """Publish the files of the entry that is filled, and go on with the next one. They may be
        without rows: the log has lost its records."""
        files, entry = partition.files, refill.entry
        if files is None:
            columns = LINE if self._format == "jsonl" else self._columns.known() or _ONLY_TEXT
            files = self._opened(place, partition, entry.start, columns)
        partition.files, partition.resumed = None, True
        files.write()
        files.need(refill.folders)
        staged = files.close()
        self._manifest.refill(entry, staged)
        self.context.log(
            f"{files.rows} records of {place[0]}-{place[1]} from offset {entry.start} to "
            f"{entry.end - 1} were written anew; {entry.path} had {entry.rows}"
        )
        if refill.go_on():
            partition.next = -1
            self.context.offset(*place, refill.start(self.context, partition.committed or 0))
        else:
            self._resume(place, 0)  # and look whether all are there

    def _end_refills(self) -> None:
        """End those of which the log has nothing more, which no record tells."""
        for place, partition in list(self._partitions.items()):
            refill = partition.refill
            if refill is None or partition.resumed:
                continue
            if refill.is_due(partition.next) and refill.is_read(self.context, partition.next):
                self._end_refill(place, partition, refill)

    def _end_read(self, place: TopicPartition, partition: PartitionState, delivered: int) -> None:
        """End a refill up to which all was delivered, or the last of it as the task stops."""
        refill = partition.refill
        if refill is None or partition.resumed:
            return  # what was delivered was so before the refill began
        ended = delivered >= refill.entry.end
        if ended or (self.context.stopping and refill.is_read(self.context, delivered)):
            self._end_refill(place, partition, refill)

    def _fill_again(self, place: TopicPartition, partition: PartitionState, refill: Refill) -> None:
        """Begin an entry anew, since its file must have the columns of all its records."""
        if partition.files is not None:
            partition.files.drop()
        partition.files, partition.next, partition.resumed = None, -1, True
        self.context.offset(*place, refill.start(self.context, partition.committed or 0))

    def _ask_to_be_called(self) -> None:
        since = [
            one.files.since
            for one in self._partitions.values()
            if one.files is not None and one.refill is None
        ]
        fills = any(one.refill is not None for one in self._partitions.values())
        if since or fills:
            left = min(since) + self._interval - time.monotonic() if since else LOOK_SECONDS
            left = min(left, LOOK_SECONDS) if fills else left
            self.context.timeout(max(int(left * 1000), 0) + 1)

    # -- offsets --

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Offsets up to which records are in published files. The last files are published when
        the task stops."""
        safe: dict[TopicPartition, int] = {}
        for place, offset in offsets.items():
            partition = self._partitions.get(place)
            if partition is not None and partition.refill is not None:
                with naming(self._root):
                    self._end_read(place, partition, offset)
                partition = self._partitions[place]
                if offset < (partition.committed or 0):
                    continue  # what is delivered while files are written anew is committed already
            if partition is None or partition.refill is not None:
                continue
            if self.context.stopping:
                with naming(self._root):
                    self._finish(place, partition)
                partition = self._partitions[place]
            if partition.refill is not None:
                continue
            if partition.resumed:
                if partition.committed is not None:
                    safe[place] = partition.committed
            elif partition.files is None:
                safe[place] = offset  # what is not in a file was passed over
            elif partition.committed is not None:
                safe[place] = min(offset, partition.committed)
        return safe

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for place in partitions:
            partition = self._partitions.pop(place, None)
            if partition is not None and partition.files is not None:
                partition.files.drop()

    def stop(self) -> None:
        self.close(list(self._partitions))


_ROWS_AT_ONCE: Final = 10_000
_ONLY_TEXT: Final = s.struct({VALUE: s.STRING.as_optional()})


class DirectorySink(SinkConnector):
    """Records to files of one folder, exactly once."""

    VERSION = "0.1.0"
    TASK: ClassVar[type[SinkTask]] = DirectorySinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        if fault := path_fault(config.get("path", "").strip()):
            return {"path": [fault]}
        hidden = [name for name in sink_topics(config) if name.startswith(HIDDEN)]
        faults = {"topics": [f"topic {hidden_fault(name)}" for name in hidden]} if hidden else {}
        return {**config_faults(config), **faults}

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """
        Raises:
            ConfigError: the manifest says what is written; a record would be doubled or left out.
        """
        raise ConfigError(
            "Offsets of a DirectorySink are those of the files in its folder, and are not altered: "
            "to write everything anew give it another name and path"
        )

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        # Tasks may run elsewhere, with another working directory.
        directory: Any = str(Path(self._config["path"].strip()).absolute())
        return [{**self._config, DIRECTORY: directory} for _ in range(tasks_max)]
