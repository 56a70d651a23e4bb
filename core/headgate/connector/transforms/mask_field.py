"""The transform that hides fields. Source: Connect's `MaskField` (4.3.1)."""

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import Final

from headgate.connector.api import DataError, SinkRecord, SourceRecord, Value
from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.schema import Field, Schema
from headgate.connector.transforms.base import PerSchema, SidedTransform
from headgate.connector.transforms.classes import class_of
from headgate.connector.transforms.columns import Column, ColumnPlan, Computed, Taken
from headgate.connector.transforms.structs import (
    REPLACE_NULL,
    Reader,
    define_replace_null,
    fields_of,
    require_map,
    require_struct,
)
from headgate.connector.validators import non_empty, unique_names
from headgate.java.hash import STRINGS, in_set_order
from headgate.java.numbers import (
    floating,
    parse_big_decimal,
    parse_integer,
    single,
    whole_part,
    wrapped,
)

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class MaskField(SidedTransform):
    """Replaces fields by the empty value of their type (0, false, an empty text, 1970), or by
    `replacement` where they are numbers or texts. A null stays null."""

    CONFIG = define_replace_null(
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=unique_names,
            importance=Importance.HIGH,
            documentation="Fields to hide.",
        )
        .define(
            "replacement",
            Type.STRING,
            None,
            non_empty,
            Importance.LOW,
            "What stands in their place; for numbers it is read as a number.",
        )
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        names: list[str] = self.settings["fields"]
        self._names = in_set_order(names, STRINGS)  # the order decides which error comes first
        self._replacement: str | None = self.settings["replacement"]
        self._plans = PerSchema(self._plan)

    def plain(self, value: Value, record: SourceRecord | SinkRecord) -> Value:
        result = require_map(value, _PURPOSE).copy()
        for name in self._names:
            found = result.get(name)
            result[name] = None if found is None else self._masked(found, class_of(found))
        return result

    def typed(
        self, schema: Schema, value: Value, record: SourceRecord | SinkRecord
    ) -> tuple[Schema, Value]:
        struct = require_struct(schema, value, _PURPOSE)
        reader, masked = self._plans(schema)
        result = reader.read(struct)
        for field in masked:
            found = result[field.name]
            if found is not None:
                result[field.name] = self._masked(found, class_of(found, field.schema))
        return schema, result

    def columns(self, schema: Schema, record: SourceRecord | SinkRecord) -> ColumnPlan | None:
        return ColumnPlan(schema, [self._column(field) for field in fields_of(schema)])

    def _column(self, field: Field) -> Column:
        if field.name not in self._names:
            return Taken((field.name,))
        return Computed(
            field.name,
            lambda value: self._masked(value, class_of(value, field.schema)),
            alike=True,
        )

    def _plan(self, schema: Schema) -> tuple[Reader, list[Field]]:
        masked = [field for field in fields_of(schema) if field.name in self._names]
        return Reader.of(schema, self.settings[REPLACE_NULL]), masked

    def _masked(self, value: Value, java_class: str) -> Value:
        if self._replacement is not None:
            return _replaced(self._replacement, java_class)
        if java_class == "java.util.Date":
            return _first_of(value)
        if java_class not in _EMPTY:
            raise DataError(f"Cannot mask value of type: class {java_class}")
        return _EMPTY[java_class]()


_PURPOSE = "mask fields"
_EMPTY: Final[Mapping[str, Callable[[], Value]]] = {
    "java.lang.Boolean": bool,
    "java.lang.Byte": int,
    "java.lang.Short": int,
    "java.lang.Integer": int,
    "java.lang.Long": int,
    "java.lang.Float": float,
    "java.lang.Double": float,
    "java.math.BigInteger": int,
    "java.math.BigDecimal": decimal.Decimal,
    "java.lang.String": str,
    "java.util.ArrayList": list,
    "java.util.HashMap": dict,
}
_BITS: Final = {
    "java.lang.Byte": 8,
    "java.lang.Short": 16,
    "java.lang.Integer": 32,
    "java.lang.Long": 64,
}


def _first_of(value: Value) -> Value:
    """Return the begin of 1970, in the value's type."""
    if isinstance(value, datetime.datetime):
        return _EPOCH
    return datetime.time() if isinstance(value, datetime.time) else _EPOCH.date()


def _replaced(replacement: str, java_class: str) -> Value:
    """Return the replacement as a value of a Java class. A fraction is cut off, and a number that
    is too large is wrapped. Source: Values.convertToByte and its siblings."""
    if java_class == "java.lang.String":
        return replacement
    try:
        if java_class in _BITS:
            return wrapped(whole_part(parse_big_decimal(replacement)), _BITS[java_class])
        if java_class in ("java.lang.Float", "java.lang.Double"):
            number = parse_big_decimal(replacement)
            double = floating(number, to_single=False)
            return single(double) if java_class == "java.lang.Float" else double
    except ValueError as error:
        raise DataError(
            f"Unable to convert {replacement} (class java.lang.String) to a number"
        ) from error
    if java_class not in ("java.math.BigDecimal", "java.math.BigInteger"):
        raise DataError(f"Cannot mask value of type class {java_class} with custom replacement.")
    try:
        if java_class == "java.math.BigDecimal":
            return parse_big_decimal(replacement)
        return parse_integer(replacement, None)
    except ValueError as error:
        raise DataError(
            f"Unable to convert {replacement} (class java.lang.String) to number"
        ) from error
