"""The transform that adds fields about a record. Source: Connect's `InsertField` (4.3.1)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, ConfigError, Type
from headgate.connector.converters import NO_TIMESTAMP
from headgate.connector.schema import (
    INT32,
    INT64,
    STRING,
    TIMESTAMP_SCHEMA,
    Field,
    Schema,
)
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.columns import (
    Column,
    ColumnPlan,
    Constant,
    RowOffset,
    taken,
)
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Reader,
    built,
    define_replace_null,
    require_map,
    require_struct,
)
from headgate.connector.transforms.times import datetime_of

_Record: TypeAlias = SourceRecord | SinkRecord
_SUFFIX = "A ! behind the name makes it a required field, a ? or nothing an optional one."


class _Inserted(NamedTuple):
    name: str
    schema: Schema
    plain: Callable[[_Record], Value]
    """Returns the value without schema; None if nothing is inserted."""
    typed: Callable[[_Record], Value]


class InsertField(SidedTransform):
    """Adds fields with the record's topic, partition, offset or timestamp, or with a fixed text. A
    key or value that is null stays null."""

    CONFIG = define_replace_null(
        ConfigDef()
        .define("topic.field", Type.STRING, None, documentation=f"Field for the topic. {_SUFFIX}")
        .define(
            "partition.field",
            Type.STRING,
            None,
            documentation=f"Field for the partition. {_SUFFIX}",
        )
        .define(
            "offset.field",
            Type.STRING,
            None,
            documentation=f"Field for the offset; sinks only. {_SUFFIX}",
        )
        .define(
            "timestamp.field",
            Type.STRING,
            None,
            documentation=f"Field for the timestamp. {_SUFFIX}",
        )
        .define(
            "static.field", Type.STRING, None, documentation=f"Field for a fixed text. {_SUFFIX}"
        )
        .define("static.value", Type.STRING, None, documentation="That text.")
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        static = self.settings["static.value"]
        makers: list[tuple[str, Schema, Callable[[_Record], Value], Callable[[_Record], Value]]] = [
            ("topic.field", STRING, _topic, _topic),
            ("partition.field", INT32, _partition, _partition),
            ("offset.field", INT64, _offset, _offset),
            ("timestamp.field", TIMESTAMP_SCHEMA, _timestamp, _timestamp_typed),
            ("static.field", STRING, lambda record: static, lambda record: static),
        ]
        self._inserted: list[_Inserted] = []
        for key, schema, plain, typed in makers:
            text = self.settings[key]
            if text is not None:
                required = text.endswith("!")
                name = text[:-1] if text.endswith(("!", "?")) else text
                kind = schema if required else schema.as_optional()
                self._inserted.append(_Inserted(name, kind, plain, typed))
        if not self._inserted:
            raise ConfigError("No field insertion configured")
        if self.settings["static.field"] is not None and static is None:
            name = self.settings["static.field"]
            text = f"No value specified for static field: {name}"
            raise ConfigError.of("static.value", None, text)
        self.uses_offset = self.settings["offset.field"] is not None
        self._updated = PerSchema(self._update)

    def plain(self, value: Value, record: _Record) -> Value:
        if value is None:
            return None
        result: dict[str, Any] = require_map(value, _PURPOSE).copy()
        for inserted in self._inserted:
            found = inserted.plain(record)
            if found is not None:
                result[inserted.name] = found
        return result

    def typed(self, schema: Schema, value: Value, record: _Record) -> tuple[Schema, Value]:
        if value is None:
            return schema, None
        struct = require_struct(schema, value, _PURPOSE)
        updated, reader = self._updated(schema)
        result = reader.read(struct)
        for inserted in self._inserted:
            result[inserted.name] = inserted.typed(record)
        return updated, result

    def columns(self, schema: Schema, record: _Record) -> ColumnPlan | None:
        updated, _ = self._updated(schema)
        return ColumnPlan(
            updated, [*taken(schema), *[_column(one, record) for one in self._inserted]]
        )

    def _update(self, schema: Schema) -> tuple[Schema, Reader]:
        more = [Field(inserted.name, inserted.schema) for inserted in self._inserted]
        updated = built(schema, [*schema.fields, *more])
        return updated, Reader.of(schema, self.settings[REPLACE_NULL])


_PURPOSE = "field insertion"


def _column(inserted: _Inserted, record: _Record) -> Column:
    found = inserted.typed(record)
    return RowOffset() if inserted.typed is _offset else Constant(found)


def _topic(record: _Record) -> Value:
    return record.topic


def _partition(record: _Record) -> Value:
    return record.partition


def _offset(record: _Record) -> Value:
    if isinstance(record, SinkRecord):
        return record.offset
    raise DataError(
        f"Only SinkRecord supported for [{_PURPOSE}], found: "
        "org.apache.kafka.connect.source.SourceRecord"
    )


def timestamp_of(record: _Record) -> int | None:
    """Return the record's timestamp in milliseconds since 1970; None if it has none."""
    if record.timestamp_ms == NO_TIMESTAMP and isinstance(record, SinkRecord):
        return None
    return record.timestamp_ms


def _timestamp(record: _Record) -> Value:
    return timestamp_of(record)


def _timestamp_typed(record: _Record) -> Value:
    found = timestamp_of(record)
    return None if found is None else datetime_of(found)
