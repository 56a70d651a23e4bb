"""Rows of a Spark plan as values of Connect's types, by way of Arrow. No Row object is made."""

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from headgate.connector.api import DataError
from headgate.connector.schema import Schema
from headgate_arrow import arrow_types

_VARIANT: Final = b"variant"
_NO_FORM: Final = (
    "which has no form in Connect's types: cast it, or leave it out (for JDBC by option.query, "
    "else by schema)"
)


def prepare(session: Any, rows: int) -> None:
    """Set the session's settings on which values depend: instants are in UTC, and one table has at
    most `rows` rows."""
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))


def check_columns(frame: Any) -> None:
    """Check the types of the columns.

    Raises:
        DataError: Arrow has no type for a column. The message names it.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    for field in frame.schema.fields:
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except PySparkException:
            kind = field.dataType.simpleString()
            raise DataError(f"column {field.name} is of type {kind}, {_NO_FORM}") from None


def tables(session: Any, frame: Any) -> Iterator[Any]:
    """Yield the rows of `frame` in its order as tables of pyarrow, as they come from Spark.

    Raises:
        Exception: as Spark's client raises it.
    """
    client = session.client
    for part in client.to_table_as_iterator(frame._plan.to_proto(client), {}):
        if isinstance(part, pa.Table) and part.num_rows:
            yield part


class RowReader:
    """Turns tables into values. It keeps what it knows of the columns from one table to the
    next."""

    def __init__(self) -> None:
        self._columns: Any = None
        self._carriers: Any = None
        self._schema: Schema | None = None

    def values(self, table: Any) -> tuple[Schema, list[dict[str, Any]]]:
        """Return the STRUCT of the columns, and a value of it for each row.

        Raises:
            DataError: a column's type, or a value, has no form in Connect's types.
        """
        if self._schema is None or table.schema != self._columns:
            self._learn(table.schema)
        assert self._schema is not None
        try:
            return self._schema, arrow_types.rows_of(table, self._carriers)
        except (pa.ArrowException, ValueError, OverflowError, KeyError) as error:
            raise DataError(f"a row has no form in Connect's types: {error}") from error

    def _learn(self, columns: Any) -> None:
        for column in columns:
            if _is_variant(column):
                raise DataError(f"column {column.name} is of type variant, {_NO_FORM}")
        try:
            self._schema = arrow_types.struct_schema(columns)
        except arrow_types.NoFormError as error:
            raise DataError(str(error)) from error
        self._columns, self._carriers = columns, arrow_types.carriers(columns)


def _is_variant(column: Any) -> bool:
    kind = column.type
    children = [kind.field(index) for index in range(kind.num_fields)]
    return any(_VARIANT in (one.metadata or {}) for one in [column, *children]) or any(
        map(_is_variant, children)
    )
