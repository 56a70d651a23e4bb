"""Connect's data model: schemas, and values in plain Python that are checked against them.

| Schema | value |
| --- | --- |
| INT8, INT16, INT32, INT64 | int of that size |
| FLOAT32, FLOAT64 | float, or an int that a float holds exactly |
| BOOLEAN, STRING, BYTES | bool, str, bytes (bytearray and memoryview are taken) |
| ARRAY, MAP | list, dict |
| STRUCT | dict by field name; a missing key is a null |
| Decimal (BYTES) | decimal.Decimal, with at most `scale` digits after the point |
| Date (INT32) | datetime.date |
| Time (INT32) | datetime.time without timezone, whole milliseconds |
| Timestamp (INT64) | aware datetime.datetime, whole milliseconds; converters give it in UTC |

Source: org.apache.kafka.connect.data (4.3.1): ConnectSchema, Decimal, Date, Time, Timestamp.
Differs: there is no Struct class. A decimal with fewer digits than its scale is accepted, since
nothing is lost. A struct or list as the key of a map has no form in Python and is refused.
"""

import datetime
import decimal
import math
import struct as binary
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, cast

from headgate.connector.data_error import DataError


class SchemaType(StrEnum):
    """Connect's types. The text is the name of `Schema.Type` in Java, in lower case."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
"""Names of the logical types."""

SCALE: Final = "scale"
"""Parameter of a Decimal: number of digits after the point."""
PRECISION: Final = "connect.decimal.precision"
"""Parameter of a Decimal: largest number of digits. Connect defines none; connectors for it use
this name."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Schema of a value. Frozen: do not change `parameters` or `default` in place.

    Raises:
        DataError: A part does not fit the type, or the schema refuses the default.
    """

    type: SchemaType
    optional: bool = False
    """Whether a null is allowed."""
    default: Any = None
    """Value that replaces a null where the reader asks for it. None: there is none."""
    name: str | None = None
    """Name of a struct, or of a logical type."""
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    fields: tuple["Field", ...] = ()
    """Fields of a STRUCT, in order."""
    key_schema: "Schema | None" = None
    """Schema of the keys of a MAP."""
    value_schema: "Schema | None" = None
    """Schema of the items of an ARRAY, or of the values of a MAP."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", SchemaType(self.type))
        if (self.key_schema is not None) != (self.type is SchemaType.MAP):
            raise DataError(f"a key schema belongs to a map and to nothing else: {self.type}")
        if (self.value_schema is not None) != (self.type in (SchemaType.MAP, SchemaType.ARRAY)):
            raise DataError(f"a value schema belongs to maps and arrays alone: {self.type}")
        names = [found.name for found in self.fields]
        if names and self.type is not SchemaType.STRUCT:
            raise DataError(f"fields belong to a struct and to nothing else: {self.type}")
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"a struct has two fields of the name {twice!r}, expected one")
        if self.default is not None:
            validate(self, self.default, "default")

    def __hash__(self) -> int:
        names = tuple([found.name for found in self.fields])
        return hash((self.type, self.optional, self.name, self.version, names))

    def field(self, name: str) -> "Field | None":
        """Return the field of a STRUCT with this name, or None."""
        return next((found for found in self.fields if found.name == name), None)

    def as_optional(self) -> "Schema":
        return self if self.optional else replace(self, optional=True)

    def as_required(self) -> "Schema":
        return replace(self, optional=False) if self.optional else self

    @property
    def scale(self) -> int:
        """Number of digits after the point of a Decimal.

        Raises:
            DataError: The parameter is missing or no integer. Source: Decimal.scale.
        """
        text = self.parameters.get(SCALE)
        if text is None:
            raise DataError("Invalid Decimal schema: scale parameter not found.")
        try:
            return int(text)
        except ValueError as error:
            raise DataError("Invalid scale parameter found in Decimal schema: ") from error


@dataclass(frozen=True, slots=True)
class Field:
    """A named field of a STRUCT."""

    name: str
    schema: Schema


class SchemaAndValue(NamedTuple):
    """A value with its schema, which is None for a value without one."""

    schema: Schema | None
    value: Any


INT8: Final = Schema(SchemaType.INT8)
INT16: Final = Schema(SchemaType.INT16)
INT32: Final = Schema(SchemaType.INT32)
INT64: Final = Schema(SchemaType.INT64)
FLOAT32: Final = Schema(SchemaType.FLOAT32)
FLOAT64: Final = Schema(SchemaType.FLOAT64)
BOOLEAN: Final = Schema(SchemaType.BOOLEAN)
STRING: Final = Schema(SchemaType.STRING)
BYTES: Final = Schema(SchemaType.BYTES)
"""Required types without a name; `as_optional` gives the optional ones."""


def array(items: Schema, *, optional: bool = False) -> Schema:
    return Schema(SchemaType.ARRAY, optional, value_schema=items)


def map_of(keys: Schema, values: Schema, *, optional: bool = False) -> Schema:
    return Schema(SchemaType.MAP, optional, key_schema=keys, value_schema=values)


def struct(
    fields: Mapping[str, Schema], *, name: str | None = None, optional: bool = False
) -> Schema:
    """Return a STRUCT with these fields, in the mapping's order."""
    found = tuple([Field(key, value) for key, value in fields.items()])
    return Schema(SchemaType.STRUCT, optional, name=name, fields=found)


def decimal_of(scale: int, precision: int | None = None, *, optional: bool = False) -> Schema:
    """Return a Connect Decimal. `precision`, which Connect does not have, is kept as a
    parameter."""
    parameters = {SCALE: str(scale)}
    if precision is not None:
        parameters[PRECISION] = str(precision)
    return Schema(SchemaType.BYTES, optional, name=DECIMAL, version=1, parameters=parameters)


DATE_SCHEMA: Final = Schema(SchemaType.INT32, name=DATE, version=1)
TIME_SCHEMA: Final = Schema(SchemaType.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema(SchemaType.INT64, name=TIMESTAMP, version=1)


# -- values --


def validate(schema: Schema, value: Any, path: str = "value") -> None:
    """Check that `value` fits `schema`. Source: ConnectSchema.validateValue, Struct.validate.

    Args:
        path: Name of the value in errors; parts of it are called ``value.field`` and ``value[3]``.

    Raises:
        DataError: The value does not fit. The text names the path, what was seen and what was
            expected.
    """
    if value is None:
        if not schema.optional:
            raise DataError(f"{path} is null, expected {_called(schema)}, which is required")
        return
    check = _LOGICAL.get(schema.name) if schema.name is not None else None
    if check is None or LOGICAL_TYPES[cast(str, schema.name)] is not schema.type:
        check = _CHECKS[schema.type]
    check(schema, value, path)


def is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def kind_of(value: object) -> str:
    """Return Python's name of the value's type, for errors."""
    return type(value).__name__


def _called(schema: Schema) -> str:
    kind = schema.type.upper()
    return kind if schema.name is None else f"{kind} ({schema.name.rpartition('.')[2]})"


def _wrong(schema: Schema, value: Any, path: str, wanted: str) -> DataError:
    return DataError(f"{path} is of type {kind_of(value)}, expected {wanted} for {_called(schema)}")


_Check: TypeAlias = Callable[[Schema, Any, str], None]


def _integer(bits: int) -> _Check:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(schema: Schema, value: Any, path: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool):
            raise _wrong(schema, value, path, "int")
        if not low <= value <= high:
            raise DataError(f"{path} is {value}, expected {low} to {high} for {_called(schema)}")

    return check


def _float(schema: Schema, value: Any, path: str) -> None:
    """Check a float, or an int that a float holds exactly. A FLOAT32 is rounded to the nearest, as
    in Java; a float too large for it is refused."""
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            exact = int(float(value)) == value
        except OverflowError:
            exact = False
        if not exact:
            raise DataError(f"{path} is {value}, which {_called(schema)} cannot hold exactly")
    elif not isinstance(value, float):
        raise _wrong(schema, value, path, "float")
    if schema.type is SchemaType.FLOAT32 and math.isfinite(value):
        try:
            binary.pack(">f", value)
        except OverflowError:
            raise DataError(f"{path} is {value}, which is too large for FLOAT32") from None


def _of_type(wanted: str, *types: type) -> _Check:
    def check(schema: Schema, value: Any, path: str) -> None:
        if not isinstance(value, types):
            raise _wrong(schema, value, path, wanted)

    return check


def _array(schema: Schema, value: Any, path: str) -> None:
    if not isinstance(value, (list, tuple)):
        raise _wrong(schema, value, path, "list")
    items = cast(Schema, schema.value_schema)
    for index, item in enumerate(cast("list[Any]", value)):
        validate(items, item, f"{path}[{index}]")


def _map(schema: Schema, value: Any, path: str) -> None:
    if not is_dict(value):
        raise _wrong(schema, value, path, "dict")
    keys, values = cast(Schema, schema.key_schema), cast(Schema, schema.value_schema)
    for key, item in value.items():
        validate(keys, key, f"a key of {path}")
        validate(values, item, f"{path}[{key!r}]")


def _struct(schema: Schema, value: Any, path: str) -> None:
    if not is_dict(value):
        raise _wrong(schema, value, path, "dict")
    given = value
    known = 0
    for found in schema.fields:
        item = given.get(found.name)
        if item is not None:
            known += 1
            validate(found.schema, item, f"{path}.{found.name}")
            continue
        known += found.name in given
        if found.schema.default is None:
            validate(found.schema, None, f"{path}.{found.name}")
    if known != len(given):
        names = [found.name for found in schema.fields]
        more = next(name for name in given if name not in names)
        raise DataError(f"{path} has {more!r}, expected the fields {', '.join(names)} alone")


def _decimal(schema: Schema, value: Any, path: str) -> None:
    if not isinstance(value, decimal.Decimal):
        raise _wrong(schema, value, path, "Decimal")
    unscaled(value, schema.scale, path)


def unscaled(value: decimal.Decimal, scale: int, path: str = "value") -> int:
    """Return the integer that is `value` times 10 to the power of `scale`.

    Raises:
        DataError: The value has more digits after the point than `scale`, or is not finite.
    """
    if not value.is_finite():
        raise DataError(f"{path} is {value}, expected a finite Decimal")
    if value.adjusted() + scale > _MOST_DIGITS:
        raise DataError(f"{path} has over {_MOST_DIGITS} digits, expected fewer")
    shifted = value.scaleb(scale, _EXACT)
    number = int(shifted)
    if number != shifted:
        digits = -cast(int, value.as_tuple().exponent)
        raise DataError(
            f"{path} is {value} with {digits} digits after the point, expected at most {scale}, "
            "the scale of its schema"
        )
    return number


_EXACT: Final = decimal.Context(
    prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[]
)
_MOST_DIGITS: Final = 100_000
"""Largest number of digits of a Decimal, so that 1E+999999999 does not fill the memory."""


def _date(schema: Schema, value: Any, path: str) -> None:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise _wrong(schema, value, path, "date")


def _time(schema: Schema, value: Any, path: str) -> None:
    if not isinstance(value, datetime.time):
        raise _wrong(schema, value, path, "time")
    if value.tzinfo is not None:
        raise DataError(f"{path} is {value} with a timezone, expected a time without one")
    _whole(value.microsecond, value, path)


def _timestamp(schema: Schema, value: Any, path: str) -> None:
    if not isinstance(value, datetime.datetime):
        raise _wrong(schema, value, path, "datetime")
    if value.utcoffset() is None:
        raise DataError(f"{path} is {value} without timezone, expected an aware datetime")
    _whole(value.microsecond, value, path)


def _whole(microseconds: int, value: Any, path: str) -> None:
    if microseconds % 1000:
        raise DataError(
            f"{path} is {value}, expected whole milliseconds: Connect's type has no more. Use an "
            "INT64 with a name of your own for microseconds"
        )


_BYTES_LIKE: Final = (bytes, bytearray, memoryview)
_CHECKS: Final[Mapping[SchemaType, _Check]] = {
    SchemaType.INT8: _integer(8),
    SchemaType.INT16: _integer(16),
    SchemaType.INT32: _integer(32),
    SchemaType.INT64: _integer(64),
    SchemaType.FLOAT32: _float,
    SchemaType.FLOAT64: _float,
    SchemaType.BOOLEAN: _of_type("bool", bool),
    SchemaType.STRING: _of_type("str", str),
    SchemaType.BYTES: _of_type("bytes", *_BYTES_LIKE),
    SchemaType.ARRAY: _array,
    SchemaType.MAP: _map,
    SchemaType.STRUCT: _struct,
}
LOGICAL_TYPES: Final[Mapping[str, SchemaType]] = {
    DECIMAL: SchemaType.BYTES,
    DATE: SchemaType.INT32,
    TIME: SchemaType.INT32,
    TIMESTAMP: SchemaType.INT64,
}
"""Type that carries each logical type."""
_LOGICAL: Final[Mapping[str | None, _Check]] = {
    DECIMAL: _decimal,
    DATE: _date,
    TIME: _time,
    TIMESTAMP: _timestamp,
}


def logical_type(schema: Schema) -> str | None:
    """Return the name of the schema's logical type, or None if its values are of the plain type."""
    name = schema.name
    return name if name is not None and LOGICAL_TYPES.get(name) is schema.type else None


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_DAY_MS: Final = 86_400_000


def to_logical(schema: Schema, carried: Any) -> Any:
    """Return the value of a logical type from the value that carries it. That is the unscaled
    number of a Decimal as int, the days of a Date, or the milliseconds of a Time (since midnight)
    or Timestamp (since 1970 in UTC).

    Raises:
        DataError: Python's type cannot hold the value (years before 1 or after 9999), or it is no
            time of day.
    """
    name = schema.name
    try:
        if name == DECIMAL:
            return decimal.Decimal(carried).scaleb(-schema.scale, _EXACT)
        if name == DATE:
            return datetime.date.fromordinal(carried + _EPOCH_DAY)
        if name == TIME:
            if not 0 <= carried < _DAY_MS:
                raise OverflowError
            return (_EPOCH + carried * _MILLISECOND).time()
        return _EPOCH + carried * _MILLISECOND
    except (OverflowError, ValueError) as error:
        raise DataError(
            f"{carried} has no form as {_called(schema)}: Python's dates go from year 1 to 9999, "
            "times from 0 to 24 hours"
        ) from error


def from_logical(schema: Schema, value: Any) -> int:
    """Return the integer that carries a value of a logical type; `validate` must have accepted the
    value."""
    name = schema.name
    if name == DECIMAL:
        return unscaled(value, schema.scale)
    if name == DATE:
        return cast(int, value.toordinal()) - _EPOCH_DAY
    if name == TIME:
        seconds: int = value.hour * 3600 + value.minute * 60 + value.second
        return seconds * 1000 + cast(int, value.microsecond) // 1000
    return (cast(datetime.datetime, value) - _EPOCH) // _MILLISECOND
