"""Base classes of transforms: copies of records with a change, one change for keys and values, and
a cache of changed schemas."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Final, Generic, TypeVar

from headgate.connector.api import SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef
from headgate.connector.schema import Schema
from headgate.connector.transforms.columns import ColumnPlan, RowsAtOnce

Record = TypeVar("Record", SourceRecord, SinkRecord)

SCHEMAS_KEPT: Final = 16
"""Number of schemas whose changed form a transform caches, as in Java."""

_new: Final = object.__new__


class RecordTransform(ABC):
    """A transform that treats records of sources and sinks alike, by `apply`."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef()
    BY_TOPIC: ClassVar[bool] = False
    """Whether it reads and changes only topic and headers: records of one topic without headers
    then become alike. A subclass does not inherit it, since it may do more."""

    def __init_subclass__(cls) -> None:
        # This saves a call for each record.
        if "apply" in cls.__dict__:
            cls.apply_source = cls.apply_sink = cls.apply  # type: ignore[method-assign]

    def configure(self, config: Mapping[str, str]) -> None:
        """Parse the config.

        Raises:
            ConfigError: A key is missing, or a value is not valid.
        """
        self.settings = self.CONFIG.parse(config)

    def rows_at_once(self) -> RowsAtOnce:
        """Return how the transform treats rows of a batch. Called once, after `configure`."""
        return RowsAtOnce.NEVER

    @abstractmethod
    def apply(self, record: Record) -> Record | None:
        """Return the changed record; None drops it."""

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        return self.apply(record)

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None:
        return self.apply(record)


class SidedTransform(RecordTransform):
    """A transform of a record's key or value. `sides` makes the two classes of it that Connect has:
    ``X$Key`` and ``X$Value``."""

    uses_offset = False
    """Whether it reads the offset of each record, which differs in each row of a batch."""

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        """Return a plan that changes many values of a STRUCT `schema`, none of them null, as
        `typed` does.

        Args:
            record: A record with what all rows share.

        Returns:
            None if there is no such plan; rows are then changed one by one.

        Raises:
            DataError: As `typed`, for any of the values.
        """
        return None

    @abstractmethod
    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        """Return the changed key or value, which has no schema. Raises DataError."""

    @abstractmethod
    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        """Return the changed schema and the changed key or value. Raises DataError."""


class OfKey(SidedTransform):
    def rows_at_once(self) -> RowsAtOnce:
        return RowsAtOnce.NEVER if self.uses_offset else RowsAtOnce.ALIKE

    def apply(self, record: Record) -> Record | None:
        schema, key = record.key_schema, record.key
        if schema is None:
            changed = self.plain(key, record)
            if changed is key:
                return record
        else:
            schema, changed = self.typed(schema, key, record)
        result = copied(record)
        result.key_schema = schema
        result.key = changed
        return result


class OfValue(SidedTransform):
    def rows_at_once(self) -> RowsAtOnce:
        planned = type(self).columns is not SidedTransform.columns
        return RowsAtOnce.COLUMNS if planned else RowsAtOnce.NEVER

    def apply(self, record: Record) -> Record | None:
        schema, value = record.value_schema, record.value
        if schema is None:
            changed = self.plain(value, record)
            if changed is value:
                return record
        else:
            schema, changed = self.typed(schema, value, record)
        result = copied(record)
        result.value_schema = schema
        result.value = changed
        return result


def sides(transform: type[SidedTransform]) -> dict[str, type[RecordTransform]]:
    """Return the classes of `transform` for keys and for values, by Connect's simple names."""
    return {
        f"{transform.__name__}${side}": type(
            f"{transform.__name__}${side}", (base, transform), {"__doc__": transform.__doc__}
        )
        for side, base in (("Key", OfKey), ("Value", OfValue))
    }


def copied(record: Record) -> Record:
    """Return a copy to be changed. It costs a seventh of `replace`, and every record is copied."""
    if type(record) is SourceRecord:
        source: SourceRecord = _new(SourceRecord)
        source.source_partition = record.source_partition
        source.source_offset = record.source_offset
        source.topic = record.topic
        source.value = record.value
        source.key = record.key
        source.headers = record.headers
        source.partition = record.partition
        source.timestamp_ms = record.timestamp_ms
        source.key_schema = record.key_schema
        source.value_schema = record.value_schema
        source.header_schemas = record.header_schemas
        return source  # pyright: ignore[reportReturnType]
    if type(record) is SinkRecord:
        sink: SinkRecord = _new(SinkRecord)
        sink.topic = record.topic
        sink.partition = record.partition
        sink.offset = record.offset
        sink.key = record.key
        sink.value = record.value
        sink.headers = record.headers
        sink.timestamp_ms = record.timestamp_ms
        sink.key_schema = record.key_schema
        sink.value_schema = record.value_schema
        sink.header_schemas = record.header_schemas
        sink.original = record.original
        return sink  # pyright: ignore[reportReturnType]
    return replace(record)


Made = TypeVar("Made")


class PerSchema(Generic[Made]):
    """A cache of what `make` makes of a schema, made once for each schema of the records.

    Records of a topic mostly share one schema object, which is found by its identity; equal schemas
    are found by comparison. Source: Java's transforms, which have a SynchronizedCache of 16.
    """

    def __init__(self, make: Callable[[Schema], Made]) -> None:
        self._make = make
        self._by_id: dict[int, tuple[Schema, Made]] = {}
        self._equal: dict[Schema, tuple[Made]] = {}

    def __call__(self, schema: Schema) -> Made:
        # The schema is kept beside the result, so that no other schema gets its id.
        found = self._by_id.get(id(schema))
        return self._find(schema) if found is None else found[1]

    def _find(self, schema: Schema) -> Made:
        found = self._equal.get(schema)
        if found is None:
            found = (self._make(schema),)
            if len(self._equal) == SCHEMAS_KEPT:
                self._equal.clear()
            self._equal[schema] = found
        if len(self._by_id) == SCHEMAS_KEPT:
            self._by_id.clear()
        self._by_id[id(schema)] = (schema, found[0])
        return found[0]
