"""AvroConverter makes the same bytes from the columns of a batch as from its rows."""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.data.arrow_batches import rows_with_schema
from support.data.avro_batches import by_columns
from support.registry.memory import MemorySchemas, converter

from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema
from headgate_arrow.avro_columns import NeedsRowsError

CONFIGS = st.fixed_dictionaries(
    {
        "connect.meta.data": st.sampled_from(["true", "false"]),
        "ignore.default.for.nullables": st.sampled_from(["true", "false"]),
    }
)
NAMES = st.text("abxyz_", min_size=1, max_size=3)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows_with_schema(NAMES), CONFIGS)
def test_columns_of_avro_are_what_the_converter_writes_row_by_row(
    drawn: tuple[Any, list[Any], Schema], config: Mapping[str, str]
) -> None:
    values, given_rows, schema = drawn
    made = converter("AvroConverter", MemorySchemas(), config)
    try:
        expected = [made.from_connect("t", row, schema) for row in given_rows]
    except DataError:
        event("Avro has no such schema or value")
        return
    found = by_columns(made, schema, values)
    if isinstance(found, NeedsRowsError):
        assert "default" in str(found)
    else:
        assert found == expected
