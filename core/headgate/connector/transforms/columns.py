"""What a transform does to many rows of one schema at once.

The core knows no Arrow. A transform says what becomes of each field, and
`headgate_arrow.batch_chain` does it to columns. Both ways give the same records: where that is not
certain, rows are changed one by one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias, final

from headgate.connector.api import Value
from headgate.connector.schema import Schema, SchemaType


class RowsAtOnce(Enum):
    """How a transform treats rows that travel as one batch."""

    ALIKE = auto()
    """It looks at nothing that differs from row to row: one record stands for all."""
    COLUMNS = auto()
    """`SidedTransform.columns` says what becomes of their values."""
    NEVER = auto()
    """They are made into records first."""


@final
@dataclass(frozen=True, slots=True)
class Taken:
    """The values of a field, found by the names on the way to it."""

    path: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Whole:
    """The values themselves, which have all columns."""


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """The same in every row."""

    value: Value


@final
@dataclass(frozen=True, slots=True)
class RowOffset:
    """The consumer offset of each row."""


@final
@dataclass(frozen=True, slots=True)
class Computed:
    """What `compute` makes of each value of a field; a null stays null."""

    name: str
    compute: Callable[[Value], Value]
    alike: bool = False
    """All values become the same."""
    target: SchemaType | None = None
    """The result is that of a `Cast` to this type, of which an adapter may know a faster way."""


Column: TypeAlias = Taken | Whole | Constant | RowOffset | Computed


@final
@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """What becomes of values with a STRUCT schema."""

    schema: Schema
    """Schema of the new values."""
    columns: Sequence[Column]
    """One for each field of `schema`."""
    extracts: bool = False
    """Whether the one column is the new value itself."""


def taken(schema: Schema) -> list[Column]:
    """All fields of a STRUCT, as they are."""
    return [Taken((field.name,)) for field in schema.fields]
