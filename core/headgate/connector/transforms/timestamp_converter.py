"""The transform that changes the form of times. Source: Connect's `TimestampConverter` (4.3.1)."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, cast

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.schema import (
    DATE,
    DATE_SCHEMA,
    INT64,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    Field,
    Schema,
    SchemaType,
    logical_type,
)
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.classes import class_of, fits_long
from headgate.connector.transforms.columns import Column, ColumnPlan, Computed, Taken
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Map,
    Reader,
    built,
    define_replace_null,
    fields_of,
    require_map,
    require_struct,
    schema_text,
    with_default,
)
from headgate.connector.transforms.times import date_of, datetime_of, ms_of, time_of
from headgate.connector.validators import one_of
from headgate.java.numbers import clamped
from headgate.java.simple_date_format import (
    DatePatternError,
    DateTextError,
    RefusedDateError,
    SimpleDateFormat,
    date_format,
)

_TYPES: Final = {
    "string": STRING,
    "unix": INT64,
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}
_PER_MS: Final = {"nanoseconds": 1_000_000, "microseconds": 1000, "milliseconds": 1}
"""Units of `unix.precision` in a millisecond. A second has a thousand milliseconds."""


def _valid_format(name: str, value: str) -> None:
    if value.strip():
        try:
            date_format(value)
        except DatePatternError as error:
            raise _bad_pattern(value, str(error)) from error


def _bad_pattern(pattern: str, why: str) -> ConfigError:
    return ConfigError(
        f"Invalid value java.lang.IllegalArgumentException: {why} for configuration "
        "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: "
        f"{pattern}"
    )


class TimestampConverter(SidedTransform):
    """Makes a time of one form into another: a text, a Unix time, Connect's Date, Time and
    Timestamp. Patterns are those of `headgate.java.simple_date_format`. A null stays null."""

    CONFIG = define_replace_null(
        ConfigDef()
        .define(
            "field",
            Type.STRING,
            "",
            importance=Importance.HIGH,
            documentation="The field with the time; empty for the whole key or value.",
        )
        .define(
            "target.type",
            Type.STRING,
            validator=one_of(*_TYPES),
            importance=Importance.HIGH,
            documentation="What it becomes: string, unix, Date, Time or Timestamp.",
        )
        .define(
            "format",
            Type.STRING,
            "",
            _valid_format,
            documentation="Pattern of Java's SimpleDateFormat for texts, read or written, in UTC.",
        )
        .define(
            "unix.precision",
            Type.STRING,
            "milliseconds",
            one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
            Importance.LOW,
            "Unit of Unix times, read or written. What is finer than a millisecond is cut off.",
        )
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._field: str = self.settings["field"]
        self._target: str = self.settings["target.type"]
        self._precision: str = self.settings["unix.precision"]
        pattern: str = self.settings["format"]
        if self._target == "string" and not pattern.strip():
            raise ConfigError(
                "TimestampConverter requires format option to be specified when using string "
                "timestamps"
            )
        self._format: SimpleDateFormat | None = date_format(pattern) if pattern.strip() else None
        if self._format is not None and self._target != "string":
            try:
                self._format.check_readable()
            except DatePatternError as error:
                raise _bad_pattern(pattern, str(error)) from error
        self._make = self._maker()
        self._plans = PerSchema(self._plan)
        self._readers = PerSchema(self._reader)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        if value is None or not self._field:
            return self._convert_plain(value)
        result = require_map(value, _PURPOSE).copy()
        result[self._field] = self._convert_plain(result.get(self._field))
        return result

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        if not self._field:
            read = self._readers(schema)
            made = self._made(schema)
            return made, None if value is None else self._make(read(value))
        struct = None if value is None else require_struct(schema, value, _PURPOSE)
        updated, convert = self._plans(schema)
        return updated, None if struct is None else convert(struct)

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        if not self._field:
            return None
        updated, _ = self._plans(schema)
        return ColumnPlan(updated, [self._column(field) for field in schema.fields])

    def _column(self, field: Field) -> Column:
        if field.name != self._field:
            return Taken((field.name,))
        read = self._readers(field.schema)
        return Computed(field.name, lambda value: self._make(read(value)))

    def _made(self, schema: Schema) -> Schema:
        """Return the schema of a changed value of `schema`."""
        target = _TYPES[self._target]
        return target.as_optional() if schema.optional else target

    def _plan(self, schema: Schema) -> tuple[Schema, Callable[[Map], Map]]:
        """Return the schema of changed structs, and the function that changes one."""
        fields = [
            Field(field.name, self._made(field.schema)) if field.name == self._field else field
            for field in fields_of(schema)
        ]
        made = {field.name: field.schema for field in fields}
        reader = Reader.of(schema, self.settings[REPLACE_NULL], made)
        converted = schema.field(self._field)

        def convert(struct: Map) -> Map:
            result = reader.read(struct)
            if converted is not None:
                read = self._readers(converted.schema)
                found = result[self._field]
                result[self._field] = None if found is None else self._make(read(found))
            return result

        updated = replace(built(schema, fields), optional=schema.optional)
        if schema.default is not None:
            updated = with_default(updated, convert(cast(Map, schema.default)))
        return updated, convert

    # -- from a value to milliseconds --

    def _convert_plain(self, value: Value) -> Value:
        if value is None:
            return None
        if isinstance(value, (datetime.date, datetime.time)):
            return self._make(ms_of(value))
        if isinstance(value, str):
            return self._make(self._parse(value))
        if isinstance(value, int) and not isinstance(value, bool) and fits_long(value):
            return self._make(self._from_unix(value))
        raise DataError(
            f"TimestampConverter does not support class {class_of(value)} objects as timestamps"
        )

    def _reader(self, schema: Schema) -> Callable[[Value], int]:
        """Return the function that reads values of `schema`. Source:
        TimestampConverter.timestampTypeFromSchema."""
        if logical_type(schema) in (DATE, TIME, TIMESTAMP):
            return ms_of
        if schema.type is SchemaType.STRING:
            return self._parse
        if schema.type is SchemaType.INT64:
            return self._from_unix
        raise DataError(
            f"Schema {schema_text(schema)} does not correspond to a known timestamp type format"
        )

    def _parse(self, text: str) -> int:
        if self._format is None:
            # Java: a NullPointerException.
            raise DataError(f"TimestampConverter needs its format to read the text {text!r}")
        try:
            return self._format.parse(text)
        except DateTextError as error:
            raise DataError(
                f"Could not parse timestamp: value ({text}) does not match pattern "
                f"({self._format.pattern})"
            ) from error
        except RefusedDateError as error:
            raise DataError(f"Could not parse timestamp: value ({text}): {error}") from error

    def _from_unix(self, number: int) -> int:
        if self._precision == "seconds":
            return clamped(number * 1000, 64)
        units = _PER_MS[self._precision]
        return -(-number // units) if number < 0 else number // units

    # -- from milliseconds to a value --

    def _maker(self) -> Callable[[int], Value]:
        if self._target == "string":
            return cast(SimpleDateFormat, self._format).format
        if self._target == "unix":
            return self._to_unix
        return {"Date": date_of, "Time": time_of, "Timestamp": datetime_of}[self._target]

    def _to_unix(self, ms: int) -> int:
        if self._precision == "seconds":
            return -(-ms // 1000) if ms < 0 else ms // 1000
        return clamped(ms * _PER_MS[self._precision], 64)


_PURPOSE: Final = "converting timestamp formats"
