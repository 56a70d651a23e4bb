"""What JsonConverter makes of each row of a batch, and what is made of its columns, is the same to
the byte."""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.data.arrow_batches import batches, with_defaults

from headgate.connector.json_converter import JsonConverter
from headgate_arrow import arrow_types, rows
from headgate_arrow.json_columns import JsonColumns
from headgate_arrow.values import fault

CONFIGS = st.fixed_dictionaries(
    {
        "schemas.enable": st.sampled_from(["true", "false"]),
        "decimal.format": st.sampled_from(["BASE64", "NUMERIC"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    }
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches(), CONFIGS, st.data())
def test_columns_of_json_are_what_the_converter_writes_row_by_row(
    values: Any, config: Mapping[str, str], data: st.DataObject
) -> None:
    if fault(values) is not None:
        event("a value without a form in Python")
        return
    schema = arrow_types.struct_schema(values.schema)
    given_rows = rows.values_of(values)
    schema = data.draw(with_defaults(schema, given_rows))
    converter = JsonConverter()
    converter.configure(config, is_key=False)
    expected = [converter.from_connect("t", row, schema) for row in given_rows]
    assert JsonColumns(schema, converter.form(schema)).values(values) == expected
