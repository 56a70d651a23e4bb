"""Sinks refuse column names that some readers take for one, because they differ in case only."""

import pyarrow as pa
import pytest

from headgate.connector import DataError
from headgate_connectors.output.column_names import clash
from headgate_connectors.tables.columns import Evolution, merge_columns

INNER = pa.struct([("Straße", pa.int64()), ("straße", pa.int64())])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([("a", pa.int64()), ("b", pa.int64())], None),
        ([("a", pa.int64()), ("b", pa.int64()), ("A", pa.string())], ("a", "A")),
        ([("a", pa.struct([("A", pa.int64())]))], None),
        ([("s", INNER)], ("s.Straße", "s.straße")),
        ([("s", pa.list_(pa.large_list(INNER)))], ("s.Straße", "s.straße")),
        ([("s", pa.map_(pa.string(), INNER))], ("s.value.Straße", "s.value.straße")),
        ([("s", pa.struct([("t", INNER)]))], ("s.t.Straße", "s.t.straße")),
        ([("s", pa.dictionary(pa.int8(), pa.string()))], None),
    ],
)
def test_names_that_differ_in_case_only_at_any_depth(
    columns: list[tuple[str, pa.DataType]], expected: tuple[str, str] | None
) -> None:
    assert clash(pa.schema(columns)) == expected


@pytest.mark.parametrize("known", [None, pa.schema([("n", pa.int64())])])
def test_a_table_gets_no_two_columns_that_differ_in_case_only(known: pa.Schema | None) -> None:
    """Delta and Iceberg take them here, and Spark refuses the table."""
    given = pa.schema([("n", pa.int64()), ("ID", pa.int64()), ("id", pa.int64())])
    with pytest.raises(DataError, match="column id differs from column ID in case only"):
        merge_columns(known, given, Evolution.ADD_COLUMNS)
