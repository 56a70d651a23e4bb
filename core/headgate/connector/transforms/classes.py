"""Names of Java's classes, for Connect's error texts: those of plain values, and of values with a
schema.

Without a schema an integer is a Long, or a BigInteger beyond 64 bits. Maps and lists are those that
Connect's JsonConverter makes.
"""

import datetime
import decimal
from typing import Final

from headgate.connector.schema import DECIMAL, Schema, SchemaType, logical_type

_BY_TYPE: Final[dict[type, str]] = {
    bool: "java.lang.Boolean",
    float: "java.lang.Double",
    str: "java.lang.String",
    bytes: "[B",
    bytearray: "[B",
    memoryview: "[B",
    dict: "java.util.HashMap",
    list: "java.util.ArrayList",
    tuple: "java.util.ArrayList",
    decimal.Decimal: "java.math.BigDecimal",
    datetime.datetime: "java.util.Date",
    datetime.date: "java.util.Date",
    datetime.time: "java.util.Date",
    type(None): "null",
}
_BY_SCHEMA: Final = {
    SchemaType.INT8: "java.lang.Byte",
    SchemaType.INT16: "java.lang.Short",
    SchemaType.INT32: "java.lang.Integer",
    SchemaType.INT64: "java.lang.Long",
    SchemaType.FLOAT32: "java.lang.Float",
    SchemaType.FLOAT64: "java.lang.Double",
    SchemaType.BOOLEAN: "java.lang.Boolean",
    SchemaType.STRING: "java.lang.String",
    SchemaType.BYTES: "[B",
    SchemaType.ARRAY: "java.util.ArrayList",
    SchemaType.MAP: "java.util.HashMap",
    SchemaType.STRUCT: "org.apache.kafka.connect.data.Struct",
}


def class_of(value: object, schema: Schema | None = None) -> str:
    """Return `value.getClass().getName()` for the Java object that `value` stands for; ``null`` for
    None."""
    if value is None:
        return "null"
    if schema is not None:
        logical = logical_type(schema)
        if logical is None:
            return _BY_SCHEMA[schema.type]
        return "java.math.BigDecimal" if logical == DECIMAL else "java.util.Date"
    kind = type(value)
    if kind is int:
        return "java.lang.Long" if fits_long(value) else "java.math.BigInteger"
    return _BY_TYPE.get(kind, f"{kind.__module__}.{kind.__qualname__}")


def fits_long(number: object) -> bool:
    return isinstance(number, int) and -(1 << 63) <= number < 1 << 63


_PLAIN: Final[dict[type, SchemaType]] = {
    bool: SchemaType.BOOLEAN,
    int: SchemaType.INT64,
    float: SchemaType.FLOAT64,
    str: SchemaType.STRING,
    bytes: SchemaType.BYTES,
    bytearray: SchemaType.BYTES,
    memoryview: SchemaType.BYTES,
    list: SchemaType.ARRAY,
    tuple: SchemaType.ARRAY,
    dict: SchemaType.MAP,
}


def plain_type(value: object) -> SchemaType | None:
    """Return Connect's type of a value without a schema. None if there is none: dates and decimals
    need a schema, and integers have at most 64 bits. Source: ConnectSchema.schemaType."""
    found = _PLAIN.get(type(value))
    return None if found is SchemaType.INT64 and not fits_long(value) else found
