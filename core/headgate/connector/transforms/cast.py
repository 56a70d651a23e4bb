"""The transform that changes types. Source: Connect's `Cast` (4.3.1)."""

import base64
import datetime
import decimal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type, java_text
from headgate.connector.schema import DATE, TIME, TIMESTAMP, Field, Schema, SchemaType, logical_type
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.classes import class_of, plain_type
from headgate.connector.transforms.columns import Column, ColumnPlan, Computed, Taken
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Map,
    define_replace_null,
    fields_of,
    null_of,
    require_map,
    require_struct,
    required_null,
    with_default,
)
from headgate.connector.transforms.times import ms_of
from headgate.java.double import java_double
from headgate.java.hash import in_map_order
from headgate.java.numbers import (
    floating,
    java_float,
    parse_floating,
    parse_integer,
    single,
    single_of,
    truncated,
    whole_part,
    wrapped,
)
from headgate.java.simple_date_format import DAY_MS, date_format
from headgate.java.text import split, trim

_WHOLE: Final = ""
"""Stands for the whole key or value in a parsed spec, in place of a name."""
_TARGETS: Final = (
    SchemaType.INT8,
    SchemaType.INT16,
    SchemaType.INT32,
    SchemaType.INT64,
    SchemaType.FLOAT32,
    SchemaType.FLOAT64,
    SchemaType.BOOLEAN,
    SchemaType.STRING,
)
_SOURCES: Final = (*_TARGETS, SchemaType.BYTES)


def _listed(types: Sequence[SchemaType]) -> str:
    return f"[{', '.join(found.upper() for found in types)}]"


def parse_spec(spec: Sequence[str]) -> tuple[SchemaType | None, dict[str, SchemaType]]:
    """Return the type for the whole key or value, if that is cast, and the types of fields by name.

    Raises:
        ConfigError: A type is unknown, or a field is named beside the whole.
    """
    whole: SchemaType | None = None
    casts: dict[str, SchemaType] = {}
    for pair in spec:
        parts = split(pair, ":")
        if len(parts) > 2:
            raise ConfigError.of("renames", list(spec), f"Invalid rename mapping: {pair}")
        if not parts:
            raise ConfigError(f"Invalid cast {pair!r} in the spec, expected field:type or a type")
        found = _target(trim(parts[-1]))
        if len(parts) == 1:
            whole = found
        else:
            casts[trim(parts[0])] = found
    if whole is not None and len(spec) > 1:
        raise ConfigError(
            "Cast transformations that specify a type to cast the entire value to may only "
            "specify a single cast in their spec"
        )
    return whole, casts


def _target(text: str) -> SchemaType:
    try:
        found = SchemaType(text.lower())
    except ValueError:
        name = f"org.apache.kafka.connect.data.Schema.Type.{text.upper()}"
        raise ConfigError(
            f"Invalid value java.lang.IllegalArgumentException: No enum constant {name} for "
            f"configuration Invalid type found in casting spec: {text}"
        ) from None
    if found not in _TARGETS:
        raise ConfigError(
            f"Cast transformation does not support casting to {found.upper()}; supported types are "
            f"{_listed(_TARGETS)}"
        )
    return found


def _valid_spec(name: str, value: Any) -> None:
    if not value:
        raise ConfigError("Must specify at least one field to cast.")
    parse_spec(value)


class Cast(SidedTransform):
    """Changes the type of fields, or of the whole key or value, as Java does: a number that is too
    large for a whole number's type is wrapped, a fraction is cut off. A null stays null."""

    CONFIG = define_replace_null(
        ConfigDef().define(
            "spec",
            Type.LIST,
            validator=_valid_spec,
            importance=Importance.HIGH,
            documentation="Pairs field:type, or one type for the whole key or value. Types: int8, "
            "int16, int32, int64, float32, float64, boolean, string.",
        )
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._whole, casts = parse_spec(self.settings["spec"])
        # The order decides which error is reported first.
        self._casts = {name: casts[name] for name in in_map_order(list(casts))}
        self._use_defaults: bool = self.settings[REPLACE_NULL]
        self._updated = PerSchema(self._update)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        if value is None:
            return None
        if self._whole is not None:
            return cast_plain(value, self._whole)
        result = require_map(value, _PURPOSE).copy()
        for name, target in self._casts.items():
            result[name] = cast_plain(result.get(name), target)
        return result

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        if value is None:
            return schema, None
        updated = self._updated(schema)
        if self._whole is not None:
            return updated, cast_typed(schema, value, self._whole)
        struct = require_struct(schema, value, _PURPOSE)
        result: Map = {}
        for field, made in zip(schema.fields, updated.fields, strict=True):
            found = struct.get(field.name)
            if found is None:
                found = null_of(field, self._use_defaults)
            target = self._casts.get(field.name)
            if target is not None:
                found = cast_typed(field.schema, found, target)
            if found is None and not made.schema.optional:
                raise required_null(field.name, made.schema)
            result[field.name] = found
        return updated, result

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        if self._whole is not None:
            return None
        columns = [self._column(field) for field in fields_of(schema)]
        return ColumnPlan(self._updated(schema), columns)

    def _column(self, field: Field) -> Column:
        target = self._casts.get(field.name)
        if target is None:
            return Taken((field.name,))
        return Computed(
            field.name, lambda value: cast_typed(field.schema, value, target), target=target
        )

    def _update(self, schema: Schema) -> Schema:
        if self._whole is not None:
            made = replace(
                schema,
                type=self._whole,
                default=None,
                fields=(),
                key_schema=None,
                value_schema=None,
            )
        else:
            fields = tuple([self._field(field) for field in fields_of(schema)])
            made = replace(schema, default=None, fields=fields)
        if schema.default is None:
            return made
        if self._whole is None:
            # As in Java, a struct cannot be cast, even in a default.
            return with_default(made, cast_typed(schema, schema.default, SchemaType.STRUCT))
        return with_default(made, cast_typed(schema, schema.default, self._whole))

    def _field(self, field: Field) -> Field:
        target = self._casts.get(field.name)
        if target is None:
            return field
        made = Schema(target, field.schema.optional)
        if field.schema.default is not None:
            made = with_default(made, cast_typed(field.schema, field.schema.default, target))
        return Field(field.name, made)


_PURPOSE: Final = "cast types"


def cast_plain(value: Value, target: SchemaType) -> Value:
    """Return a value without a schema, cast to the type `target`. Raises DataError."""
    if value is None:
        return None
    found = plain_type(value)
    if found is None:
        raise DataError(
            f"Cast transformation was passed a value of type class {class_of(value)} which is not "
            "supported by Connect's data API"
        )
    return _cast(None, value, found, target)


def cast_typed(schema: Schema, value: Value, target: SchemaType) -> Value:
    """Return a value of `schema`, cast to the type `target`. Raises DataError."""
    return None if value is None else _cast(schema, value, schema.type, target)


def _cast(schema: Schema | None, value: Value, found: SchemaType, target: SchemaType) -> Value:
    if found not in _SOURCES:
        raise DataError(
            f"Cast transformation does not support casting from {found.upper()}; supported types "
            f"are {_listed(_SOURCES)}"
        )
    if target is SchemaType.STRING:
        return _text(schema, value, found)
    if schema is not None and logical_type(schema) is not None:
        value = _encoded(schema, value)
    make = _MAKERS.get(target)
    if make is None:
        raise DataError(f"{target.upper()} is not supported in the Cast transformation.")
    try:
        return make(value)
    except TypeError:
        raise DataError(
            f"Unexpected type in Cast transformation: class {class_of(value)}"
        ) from None
    except ValueError:
        raise DataError(f"Value ({value}) was out of range for requested data type") from None


def _encoded(schema: Schema, value: Value) -> Value:
    """Return the number that carries a Date, Time or Timestamp. Source: Cast.encodeLogicalType."""
    if isinstance(value, decimal.Decimal):
        return value
    ms = ms_of(value)
    return ms // DAY_MS if logical_type(schema) == DATE else ms


def _text(schema: Schema | None, value: Value, found: SchemaType) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(cast(bytes, value)).decode()
    if isinstance(value, float):
        return java_float(value) if found is SchemaType.FLOAT32 else java_double(value)
    if isinstance(value, decimal.Decimal):
        scale = 0 if schema is None else schema.scale
        return _decimal_text(value, scale)
    if isinstance(value, (datetime.date, datetime.time)):
        return _time_text(cast(Schema, schema), value)
    return java_text(value)


def _decimal_text(value: decimal.Decimal, scale: int) -> str:
    """Return Java's `BigDecimal.toString` of a number with all digits of its scale."""
    return str(value.quantize(decimal.Decimal(1).scaleb(-scale), context=_EXACT))


_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
_DATE_FORMAT: Final = date_format("yyyy-MM-dd")
_TIME_FORMAT: Final = date_format("HH:mm:ss.SSS'Z'")
_TIMESTAMP_FORMAT: Final = date_format("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")


def _time_text(schema: Schema, value: datetime.date | datetime.time) -> str:
    """Return the text of a date or time. Source: Values.dateFormatFor. Differs: Java writes
    everything before 2 January 1970 as a time of day, and so loses the date; here the schema
    decides."""
    ms = ms_of(value)
    logical = logical_type(schema)
    if logical == TIME:
        return _TIME_FORMAT.format(ms)
    if logical == DATE or (logical == TIMESTAMP and ms >= DAY_MS and ms % DAY_MS == 0):
        return _DATE_FORMAT.format(ms)
    return _TIMESTAMP_FORMAT.format(ms)


def _whole_number(bits: int) -> Callable[[Value], int]:
    via = max(bits, 32)  # Java casts a double to int first, then to byte

    def make(value: Value) -> int:
        if isinstance(value, str):
            return parse_integer(value, bits)
        if isinstance(value, float):
            return wrapped(truncated(value, via), bits)
        if isinstance(value, decimal.Decimal):
            return wrapped(whole_part(value), bits)
        if isinstance(value, int):
            return wrapped(int(value), bits)
        raise TypeError

    return make


def _floating(*, to_single: bool) -> Callable[[Value], float]:
    def make(value: Value) -> float:
        if isinstance(value, str):
            return parse_floating(value, to_single=to_single)
        if isinstance(value, float):
            return single(value) if to_single else value
        if isinstance(value, decimal.Decimal):
            return floating(value, to_single=to_single)
        if isinstance(value, int):
            return single_of(value) if to_single else float(value)
        raise TypeError

    return make


def _boolean(value: Value) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, float):
        return truncated(value, 64) != 0
    if isinstance(value, decimal.Decimal):
        return wrapped(whole_part(value), 64) != 0
    if isinstance(value, int):
        return value != 0
    raise TypeError


_MAKERS: Final[Mapping[SchemaType, Callable[[Value], Value]]] = {
    SchemaType.INT8: _whole_number(8),
    SchemaType.INT16: _whole_number(16),
    SchemaType.INT32: _whole_number(32),
    SchemaType.INT64: _whole_number(64),
    SchemaType.FLOAT32: _floating(to_single=True),
    SchemaType.FLOAT64: _floating(to_single=False),
    SchemaType.BOOLEAN: _boolean,
}
