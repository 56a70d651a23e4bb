"""The columns of a table that a sink writes to: one type and one spelling for each.

A batch may have fewer columns than the table: they are null. What else it may have is declared by
`Evolution`. Needs pyarrow.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeAlias

import pyarrow as pa

from headgate.connector.data_error import DataError
from headgate_arrow.widening import LossError, may_widen, widened
from headgate_connectors.output.column_names import clash


class Evolution(StrEnum):
    """Values of ``schema.evolution``."""

    NONE = "none"
    ADD_COLUMNS = "add_columns"
    WIDEN = "widen"


Promotes: TypeAlias = Callable[[Any, Any], bool]
"""Whether a column of the first type may be made one of the second in the table."""


def never(_was: Any, _now: Any) -> bool:
    """A table whose columns keep their types."""
    return False


def merge_columns(known: Any, given: Any, evolution: Evolution, promotes: Promotes = never) -> Any:
    """Columns of the table (a pyarrow.Schema), then those of `given` that are new.

    Args:
        known: None: there is no table yet.
        promotes: with `Evolution.WIDEN`: which columns of the table become wider themselves.

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
    added, wider = list[Any](), dict[str, Any]()
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
            narrower = may_widen(column.type, there.type)
            if evolution is Evolution.WIDEN and narrower:
                continue  # each of its values is looked at
            if evolution is not Evolution.WIDEN or not promotes(there.type, column.type):
                advice = (
                    "set schema.evolution = widen to have it widened" if narrower else "cast it"
                )
                raise DataError(
                    f"column {column.name} is of type {column.type}, expected {there.type}, the "
                    f"type it has in the table: {advice}, or write to another table"
                )
            wider[there.name] = there.with_type(column.type)
    return pa.schema([*(wider.get(column.name, column) for column in known), *added])


def conform(table: Any, columns: Any) -> Any:
    """The pyarrow.Table with exactly `columns`, in their order; those it lacks are null.

    Raises:
        DataError: a value does not hold in the type that its column has there.
    """
    names = set(table.schema.names)
    arrays = [
        _of_type(table.column(column.name), column)
        if column.name in names
        else pa.nulls(table.num_rows, column.type)
        for column in columns
    ]
    return pa.Table.from_arrays(arrays, schema=columns)


def with_types(table: Any, columns: Any) -> Any:
    """The pyarrow.Table with its own columns, each of the type that it has in `columns`. Raises
    `DataError` as `conform`."""
    return conform(table, pa.schema([columns.field(name) for name in table.schema.names]))


def _of_type(array: Any, column: Any) -> Any:
    if array.type == column.type:
        return array
    try:
        return pa.chunked_array([widened(one, column.type) for one in array.chunks], column.type)
    except LossError as error:
        raise DataError(
            f"column {column.name} of type {array.type} has a value that is no {column.type}, the "
            f"type it has in the table: {error}"
        ) from error
