"""JsonConverter makes the same bytes from the columns of a batch as from its rows."""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.data.arrow_batches import rows_with_schema

from headgate.connector.json_converter import JsonConverter
from headgate.connector.schema import Schema
from headgate_arrow.json_columns import JsonColumns

CONFIGS = st.fixed_dictionaries(
    {
        "schemas.enable": st.sampled_from(["true", "false"]),
        "decimal.format": st.sampled_from(["BASE64", "NUMERIC"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows_with_schema(), CONFIGS)
def test_columns_of_json_are_what_the_converter_writes_row_by_row(
    drawn: tuple[Any, list[Any], Schema], config: Mapping[str, str]
) -> None:
    values, given_rows, schema = drawn
    converter = JsonConverter()
    converter.configure(config, is_key=False)
    expected = [converter.from_connect("t", row, schema) for row in given_rows]
    assert JsonColumns(schema, converter.form(schema)).values(values) == expected
