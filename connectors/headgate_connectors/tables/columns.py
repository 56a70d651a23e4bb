"""The columns of a table that a sink writes to: each has one type and one spelling.

A batch may lack columns of the table, which then are null. `Evolution` says whether it may also
have new columns or other types. Needs pyarrow.
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
"""Function that returns whether the table can change a column of the first type to the second."""


def never(_was: Any, _now: Any) -> bool:
    """Return False: the columns of the table keep their types."""
    return False


def merge_columns(known: Any, given: Any, evolution: Evolution, promotes: Promotes = never) -> Any:
    """Return the columns of the table (a pyarrow.Schema), followed by the new ones of `given`.

    Args:
        known: columns of the table. None: there is no table yet.
        given: columns of the batch.
        promotes: with `Evolution.WIDEN`, whether a column of the table can become wider.

    Raises:
        DataError: a column has another type or spelling than in the table, or it is new and
            `evolution` allows no new ones. The message names the column.
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
                continue  # `conform` checks each of its values
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
    """Return a pyarrow.Table with exactly `columns`, in their order. Columns it lacks are null.

    Raises:
        DataError: a value does not fit the type of its column in `columns`.
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
    """Return the pyarrow.Table with its own columns, each with its type in `columns`. Raises
    `DataError` like `conform`."""
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
