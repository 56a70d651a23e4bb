"""Batches are written under another Avro schema than their own (`use.latest.version`). The columns
give the converter's bytes for each row, or leave the batch to the rows."""

import json
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.data.arrow_batches import rows_with_schema
from support.data.avro_batches import by_columns
from support.registry.memory import MemorySchemas, converter

from headgate.connector.data_error import DataError
from headgate.connector.schema_registry import AVRO, RegisteredSchema
from headgate_arrow.avro_columns import NeedsRowsError
from headgate_registry.avro_schema import avro_of

LATEST = {"auto.register.schemas": "false", "use.latest.version": "true"}
NAMES = st.text("abxyz_", min_size=1, max_size=3)
WIDER = {"int": "long", "float": "double"}


@st.composite
def other(draw: st.DrawFn, node: Any, inside: bool = False) -> Any:
    """An Avro schema that may hold the same values: fields in another order and more of them,
    wider numbers, other digits, unions in another order and where there was none.

    Args:
        inside: it is a member of a union.
    """
    if isinstance(node, str):
        node = draw(st.sampled_from([node, WIDER.get(node, node)]))
    elif isinstance(node, list):
        members = [one if one == "null" else draw(other(one, inside=True)) for one in node]
        return draw(st.permutations(members))
    else:
        node = {key: value for key, value in node.items() if key != "default"}
        if "fields" in node:
            fields = [{**one, "type": draw(other(one["type"]))} for one in node["fields"]]
            for one in fields:
                one.pop("default", None)
            if draw(st.integers(0, 19)) == 13:
                fields.append({"name": "more", "type": "int", "default": 7})
            node["fields"] = draw(st.permutations(fields))
        for key in ("items", "values"):
            if key in node:
                node[key] = draw(other(node[key]))
        if "precision" in node:
            node["precision"] = draw(st.sampled_from([node["precision"], 3, 76]))
        if node.get("type") in WIDER and "logicalType" not in node:
            node["type"] = draw(st.sampled_from([node["type"], WIDER[node["type"]]]))
    if not inside and draw(st.integers(0, 9)) == 7:
        return draw(st.permutations(["null", node]))
    return node


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows_with_schema(NAMES), st.data())
def test_columns_under_another_schema_are_what_the_converter_writes(
    drawn: tuple[Any, list[Any], Any], data: st.DataObject
) -> None:
    values, given_rows, schema = drawn
    try:
        document = data.draw(other(avro_of(schema)))
        schemas = MemorySchemas()
        schemas.add("t-value", RegisteredSchema(AVRO, json.dumps(document)), 0)
        made = converter("AvroConverter", schemas, LATEST)
        expected = [made.from_connect("t", row, schema) for row in given_rows]
    except DataError as error:
        event(f"refused: {str(error)[-30:]}")
        return
    found = by_columns(made, schema, values)
    assert isinstance(found, NeedsRowsError) or found == expected
