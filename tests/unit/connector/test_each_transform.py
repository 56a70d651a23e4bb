"""Each transform on a record without schema and on one with a schema, as `docs/run/transforms.md`
shows.

The tests also show where ours differs from Java on purpose. Apache's own are in tests/differential.
"""

import datetime
from dataclasses import replace
from typing import Any

import pytest

from headgate.connector import schema as s
from headgate.connector.api import DataError, SinkRecord, SourceRecord
from headgate.connector.config import ConfigError
from headgate.connector.transforms import TRANSFORMS
from headgate.connector.transforms.base import PerSchema

NOON = datetime.datetime(2024, 2, 29, 12, 0, tzinfo=datetime.UTC)
NOON_MS = 1_709_208_000_000


def made(name: str, **config: str) -> Any:
    transform = TRANSFORMS[name]()
    transform.configure({key.replace("__", "."): value for key, value in config.items()})
    return transform


def value_of(name: str, value: Any, schema: s.Schema | None = None, **config: str) -> Any:
    """Return what the transform makes of a value: the value, or its schema and the value if a
    schema is given."""
    record = SourceRecord({}, {}, "orders", value, "the key", timestamp_ms=NOON_MS)
    result = made(name, **config).apply_source(replace(record, value_schema=schema))
    assert (result.key, result.topic) == ("the key", "orders")
    return result.value if schema is None else (result.value_schema, result.value)


@pytest.mark.parametrize(
    ("name", "config", "before", "after"),
    [
        ("Cast", {"spec": "n:int32,ok:boolean"}, {"n": "7", "ok": "TRUE"}, {"n": 7, "ok": True}),
        ("Cast", {"spec": "int8"}, 300, 44),
        ("Cast", {"spec": "string"}, 1e7, "1.0E7"),
        ("ExtractField", {"field": "a"}, {"a": 1}, 1),
        ("ExtractField", {"field": "a.b", "field__syntax__version": "v2"}, {"a": {"b": 1}}, 1),
        ("ExtractField", {"field": "a.b"}, {"a": {"b": 1}}, None),
        ("Flatten", {"delimiter": "_"}, {"a": {"b": 1, "c": [{}]}}, {"a_b": 1, "a_c": [{}]}),
        ("HoistField", {"field": "line"}, "text", {"line": "text"}),
        ("InsertField", {"topic__field": "from!"}, {"v": 1}, {"v": 1, "from": "orders"}),
        ("InsertField", {"timestamp__field": "at"}, {}, {"at": NOON_MS}),
        ("MaskField", {"fields": "card", "replacement": "***"}, {"card": "4"}, {"card": "***"}),
        ("MaskField", {"fields": "a,b"}, {"a": 7, "b": [1]}, {"a": 0, "b": []}),
        ("ReplaceField", {"exclude": "b", "renames": "a:x"}, {"a": 1, "b": 2}, {"x": 1}),
        ("TimestampConverter", {"target__type": "Timestamp"}, NOON_MS, NOON),
        ("TimestampConverter", {"target__type": "Date"}, NOON_MS, NOON.date()),
        ("TimestampConverter", {"target__type": "Time"}, NOON_MS, datetime.time(12)),
        (
            "TimestampConverter",
            {"target__type": "string", "field": "at", "format": "yyyy-MM-dd"},
            {"at": NOON_MS},
            {"at": "2024-02-29"},
        ),
        (
            "TimestampConverter",
            {"target__type": "unix", "unix__precision": "seconds", "format": "yyyyMMddHH"},
            "2024022912",
            NOON_MS // 1000,
        ),
    ],
)
def test_values_without_schema(name: str, config: dict[str, str], before: Any, after: Any) -> None:
    given = before.copy() if isinstance(before, dict) else before
    assert value_of(f"{name}$Value", given, **config) == after
    assert given == before
    record = SourceRecord({}, {}, "t", "the value", given)
    if name != "InsertField":
        assert made(f"{name}$Key", **config).apply_source(record) == replace(record, key=after)


STRUCT = s.struct(
    {
        "n": s.INT64,
        "at": s.TIMESTAMP_SCHEMA.as_optional(),
        "in": s.struct({"x": s.STRING}, optional=True),
        "d": s.Schema(s.SchemaType.STRING, True, "else"),
    },
    name="one",
)
GIVEN = {"n": 300, "at": NOON, "in": {"x": "y"}, "d": None}


def test_structs_and_their_schemas_change_together() -> None:
    schema, value = value_of("Cast$Value", GIVEN, STRUCT, spec="n:int8,at:string")
    assert value == {"n": 44, "at": "2024-02-29T12:00:00.000Z", "in": {"x": "y"}, "d": "else"}
    assert [field.schema for field in schema.fields[:2]] == [s.INT8, s.STRING.as_optional()]
    s.validate(schema, value)

    schema, value = value_of("Flatten$Value", GIVEN, STRUCT)
    assert (schema.field("in.x").schema, value["in.x"]) == (s.STRING.as_optional(), "y")
    s.validate(schema, value)

    assert value_of("ExtractField$Value", GIVEN, STRUCT, field="n") == (s.INT64, 300)
    keep_null = {"field": "d", "replace__null__with__default": "false"}
    assert value_of("ExtractField$Value", GIVEN, STRUCT, **keep_null)[1] is None

    schema, value = value_of("InsertField$Value", GIVEN, STRUCT, timestamp__field="when!")
    assert (schema.field("when").schema, value["when"]) == (s.TIMESTAMP_SCHEMA, NOON)

    config = {"target__type": "unix", "field": "at"}
    schema, value = value_of("TimestampConverter$Value", GIVEN, STRUCT, **config)
    assert (schema.field("at").schema, value["at"]) == (s.INT64.as_optional(), NOON_MS)

    schema, value = value_of("SetSchemaMetadata$Value", GIVEN, STRUCT, schema__name="two")
    assert (schema, value) == (replace(STRUCT, name="two"), {**GIVEN, "d": "else"})

    record = SinkRecord("t", 0, 0, "k", GIVEN, (("h", 1),), 0, value_schema=STRUCT)
    keyed = made("ValueToKey", fields="n").apply_sink(record)
    assert (keyed.key_schema, keyed.key) == (s.struct({"n": s.INT64}), {"n": 300})
    moved = made("HeaderFrom$Value", fields="n", headers="id", operation="move").apply_sink(record)
    assert (moved.headers, moved.header_schemas) == ((("h", 1), ("id", 300)), (None, s.INT64))
    assert "n" not in moved.value
    assert moved.value_schema.field("n") is None


def test_a_schema_that_records_share_is_changed_once() -> None:
    asked: list[s.Schema] = []
    schemas = PerSchema(lambda schema: asked.append(schema) or len(asked))
    equal = replace(STRUCT)
    assert [schemas(found) for found in (STRUCT, equal, STRUCT, s.INT8, equal)] == [1, 1, 1, 2, 1]
    for bits in range(100):  # and those that are remembered are few
        schemas(s.decimal_of(bits))
    assert len(schemas._by_id) <= 16


def test_headers_are_inserted_with_their_types() -> None:
    record = SourceRecord({}, {}, "t", None, headers=(("a", "x"),))
    typed = made("InsertHeader", header="n", value__literal="12").apply_source(record)
    assert (typed.headers, typed.header_schemas) == ((("a", "x"), ("n", 12)), (None, s.INT8))
    for text in ("007", "1.10", "2024-02-29", "99999999999999999999", "[1", "+1"):
        kept = made("InsertHeader", header="n", value__literal=text).apply_source(record)
        assert (kept.headers[1], kept.header_schemas) == (("n", text), ())


def test_topics_by_the_timestamp() -> None:
    record = SourceRecord({}, {}, "orders", None, timestamp_ms=NOON_MS)
    assert made("TimestampRouter").apply_source(record).topic == "orders-20240229"
    with pytest.raises(DataError, match="Timestamp missing on record"):
        made("TimestampRouter").apply_source(replace(record, timestamp_ms=None))
    with pytest.raises(DataError, match="Timestamp missing on record"):
        made("TimestampRouter").apply_sink(SinkRecord("t", 0, 0, None, None, (), -1))


@pytest.mark.parametrize(
    ("name", "config", "value", "message"),
    [
        ("Flatten$Value", {"delimiter": ""}, {"ab": 1, "a": {"b": 2}}, "duplication ab"),
        ("ReplaceField$Value", {"renames": "a:b"}, {"a": 1, "b": 2}, "duplication b"),
        ("Cast$Value", {"spec": "int8"}, "128", r"Value \(128\) was out of range"),
        ("Cast$Value", {"spec": "int8"}, [1], "casting from ARRAY"),
        ("MaskField$Value", {"fields": "a"}, {"a": b"1"}, r"Cannot mask value of type: class \[B"),
        ("ExtractField$Value", {"field": "a"}, "text", "found: java.lang.String"),
        ("SetSchemaMetadata$Value", {"schema__name": "n"}, 1, "Schema required"),
        ("InsertField$Value", {"offset__field": "o"}, {}, "Only SinkRecord supported"),
        ("TimestampConverter$Value", {"target__type": "unix"}, "x", "needs its format"),
        ("TimestampConverter$Value", {"target__type": "Date"}, 2**63 - 1, "1 to 9999"),
        ("TimestampConverter$Value", {"target__type": "Date"}, 1.5, "java.lang.Double"),
        ("TimestampConverter$Value", {"target__type": "unix"}, NOON.replace(tzinfo=None), "aware"),
        (
            "TimestampConverter$Value",
            {"target__type": "unix", "format": "ss.SSS"},
            "01.123456",
            "a second fraction of 6 digits",
        ),
    ],
)
def test_values_that_are_refused(
    name: str, config: dict[str, str], value: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        value_of(name, value, **config)


def test_an_old_date_keeps_its_day_as_text() -> None:
    """Java would write the time of day alone."""
    day = datetime.date(1950, 3, 4)
    assert value_of("Cast$Value", day, s.DATE_SCHEMA, spec="string")[1] == "1950-03-04"
    old = datetime.datetime(1950, 3, 4, 5, tzinfo=datetime.UTC)
    _, text = value_of("Cast$Value", old, s.TIMESTAMP_SCHEMA, spec="string")
    assert text == "1950-03-04T05:00:00.000Z"


def test_a_field_keeps_its_value_where_another_would_take_its_name() -> None:
    """Java would give it the value of the field that is dropped."""
    schema = s.struct({"a": s.INT64, "b": s.INT64})
    config = {"exclude": "a", "renames": "a:b"}
    after = value_of("ReplaceField$Value", {"a": 1, "b": 2}, schema, **config)
    assert after == (s.struct({"b": s.INT64}), {"b": 2})


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("Cast$Value", {"spec": "a:nope"}, "No enum constant .*NOPE.*found in casting spec: nope"),
        ("Cast$Value", {"spec": "int8,a:int8"}, "may only specify a single cast"),
        (
            "ExtractField$Key",
            {"field": "`a", "field__syntax__version": "V2"},
            "Incomplete backtick",
        ),
        ("HeaderFrom$Key", {"fields": "a", "headers": "b,c", "operation": "move"}, "same number"),
        ("InsertField$Key", {}, "No field insertion configured"),
        ("MaskField$Key", {"fields": ""}, "'fields' must not be empty"),
        ("ReplaceField$Key", {"renames": "a:"}, r"Invalid value \[a:\] for configuration renames"),
        ("SetSchemaMetadata$Key", {}, "Neither schema name nor version configured"),
        ("TimestampConverter$Key", {"target__type": "string"}, "requires format option"),
        (
            "TimestampRouter",
            {"timestamp__format": "YYYY"},
            "YYYY is not supported: a year of weeks",
        ),
    ],
)
def test_configs_that_are_refused(name: str, config: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(name, **config)
