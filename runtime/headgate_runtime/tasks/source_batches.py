"""Batches of Arrow rows on their way from `poll` to the log.

They go whole if nothing needs records: with transforms that take rows at once, the default
converter of values under ``headgate up``, and a log that keeps batches. With JsonConverter or
AvroConverter a batch becomes a column of values, one for each record, on any log.

Otherwise a batch is made into the records that the task might have returned in its place. So it is
if a value has no form in Python or a transform fails.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from headgate.connector.api import SourceItem
from headgate.connector.batches import RowNumbers, SourceBatch
from headgate.connector.converters import (
    SimpleHeaderConverter,
    TaskConverters,
    sending_timestamp,
)
from headgate.connector.json_converter import JsonConverter
from headgate.connector.registry_converters import AvroConverter
from headgate.connector.schema import Schema
from headgate.connector.text_converters import TypedConverter
from headgate.connector.transforms import takes_rows_at_once
from headgate.ports import (
    BatchProducer,
    LogBatch,
    Producer,
    ProducerRecord,
    TransactionOverError,
    ValueColumn,
)
from headgate_runtime.tasks.polled_records import PolledTypeError, check_name

if TYPE_CHECKING:
    from headgate_arrow.batch_chain import BatchChain

BYTES_MAX: Final = 16 * 1024 * 1024
"""Most bytes of a batch in the log, unless one row has more."""
TRIED_AGAIN: Final = 1_000
"""Rows of each part that is tried after a transform failed. One bad row costs so many rows the
slower way."""


@final
@dataclass(frozen=True, slots=True)
class ReadyBatch:
    """A batch that is to be sent whole."""

    source: SourceBatch
    sent: LogBatch | ValueColumn


@final
@dataclass(frozen=True, slots=True)
class DroppedBatch:
    """A batch that a transform has dropped."""

    count: int


Item: TypeAlias = SourceItem | ReadyBatch | DroppedBatch
Sent: TypeAlias = ProducerRecord | LogBatch | ValueColumn
_BATCHES: Final = frozenset((LogBatch, ValueColumn, SourceBatch))


def flows_typed(made: TaskConverters) -> bool:
    """Return whether values and headers are converted as they stand in a batch of the log."""
    return type(made.value) is TypedConverter and type(made.header) is SimpleHeaderConverter


ColumnWriter: TypeAlias = Callable[[Any], list[bytes]]
"""Function that returns the value of each row of a RecordBatch."""


def writes_columns(converter: object) -> bool:
    """Return whether there is a `column_writer` for a converter. A derived class may write
    differently, so it must have a `form` of its own."""
    kind = type(converter)
    return kind is JsonConverter or (issubclass(kind, AvroConverter) and "form" in vars(kind))


def column_writer(converter: object, topic: str, schema: Schema) -> ColumnWriter:
    """Return the writer for values of a topic and schema.

    Raises:
        Exception: the converter raises it for the schema, or the values must be written one by one.
    """
    if isinstance(converter, JsonConverter):
        from headgate_arrow.json_columns import JsonColumns

        return JsonColumns(schema, converter.form(schema)).values
    from headgate_arrow.avro_columns import AvroColumns

    assert isinstance(converter, AvroConverter)
    return AvroColumns(schema, converter.form(topic, schema)).values


class SourceBatches:
    """Prepares the items that `poll` has returned for sending."""

    def __init__(self, made: TaskConverters, transforms: Sequence[Any] = ()) -> None:
        self._converters = made
        self._transforms = transforms
        self._chain: BatchChain | None = None
        """The transforms for batches, made with the first batch."""
        self._columns: tuple[str, Schema, ColumnWriter] | None = None
        """Writer for the values of the last topic and schema."""
        self.flow = False
        """Whether batches are sent without being made into records."""
        self.kept = False
        """Whether the log keeps them whole."""

    def decide(self, producer: Producer | None, *, needs_records: bool) -> None:
        """Decide how batches are sent.

        Args:
            needs_records: the task can use records only.
        """
        made = self._converters
        simple = type(made.header) is SimpleHeaderConverter and not needs_records
        at_once = simple and takes_rows_at_once(self._transforms)
        self.kept = at_once and flows_typed(made) and isinstance(producer, BatchProducer)
        self.flow = self.kept or (at_once and writes_columns(made.value))

    def prepared(self, items: Sequence[Item | SourceBatch]) -> Sequence[Item]:
        """Return `items` without any `SourceBatch`.

        Raises:
            PolledTypeError: a batch is invalid: its columns are not those of its schema.
        """
        if SourceBatch not in set(map(type, items)):
            return items  # type: ignore[return-value]
        found: list[Item] = []
        for item in items:
            if type(item) is SourceBatch:
                found += self._prepared(item)
            else:
                found.append(item)  # type: ignore[arg-type]
        return found

    def _prepared(self, batch: SourceBatch) -> Sequence[Item]:
        from headgate_arrow import nested, rows, values

        try:
            rows.check_columns(batch)
        except TypeError as error:
            raise PolledTypeError(str(error)) from error
        whole = self.flow and batch.count and values.fault(batch.values) is None
        if whole and not nested.has_odd_codes(batch.values):
            return self._transformed(batch, TRIED_AGAIN)
        return rows.source_records(batch)

    def _transformed(self, batch: SourceBatch, part_rows: int) -> Sequence[Item]:
        """Return the batch as items to send.

        Args:
            part_rows: rows of each part that is tried if the batch cannot be prepared as a whole.
        """
        from headgate_arrow import rows

        try:
            return self._ready(batch)
        except Exception:  # of a row, the key or a header: as records, each is reported by itself
            if not self._transforms or batch.count <= part_rows:
                return rows.source_records(batch)
        found: list[Item] = []
        for start in range(0, batch.count, part_rows):
            part = batch.part(start, min(part_rows, batch.count - start))
            found += self._transformed(part, part_rows)
        return found

    def _ready(self, given: SourceBatch) -> Sequence[Item]:
        from headgate_arrow import compact, rows

        batch = self._changed(given)
        if batch is None:
            return [DroppedBatch(given.count)]
        made, topic = self._converters, batch.topic
        check_name(topic)
        key = (
            None if batch.key is None else made.key.from_connect(topic, batch.key, batch.key_schema)
        )
        time_ms = batch.timestamp_ms
        if time_ms is not None and time_ms < 0:
            time_ms = sending_timestamp(time_ms)
        if not self.kept:
            return [ReadyBatch(batch, self._column(batch, key, time_ms))]
        schema, start = rows.schema_bytes(batch.value_schema), 0
        ready: list[Item] = []
        for values in compact.parts(batch.values, BYTES_MAX):
            part = batch.part(start, values.num_rows)
            start += values.num_rows
            headers = self._headers(part)
            data = rows.to_bytes(values)
            sent = LogBatch(
                *(topic, batch.partition, part.count, key, headers, time_ms, schema, data)
            )
            ready.append(ReadyBatch(part, sent))
        return ready

    def _column(self, batch: SourceBatch, key: bytes | None, time_ms: int | None) -> ValueColumn:
        """Return the batch as a column of values.

        Raises:
            Exception: the values cannot be written by columns.
        """
        known, topic, schema = self._columns, batch.topic, batch.value_schema
        if known is None or known[0] != topic or (known[1] is not schema and known[1] != schema):
            write = column_writer(self._converters.value, topic, schema)
            known = self._columns = topic, schema, write
        values = known[2](batch.values)
        headers = self._headers(batch)
        return ValueColumn(batch.topic, batch.partition, key, values, headers, time_ms)

    def _changed(self, batch: SourceBatch) -> SourceBatch | None:
        """Return the batch after the transforms, or None if they drop it."""
        if not self._transforms:
            return batch
        if self._chain is None:
            from headgate_arrow.batch_chain import BatchChain

            self._chain = BatchChain(self._transforms)
        return self._chain.apply(batch)

    def _headers(self, batch: SourceBatch) -> tuple[tuple[str, bytes | RowNumbers | None], ...]:
        numbers = [isinstance(value, RowNumbers) for _, value in batch.headers]
        given = [
            (name, 0 if is_number else value)
            for (name, value), is_number in zip(batch.headers, numbers, strict=True)
        ]
        sent = self._converters.header.from_connect(batch.topic, tuple(given), ())
        return tuple(
            [
                (name, rows if is_number else value)
                for (name, value), (_, rows), is_number in zip(
                    sent, batch.headers, numbers, strict=True
                )
            ]
        )


def send(producer: Producer, items: Sequence[Sent], *, with_batches: bool) -> int:
    """Send `items` in their order. Return how many rows they have.

    Args:
        with_batches: whether any of them may be a batch.

    Raises:
        TransactionOverError: its `place`, if set, counts rows of all `items`.
    """
    if not with_batches:
        producer.send(items)  # type: ignore[arg-type]
        return len(items)
    start = 0
    for at, item in enumerate(items):
        if isinstance(item, ProducerRecord):
            continue
        _send_records(producer, items, start, at)
        with _places_from(items, at):
            if isinstance(item, ValueColumn):
                producer.send_values(item)
            else:
                assert isinstance(producer, BatchProducer)
                producer.send_batch(item)
        start = at + 1
    _send_records(producer, items, start, len(items))
    return rows_in(items)


def _send_records(producer: Producer, items: Sequence[Sent], start: int, end: int) -> None:
    records = items if start == 0 and end == len(items) else items[start:end]
    if records:
        with _places_from(items, start):
            producer.send(records)  # type: ignore[arg-type]


@contextmanager
def _places_from(items: Sequence[Sent], start: int) -> Iterator[None]:
    try:
        yield
    except TransactionOverError as error:
        if error.place is not None:
            error.place += rows_in(items[:start])
        raise


def rows_in(items: Sequence[object]) -> int:
    """Return the number of rows of items, some of which may be batches."""
    if set(map(type, items)).isdisjoint(_BATCHES):
        return len(items)
    return sum(
        item.count if isinstance(item, (LogBatch, ValueColumn, SourceBatch)) else 1
        for item in items
    )
