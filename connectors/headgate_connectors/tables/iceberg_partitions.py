"""Partitions of an Iceberg table, written as in Spark's DDL: ``region, day(at), bucket(16,
id)``."""

import re
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.table import Table, Transaction
from pyiceberg.types import DoubleType, FloatType

from headgate.connector.config import ConfigError

_OUTSIDE: Final = re.compile(r",(?![^()]*\))")
"""Matches a comma outside of parentheses."""
_TIMES: Final = ("year", "month", "day", "hour")
_NUMBERED: Final = ("bucket", "truncate")
_CALL: Final = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)")
_PLAIN: Final = re.compile(r"[^(),]+")
_REAL: Final = (FloatType, DoubleType)
_IDENTITY: Final = "identity"
_EXPECTED: Final = (
    "expected the name of a column, or year(C), month(C), day(C), hour(C), bucket(N, C) or "
    "truncate(N, C) of a column C, with commas between them"
)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition spec."""

    column: str
    transform: str
    """Transform in the spelling of Iceberg's specification, such as ``bucket[16]``."""

    def __str__(self) -> str:
        if self.transform == _IDENTITY:
            return self.column
        name, _, number = self.transform.rstrip("]").partition("[")
        return f"{name}({number}, {self.column})" if number else f"{name}({self.column})"


def parse_partitions(text: str) -> tuple[PartitionField, ...]:
    """Return the partition fields that a text names. Raises ValueError if it cannot be parsed."""
    parts = [part.strip() for part in _OUTSIDE.split(text)] if text.strip() else []
    fields = tuple(_parsed(part) for part in parts)
    if len(set(fields)) < len(fields):
        raise ValueError("names a partition twice")
    return fields


def _parsed(part: str) -> PartitionField:
    if _PLAIN.fullmatch(part):
        return PartitionField(part, _IDENTITY)
    call = _CALL.fullmatch(part)
    if call is not None:
        name, number, column = call[1].lower(), call[2], call[3]
        if name in _TIMES and number is None:
            return PartitionField(column, name)
        if name in _NUMBERED and number is not None and int(number) > 0:
            return PartitionField(column, f"{name}[{int(number)}]")
    raise ValueError(f"has {part!r}, {_EXPECTED}")


def valid_partitions(name: str, value: Any) -> None:
    """Validate a setting with partitions, for `ConfigDef`."""
    try:
        parse_partitions(value or "")
    except ValueError as error:
        raise ConfigError.of(name, value, str(error)) from error


def partitions_of(table: Table) -> tuple[PartitionField, ...]:
    """Return the partition fields of the table's present spec."""
    schema = table.schema()
    return tuple(
        PartitionField(schema.find_column_name(field.source_id) or "?", str(field.transform))
        for field in table.spec().fields
        if str(field.transform) != "void"
    )


def add_partitions(change: Transaction, fields: tuple[PartitionField, ...]) -> None:
    """Give a new table its partitions.

    Raises:
        ValueError: a column does not exist, or its transform does not take its type.
    """
    schema = change.table_metadata.schema()
    kinds = {field.column: schema.find_type(field.column) for field in fields}
    if real := [name for name, kind in kinds.items() if isinstance(kind, _REAL)]:
        raise ValueError(f"column {real[0]} is of type {kinds[real[0]]}, which has no partitions")
    with change.update_spec() as spec:
        for field in fields:
            spec.add_field(field.column, field.transform)


def real_partitions(table: Table) -> list[str]:
    """Return the partition columns of the table whose type allows NaN.

    pyiceberg compares rows with the values of their partitions, and NaN is equal to nothing.
    """
    schema = table.schema()
    columns = [field.column for field in partitions_of(table)]
    return [name for name in columns if isinstance(schema.find_type(name), _REAL)]


def described(fields: tuple[PartitionField, ...]) -> str:
    return ", ".join(map(str, fields)) or "nothing"
