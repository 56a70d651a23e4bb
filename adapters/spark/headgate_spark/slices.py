"""An executor's part of a batch: it reads a slice of a partition, parses it, and writes one file.

A slice is written at once, with the columns known so far united with its own. If another slice of
the batch saw more, it is written again with the columns of all. As columns only ever grow, that is
rare after the first batch.
"""

import json
import os
import re
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

from headgate.connector.api import Converter, DataError
from headgate.connector.json_converter import JsonConverter
from headgate.connector.schema import Field, Schema, SchemaType
from headgate.connector.text_converters import TypedConverter, json_text, typed_start
from headgate.log.record_columns import ColumnLog, RecordColumns
from headgate.ports import ConsumerRecord, LogBatch, RecordLog
from headgate_spark.chunks import VALUE, WRITERS, Chunk, written_columns
from headgate_spark.columns import Spelling, inner_clash, type_name, unfit, unite_columns
from headgate_spark.entries import staged_path
from headgate_spark.executor import resolve

CHUNK = 20_000
"""Records read and parsed at a time, which bounds the memory that they take."""
METADATA = ("key", "topic", "partition", "offset", "timestamp", "file", "position")
"""Names that `columns.metadata` may have. Each becomes a column with ``_`` before it."""
FILE_HEADER = "headgate.file"
POSITION_HEADER = "headgate.position"
RESULT_SCHEMA = "result string"
TOLD_MAX = 1_000
"""Longest reason for a bad record in a result, in characters."""


@dataclass(frozen=True, slots=True)
class SliceTask:
    """One file to write. Travels as JSON."""

    topic: str
    partition: int
    start: int
    end: int
    target: str
    """Target folder, as an absolute path. The file goes to its staging folder."""
    batch_start: int
    """Start of the slice's batch, which names the entry that can commit the file."""
    number: int
    """Number of this slice in its topic-partition."""
    format: str
    """Format: parquet, json or csv."""
    metadata: tuple[str, ...]
    columns: Mapping[str, str]
    """Known columns and their kinds."""
    tolerate: bool
    envelope: bool
    """Whether values are ``{"schema", "payload"}``, as JsonConverter writes them with schemas."""
    merges_case: bool = False
    """Whether fields that differ from a column in case only belong to that column."""
    on_null: str = "keep"
    """What to do with a record without a value: keep (a row of nulls), skip or fail."""
    tells_bad: bool = False
    """Whether the result names each record that cannot be read, for its dead letter."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "SliceTask":
        plain = json.loads(text)
        return cls(**{**plain, "metadata": tuple(plain["metadata"])})


@dataclass(slots=True)
class SliceResult:
    records: int = 0
    """Number of records written. 0 if there is no file."""
    staged: str = ""
    """Path of the file below the target."""
    columns: dict[str, str] = field(default_factory=dict)
    """Columns of the file: the known ones united with those of this slice, in order."""
    skipped: int = 0
    detail: str = ""
    """The first record that was skipped."""
    host: str = ""
    """The machine that wrote it."""
    renamed: str = ""
    """A field whose column is spelt differently. Empty: there was none."""
    failed: str = ""
    """A record that cannot be read, if that is not tolerated. Nothing is written then."""
    bad: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Offset of each record that was skipped or has failed, and why, if the task `tells_bad`."""


class OtherLogError(Exception):
    """The log that the executor reads is not the one on which the batch was planned."""


class OtherFolderError(Exception):
    """The target folder of an executor is not that of the task."""

    @classmethod
    def of(cls, target: str, host: str, seen: str) -> "OtherFolderError":
        return cls(
            f"path {target}: {seen}. The executor on {host} has not the folder that the worker "
            "has: name a folder of a file system that the machines of the worker and of all "
            "executors have mounted there"
        )


class BadRecord(Exception):
    """A value cannot be read, and that is not tolerated."""


def run_slices(log: tuple[str, str], tasks: Sequence[str], batches: Iterator[Any]) -> Iterator[Any]:
    """Run the slices, as a function of `mapInArrow` over ``range(len(tasks))``. Row n does
    ``tasks[n]``, and yields ``[n, SliceResult]`` as JSON.

    Args:
        log: `PlannedSinkTaskContext.log_elsewhere`.
    """
    import pyarrow as pa

    done: list[str] = []
    for batch in batches:
        for number in batch.column(0).to_pylist():
            opener, argument = log
            opened = resolve(opener)(argument)
            try:
                result = run_slice(opened.record_log, SliceTask.from_json(tasks[number]))
            finally:
                opened.close()
            done.append(json.dumps([number, asdict(result)]))
    yield pa.RecordBatch.from_pydict({"result": pa.array(done, pa.string())})


def run_slice(log: RecordLog, task: SliceTask) -> SliceResult:
    """Read, parse and write one slice. The file is durable when it returns."""
    result, chunks = _parsed(log, task, None)
    alone = _empty_lines(task, result, chunks)
    if alone is not None:
        result, chunks = _parsed(log, task, alone)
    if result.records:
        result.staged = staged_path(
            task.topic, task.partition, task.batch_start, task.number, uuid4().hex, task.format
        )
        path = Path(task.target) / result.staged
        if not Path(task.target).is_dir():
            raise OtherFolderError.of(task.target, socket.gethostname(), "there is no such folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[task.format](path, chunks, result.columns)
        sync_file(path)
        result.host = socket.gethostname()
    return result


def _parsed(log: RecordLog, task: SliceTask, alone: str | None) -> tuple[SliceResult, list[Chunk]]:
    """Return the result of parsing the slice, and the rows for its file.

    Args:
        alone: the one column of a CSV file, in which no row may have null.
    """
    result = SliceResult(columns=dict(task.columns))
    parser = _Parser(task, result, alone)
    chunks: list[Chunk] = []
    try:
        for part in _parts(log, task):
            for chunk in parser.chunks(part):
                chunks.append(chunk)
                result.records += chunk.length
    except BadRecord as error:
        bad = result.bad[-1:]
        return SliceResult(columns=dict(task.columns), failed=str(error), bad=bad), []
    result.columns = unite_columns([task.columns, *(chunk.kinds for chunk in chunks)])
    return result, chunks


def _empty_lines(task: SliceTask, result: SliceResult, chunks: Sequence[Chunk]) -> str | None:
    """Return the only column of a CSV file, if its nulls would be empty lines. Which columns a file
    has is known once all of the slice is parsed. None: there is no such line."""
    first, *others = written_columns(result.columns)
    if task.format != "csv" or others or not any(chunk.has_null(first) for chunk in chunks):
        return None
    return first


def sync_file(path: Path) -> None:
    """Make the file and its name durable."""
    for target in (path, path.parent):
        handle = os.open(target, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


Part = RecordColumns | LogBatch | list[ConsumerRecord]


def _parts(log: RecordLog, task: SliceTask) -> Iterator[Part]:
    """Yield records of the slice in order, about `CHUNK` at a time, or batches of the log."""
    position = task.start
    place = (task.topic, task.partition)
    while position < task.end:
        found: Part
        if isinstance(log, ColumnLog):
            found = log.read_columns(*place, position, task.end, CHUNK)
        else:
            found = list(log.read(*place, position, task.end, CHUNK))
        after = _after(found, task.end)
        if after is None:
            _check_end(log, task)
            return  # the rest of the range are offsets without a record
        yield found
        position = after


def _after(part: Part, end: int) -> int | None:
    """Return the offset after the last record, or None if there is no record."""
    if isinstance(part, LogBatch):
        return min(part.offset + part.count, end)
    if isinstance(part, RecordColumns):
        return part.after
    return part[-1].offset + 1 if part else None


def _check_end(log: RecordLog, task: SliceTask) -> None:
    """Check the end of this log.

    Raises:
        OtherLogError: this log does not reach the end of the range.
    """
    end = log.end_offsets([task.topic]).get((task.topic, task.partition), 0)
    if end < task.end:
        raise OtherLogError(
            f"{task.topic}-{task.partition} ends at offset {end} here, the batch was planned up to "
            f"{task.end}: this is not the same log, or it has lost its end"
        )


class _Parser:
    """Parses records to rows, which are dicts of JSON values."""

    def __init__(self, task: SliceTask, result: SliceResult, alone: str | None) -> None:
        """
        Args:
            alone: the only column of the file. A row with null in it is bad.
        """
        self._task = task
        self._result = result
        self._alone = alone
        self._metadata = [(f"_{name}", _METADATA_VALUES[name]) for name in task.metadata]
        names = "|".join(task.metadata)
        self._typed, self._json = TypedConverter(), JsonConverter()
        case = re.IGNORECASE if task.merges_case else 0
        self._reserved = re.compile(f"_+(?:{names})", case) if names else None
        merges = task.merges_case and task.format != "json"  # whose lines have no columns in common
        known = (*(name for name, _ in self._metadata), *task.columns)
        self._spelling = Spelling(known) if merges else None
        # Not at the top: `headgate plugins` reads the options without pyarrow.
        from headgate_spark.arrow_chunks import ArrowParser

        self._keeps_types = task.format == "parquet"  # the others write texts
        self._pinned = task.columns if self._keeps_types else {}
        self._arrow = ArrowParser(
            task.columns, task.metadata, self._reserved, task.envelope, self._keeps_types
        )
        in_columns = task.format != "json" and alone is None and task.on_null == "keep"
        self._by_columns = in_columns and self._arrow.takes
        self._schema = self._given = Schema(SchemaType.STRUCT)
        self._names: Sequence[str] = ()

    def chunks(self, part: Part) -> list[Chunk]:
        """Return the part as rows of the file.

        Raises:
            BadRecord: a record that cannot be read, if that is not tolerated.
        """
        if self._by_columns and not isinstance(part, list):
            found = self._arrow.chunk(part, self._task.end)
            alike = found is not None and self._is_spelt_alike(found) and not self._clash(found)
            if found is not None and alike and not self._unfit(found):
                return [found]
        rows = self._rows(_records(part, self._task.end))
        if self._task.format == "json":
            plain = [{**row.values, **row.metadata} for row in rows]
            return [Chunk.of(plain, keep_rows=True)] if plain else []
        groups = (list(group) for _, group in groupby(rows, lambda row: row.schema))
        return [chunk for group in groups for chunk in self._fitting(group)]

    def _fitting(self, rows: list["_Row"]) -> Iterator[Chunk]:
        """Yield rows of one schema as a chunk, without those that do not fit their columns."""
        if self._alone is not None:
            rows = [row for row in rows if self._is_a_line(row, self._alone)]
            if not rows:
                return
        try:
            chunk = _chunk_of(rows)
        except DataError:
            chunk = None
        if chunk is None or self._clash(chunk) or self._unfit(chunk):
            rows = [row for row in rows if self._takes(row)]
            chunk = _chunk_of(rows) if rows else None
        if chunk is not None:
            yield chunk

    def _is_a_line(self, row: "_Row", alone: str) -> bool:
        if {**row.values, **row.metadata}.get(alone) is not None:
            return True
        self._bad(
            row.offset,
            f"the value at {row.where} has null in {alone}, the only column: CSV has no form for "
            "that, readers pass over an empty line. Add a column (columns.metadata), set "
            "on.null.value = skip for records without a value, or use another format",
        )
        return False

    def _takes(self, row: "_Row") -> bool:
        try:
            chunk = _chunk_of([row])
        except DataError as error:
            self._bad(row.offset, f"the value at {row.where} cannot be written: {error}")
            return False
        if clash := self._clash(chunk):
            text = f"the value at {row.where} cannot be written: {clash}, which readers refuse"
            self._bad(row.offset, text)
            return False
        bad = self._unfit(chunk)
        if bad:
            now, was = type_name(chunk.kinds[bad[0]]), type_name(self._pinned[bad[0]])
            self._bad(
                row.offset,
                f"the value at {row.where} does not fit column {bad[0]}: it is of type {now}, "
                f"expected {was}, the type of the column in this folder. Cast it, or give the "
                "sink another path, with columns.types where a column may have several types",
            )
        return not bad

    def _unfit(self, chunk: Chunk) -> list[str]:
        return unfit(chunk.kinds, self._pinned)

    def _clash(self, chunk: Chunk) -> str:
        """Return which fields of a struct differ in case only. Empty: none, or they may."""
        if self._spelling is None:
            return ""
        told = (inner_clash(name, kind) for name, kind in chunk.kinds.items())
        return next(filter(None, told), "")

    def _is_spelt_alike(self, found: Chunk) -> bool:
        spelling = self._spelling
        return spelling is None or all(spelling.of(name) == name for name in found.kinds)

    def _rows(self, records: Sequence[ConsumerRecord]) -> list["_Row"]:
        rows: list[_Row] = []
        for record in records:
            if record.unreadable:
                self._bad(record.offset, f"the record at {_where(record)}: {record.unreadable}")
                continue
            if record.value is None and self._task.on_null != "keep":
                if self._task.on_null == "fail":
                    self._bad(
                        record.offset, f"the record at {_where(record)} has no value (a tombstone)"
                    )
                continue
            try:
                schema, values = self._read(record.value)
                values = self._spelt(self._unreserved(values))
            except UnicodeDecodeError as error:
                why = f"{error.reason} at byte {error.start}"
                self._bad(record.offset, f"the value at {_where(record)} is not UTF-8: {why}")
                continue
            except DataError as error:
                self._bad(record.offset, f"the value at {_where(record)} cannot be read: {error}")
                continue
            if schema is not None:
                schema = self._renamed(schema, tuple(values))
            elif not values and rows and rows[-1].schema is not None:
                schema, values = self._schema, dict.fromkeys(self._names)
            try:
                metadata = {name: value_of(record) for name, value_of in self._metadata}
            except UnicodeDecodeError as error:
                why = f"{error.reason} at byte {error.start}"
                text = f"the key at {_where(record)}, for the column _key, is not UTF-8: {why}"
                self._bad(record.offset, text)
                continue
            rows.append(_Row(record.offset, _where(record), schema, values, metadata))
        return rows

    def _read(self, data: bytes | None) -> tuple[Schema | None, dict[str, Any]]:
        """Return the fields, and the STRUCT with the types of their columns, or None."""
        if data is None:
            return None, {}
        if typed_start(data) is not None:
            return self._opened(self._typed, data)
        if self._task.envelope:
            return self._opened(self._json, data)
        value = parse_object(data)
        return None, {VALUE: data.decode()} if value is None else value

    def _unreserved(self, values: dict[str, Any]) -> dict[str, Any]:
        """Add an underscore to a field named like a column of ours, and to fields named like that:
        so nothing is overwritten and no two fields meet."""
        if self._reserved is None:
            return values
        match = self._reserved.fullmatch
        return {f"_{name}" if match(name) else name: given for name, given in values.items()}

    def _renamed(self, schema: Schema, values: Sequence[str]) -> Schema:
        """Return `schema` with the names of the columns, each optional. Similar records share one
        object."""
        if schema is not self._given or values != self._names:
            self._given, self._names = schema, values
            self._schema = Schema(
                SchemaType.STRUCT,
                fields=tuple(
                    Field(name, found.schema.as_optional())
                    for found, name in zip(schema.fields, values, strict=True)
                ),
            )
        return self._schema

    def _spelt(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row with columns' spellings. Raises `DataError` if two fields are of one
        column."""
        if self._spelling is None:
            return row
        spelt: dict[str, Any] = {}
        for given, value in row.items():
            name = self._spelling.of(given)
            if name in spelt:
                raise DataError(f"its field {given} differs from {name} in case only")
            if name != given:
                self._result.renamed = self._result.renamed or f"{given} as {name}"
            spelt[name] = value
        return spelt

    def _opened(self, converter: Converter, data: bytes) -> tuple[Schema | None, dict[str, Any]]:
        """Return the value as the sink's converter reads it. Files without types get JSON for
        people: decimals, dates and times are text. Raises `DataError`."""
        schema, value = converter.to_connect_data("", data)
        if not self._keeps_types or schema is None or value is None:
            text = json_text(schema, value).encode()
            row = parse_object(text)
            return None, {VALUE: json.loads(text)} if row is None else row
        if schema.type is not SchemaType.STRUCT:
            schema, value = (
                Schema(SchemaType.STRUCT, fields=(Field(VALUE, schema),)),
                {VALUE: value},
            )
        values = {found.name: value.get(found.name) for found in schema.fields}
        return (schema if values else None), values

    def _bad(self, offset: int, text: str) -> None:
        if self._task.tells_bad:
            self._result.bad.append((offset, text[:TOLD_MAX]))
        if not self._task.tolerate:
            raise BadRecord(text)
        self._result.skipped += 1
        self._result.detail = self._result.detail or text


@dataclass(frozen=True, slots=True)
class _Row:
    """One record as a row."""

    offset: int
    where: str
    schema: Schema | None
    """Schema of `values`. None: they are JSON's."""
    values: dict[str, Any]
    metadata: dict[str, Any]


def _chunk_of(rows: Sequence[_Row]) -> Chunk:
    """Return rows of one schema as a chunk. Raises `DataError`."""
    schema = rows[0].schema
    if schema is None:
        return Chunk.of([{**row.values, **row.metadata} for row in rows], keep_rows=False)
    from headgate_arrow.rows import batch_of

    table = batch_of([row.values for row in rows], schema)
    return Chunk.typed(table, Chunk.of([row.metadata for row in rows], keep_rows=False))


def _records(part: Part, end: int) -> Sequence[ConsumerRecord]:
    if isinstance(part, LogBatch):
        from headgate_arrow.rows import log_records

        return log_records(part, part.skip, min(part.count, end - part.offset))
    return part.records() if isinstance(part, RecordColumns) else part


def _where(record: ConsumerRecord) -> str:
    where = f"{record.topic}-{record.partition} offset {record.offset}"
    file = _header(FILE_HEADER)(record)
    if file is None:
        return where
    return f"{where} ({file} position {_header(POSITION_HEADER)(record) or '?'})"


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object that `data` is, with whole numbers of any size exact. None: it is
    none.

    Raises:
        DataError: it has a member twice, and only one of the two would be kept.
    """
    if b"{" not in data[:32] and not data.lstrip().startswith(b"{"):
        return None
    try:
        value = orjson.loads(data)
        if type(value) is dict and _may_differ(data, value):
            value = json.loads(data, object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict else None


def _may_differ(data: bytes, value: dict[str, Any]) -> bool:
    """Return whether `value` may not be all that `data` says. orjson reads whole numbers beyond 64
    bits as floats, and keeps the last of members with one name.

    Each member has a colon, so without more colons than members none was dropped. Otherwise the
    ends of names are counted: quote and colon, with only blanks between. Texts may have both, too.
    Then the standard library reads the value.
    """
    members = 0
    parts: list[Any] = [value]
    for part in parts:  # it grows
        items: Collection[Any] = part
        if type(part) is dict:
            members += len(part)
            items = part.values()
        kinds = set(map(type, items))
        if kinds.isdisjoint(_LOOKED_INTO):
            continue
        if float in kinds and max([abs(one) for one in items if type(one) is float]) >= 2**63:
            return True
        if dict in kinds or list in kinds:
            parts += [one for one in items if type(one) is dict or type(one) is list]
    return data.count(b":") > members and data.translate(None, _BLANKS).count(b'":') > members


_LOOKED_INTO: Final = frozenset((dict, list, float))
_BLANKS: Final = b" \t\r\n"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"it has the member {twice} twice in one object, expected each once")
    return found


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _header(name: str) -> Callable[[ConsumerRecord], str | None]:
    def value(record: ConsumerRecord) -> str | None:
        for key, data in record.headers:
            if key == name:
                return _text(data)
        return None

    return value


def _position(record: ConsumerRecord) -> int | str | None:
    text = _header(POSITION_HEADER)(record)
    return int(text) if text is not None and text.isascii() and text.isdecimal() else text


_METADATA_VALUES: Mapping[str, Callable[[ConsumerRecord], Any]] = {
    "key": lambda record: None if record.key is None else record.key.decode(),
    "topic": lambda record: record.topic,
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp_ms,
    "file": _header(FILE_HEADER),
    "position": _position,
}
