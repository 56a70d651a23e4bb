"""Names of the entry records that stand for maps for which Avro has no map type."""

import json
from typing import Any

import pytest
from support.registry.memory import MemorySchemas, converter

from headgate.connector import schema as s
from headgate.connector.data_error import DataError
from headgate.connector.schema import Field, Schema, SchemaType
from headgate.connector.schema_registry import AVRO, RegisteredSchema
from headgate_registry.avro_schema import avro_of

INT, LONG, TEXT = (Schema(kind) for kind in (SchemaType.INT32, SchemaType.INT64, SchemaType.STRING))


def a_map(keys: Schema, values: Schema) -> Schema:
    return Schema(SchemaType.MAP, key_schema=keys, value_schema=values)


def items_of(*maps: Schema) -> list[Any]:
    """Items of the array that each map becomes, as fields of one record."""
    fields = tuple(Field(f"f{number}", one) for number, one in enumerate(maps))
    made = avro_of(Schema(SchemaType.STRUCT, fields=fields))
    return [one["type"]["items"] for one in made["fields"]]


def test_like_maps_share_the_name_of_their_entry() -> None:
    first, second, third = items_of(a_map(INT, TEXT), a_map(INT, TEXT), a_map(LONG, TEXT))
    assert first["name"] == "MapEntry"
    assert second == "MapEntry"
    assert (third["name"], third["connect.internal.type"]) == ("MapEntry2", "MapEntry")


def test_a_map_in_a_map_has_an_entry_of_its_own() -> None:
    (outer,) = items_of(a_map(INT, a_map(INT, TEXT)))
    assert outer["name"] == "MapEntry"
    assert outer["fields"][1]["type"]["items"]["name"] == "MapEntry2"


@pytest.mark.parametrize("items", ["string", ["null", "string"], {"type": "map", "values": "int"}])
def test_a_map_under_a_list_of_other_items_is_refused(items: Any) -> None:
    fields = [{"name": "v", "type": {"type": "array", "items": items}}]
    row = {"type": "record", "name": "a.Row", "fields": fields}
    schemas = MemorySchemas()
    schemas.add("t-value", RegisteredSchema(AVRO, json.dumps(row)), 0)
    config = {"auto.register.schemas": "false", "use.latest.version": "true"}
    made = converter("AvroConverter", schemas, config)
    schema = s.struct({"v": s.map_of(s.INT32, s.INT32)}, name="a.Row")
    with pytest.raises(DataError, match="v is a map, but the schema has another list there"):
        made.from_connect("t", {"v": {1: 2}}, schema)
