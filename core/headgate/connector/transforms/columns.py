"""Plans by which a transform changes many rows of one schema at once.

The core does not import Arrow. A transform says how each new field is made, and
`headgate_arrow.batch_chain` makes the columns. Both ways give the same records; where that is not
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
    """The transform reads nothing that differs between rows: one record stands for all."""
    COLUMNS = auto()
    """`SidedTransform.columns` gives the plan for the values."""
    NEVER = auto()
    """The rows must be made into records first."""


@final
@dataclass(frozen=True, slots=True)
class Taken:
    """The values of a field, found by a path of names."""

    path: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Whole:
    """The whole values, with all their columns."""


@final
@dataclass(frozen=True, slots=True)
class Constant:
    """The same value in every row."""

    value: Value


@final
@dataclass(frozen=True, slots=True)
class RowOffset:
    """The consumer offset of each row."""


@final
@dataclass(frozen=True, slots=True)
class Computed:
    """The results of `compute` for each value of a field; a null stays null."""

    name: str
    compute: Callable[[Value], Value]
    alike: bool = False
    """Whether all values become the same."""
    target: SchemaType | None = None
    """Set if the result is that of a `Cast` to this type, for which an adapter may have a faster
    way."""


Column: TypeAlias = Taken | Whole | Constant | RowOffset | Computed


@final
@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Plan that changes values with a STRUCT schema."""

    schema: Schema
    """Schema of the new values."""
    columns: Sequence[Column]
    """One column for each field of `schema`."""
    extracts: bool = False
    """Whether the one column is the new value itself."""


def taken(schema: Schema) -> list[Column]:
    """Return the columns of all fields of a STRUCT, unchanged."""
    return [Taken((field.name,)) for field in schema.fields]
