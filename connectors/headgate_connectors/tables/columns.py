"""The columns of a table that a sink writes to: one type and one spelling for each.

A batch may have fewer columns than the table: they are null. What else it may have is declared by
`Evolution`. Needs pyarrow.
"""

from enum import StrEnum
from typing import Any

import pyarrow as pa

from headgate.connector.data_error import DataError
from headgate_connectors.output.column_names import clash


class Evolution(StrEnum):
    """Values of ``schema.evolution``."""

    NONE = "none"
    ADD_COLUMNS = "add_columns"


def merge_columns(known: Any, given: Any, evolution: Evolution) -> Any:
    """Columns of the table (a pyarrow.Schema), then those of `given` that are new.

    Args:
        known: None: there is no table yet.

    Raises:
        DataError: a column has another type or spelling than the table's, or is new and
            `evolution` allows none; names it.
    """
    if (names := clash(given)) is not None:
        raise DataError(
            f"column {names[1]} differs from column {names[0]} in case only, and readers take both "
            "for one: rename it by a transform (ReplaceField)"
        )
    if known is None:
        return given
    by_lower = {column.name.lower(): column for column in known}
    added: list[Any] = []
    for column in given:
        there = by_lower.get(column.name.lower())
        if there is None:
            if evolution is Evolution.NONE:
                raise DataError(
                    f"column {column.name} of type {column.type} is not in the table: set "
                    "schema.evolution = add_columns to have it added"
                )
            added.append(column)
        elif there.name != column.name:
            raise DataError(
                f"column {column.name} is spelt {there.name} in the table: rename it by a "
                "transform (ReplaceField)"
            )
        elif not there.type.equals(column.type):
            raise DataError(
                f"column {column.name} is of type {column.type}, expected {there.type}, the type "
                "it has in the table: cast it, or write to another table"
            )
    return pa.schema([*known, *added])


def conform(table: Any, columns: Any) -> Any:
    """The pyarrow.Table with exactly `columns`, in their order; those it lacks are null."""
    names = set(table.schema.names)
    arrays = [
        table.column(column.name) if column.name in names else pa.nulls(table.num_rows, column.type)
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)
