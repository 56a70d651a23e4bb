"""Names of the entries of maps that Avro has no map for."""

from typing import Any

from headgate.connector.schema import Field, Schema, SchemaType
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
