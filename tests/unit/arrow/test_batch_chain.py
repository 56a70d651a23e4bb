"""Transforms on batches of Arrow rows: which chains take a whole batch, and which must not."""

import datetime
import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from support.data.batch_transforms import prepared, sink_ways, source_ways
from support.data.every_type import every_type

from headgate.connector.batches import RowOffsets, SinkBatch, SourceBatch
from headgate.connector.schema import Field, Schema
from headgate.connector.transforms import make_transforms, takes_rows_at_once
from headgate_arrow import arrow_types, rows
from headgate_runtime.tasks.source_batches import TRIED_AGAIN, DroppedBatch, ReadyBatch


def chain(*members: dict[str, str], **more: str) -> Any:
    config = {"transforms": ",".join(str(at) for at in range(len(members))), **more}
    for at, member in enumerate(members):
        config |= {f"transforms.{at}.{key}": text for key, text in member.items()}
    return make_transforms({key.replace("_", "."): text for key, text in config.items()})


def batch_of(columns: dict[str, Any] | Any, **more: Any) -> SourceBatch:
    table = pa.table(columns)
    schema = arrow_types.struct_schema(table.schema)
    offsets = RowOffsets({"n": range(table.num_rows)})
    return SourceBatch(
        *({"file": "a"}, offsets, "t", rows.record_batch(table)),
        **{"value_schema": schema, "partition": 0, **more},
    )


def sink_batch_of(columns: dict[str, Any], **more: Any) -> SinkBatch:
    given = batch_of(columns)
    return SinkBatch(*("t", 3, 70, given.values, given.value_schema), **more)


def goes_at_once(transforms: Any, batch: SourceBatch) -> bool:
    """Return whether the chain takes the batch whole. The result must be right either way."""
    assert takes_rows_at_once(transforms)
    at_once, one_by_one = source_ways(transforms, batch)
    assert at_once == one_by_one
    return all(type(one) in (ReadyBatch, DroppedBatch) for one in prepared(transforms, batch))


UTC = pa.timestamp("ms", "UTC")
ROW = {
    "a": pa.array([1, None]),
    "b": pa.array(["x", "y"]),
    "at": pa.array([0, None], UTC),
    "in": pa.array([{"x": 1, "y": {"z": "s"}}, None]),
    "all": pa.array([{"x": 1}, {"x": None}]),
}
INSERTED = {"static.field": "s", "static.value": "v", "topic.field": "t!", "timestamp.field": "w"}


@pytest.mark.parametrize(
    "member",
    [
        {"type": "ReplaceField$Value", "exclude": "b", "renames": "a:n"},
        {"type": "ReplaceField$Value", "include": "b,in"},
        {"type": "Cast$Value", "spec": "a:int8,b:string,at:int64"},
        {"type": "MaskField$Value", "fields": "a,b,at"},
        {"type": "MaskField$Value", "fields": "b", "replacement": "***"},
        {"type": "InsertField$Value", **INSERTED},
        {"type": "ExtractField$Value", "field": "all"},
        {"type": "HoistField$Value", "field": "row"},
        {"type": "Flatten$Value", "delimiter": "_"},
        {"type": "SetSchemaMetadata$Value", "schema.name": "N", "schema.version": "7"},
        {"type": "TimestampConverter$Value", "field": "at", "target.type": "unix"},
        {
            "type": "TimestampConverter$Value",
            "field": "at",
            "target.type": "string",
            "format": "yyyy-MM-dd",
        },
        {"type": "RegexRouter", "regex": "(t)", "replacement": "x-$1"},
        {"type": "TimestampRouter"},
        {"type": "Filter"},
        {"type": "InsertHeader", "header": "h", "value.literal": "12"},
        {"type": "DropHeaders", "headers": "h"},
        {"type": "HoistField$Key", "field": "k"},
    ],
    ids=lambda member: "-".join([*member.values()][:3]),
)
def test_these_go_at_once(member: dict[str, str]) -> None:
    assert goes_at_once(chain(member), batch_of(ROW, key="k", timestamp_ms=86_400_000))


@pytest.mark.parametrize(
    "member",
    [
        {"type": "ValueToKey", "fields": "a"},
        {
            "type": "HeaderFrom$Value",
            "fields": "a",
            "headers": "h",
            "operation": "copy",
        },
        {"type": "InsertField$Key", "offset.field": "n"},
    ],
    ids=lambda member: member["type"],
)
def test_these_need_records(member: dict[str, str]) -> None:
    keeps = {"type": "RegexRouter", "regex": "a", "replacement": "b"}
    assert not takes_rows_at_once(chain(keeps, member))
    named = {"predicate": "p"}
    predicate = {"predicates.p.type": "RecordIsTombstone"}
    assert not takes_rows_at_once(chain({**member, **named}, **predicate))


WHOLE = [0, 1, -1, 127, 128, 255, 256, -128, -129, 2**15, 2**31 - 1, -(2**31), 2**31, 2**24 + 1]
LONGS = [*WHOLE, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**62 + 1, 33_554_435, 2**60 + 2**36]
FLOATS = [0.0, -0.0, 0.5, -0.99, 1.5, -1.5, 2.0**31 - 1, 0.1, 1e16, 123456789.125, 1e-45, 5e-324]
WILD = [math.nan, math.inf, -math.inf, 1e300, -1e300, 2.0**31, -(2.0**31), 2.0**63, 3.5e38]
COLUMNS = {
    "bool": pa.array([True, False, None]),
    "int8": pa.array([-128, 127, 0, None], pa.int8()),
    "int16": pa.array([-(2**15), 2**15 - 1, 300, None], pa.int16()),
    "int32": pa.array([n for n in WHOLE if -(2**31) <= n < 2**31] + [None], pa.int32()),
    "int64": pa.array([*LONGS, None]),
    "float32": pa.array([*FLOATS, None], pa.float32()),
    "float32 wild": pa.array([*WILD, 1.5, None], pa.float32()),
    "float64": pa.array([*FLOATS, None]),
    "float64 below": pa.array([1.0, 2.0**31 - 1, -(2.0**31) + 1, None]),
    "float64 wild": pa.array([*WILD, 1.5, None]),
    "string": pa.array(["", "a", "b\x00", None]),
    "numbers": pa.array(["1", "-7", "127", None]),
    "date": pa.array([datetime.date(1970, 1, 2), datetime.date(1, 1, 1), None]),
    "utc": pa.array([0, -1, 86_400_000, None], UTC),
    "ns": pa.array([0, -1, 86_400_000, None], pa.timestamp("ns")),
    "uint8": pa.array([0, 255, None], pa.uint8()),
    "word": pa.array(["12", "3", "12"]).dictionary_encode(),
}
TARGETS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_cast_column_has_the_values_of_cast_records(name: str, target: str) -> None:
    goes_at_once(
        chain({"type": "Cast$Value", "spec": f"c:{target}"}), batch_of({"c": COLUMNS[name]})
    )


@pytest.mark.parametrize("name", every_type())
def test_a_column_of_any_type_is_hidden_as_its_values_are(name: str) -> None:
    column = every_type()[name]
    for more in ({}, {"replacement": "7"}):
        goes_at_once(
            chain({"type": "MaskField$Value", "fields": "c", **more}), batch_of({"c": column})
        )


def test_all_types_are_carried_by_a_chain() -> None:
    columns = {name: one for name, one in every_type().items() if "nan" not in name}
    members = ({"type": "HoistField$Value", "field": "row"}, {"type": "Flatten$Value"})
    nested = {name: one for name, one in columns.items() if name != "map" and name != "by_number"}
    assert goes_at_once(chain(*members), batch_of(nested))
    kept = {"type": "ReplaceField$Value", "renames": "int8:x,map:y"}
    assert goes_at_once(chain(kept), batch_of(columns))


def test_a_sink_gets_offsets_row_by_row() -> None:
    transforms = chain({"type": "InsertField$Value", "offset.field": "o", "partition.field": "p!"})
    at_once, one_by_one = sink_ways(transforms, sink_batch_of({"n": [1, 2]}))
    assert at_once == one_by_one
    assert not goes_at_once(transforms, batch_of({"n": [1, 2]}))  # a source has none


def test_a_null_where_there_may_be_none_is_told_by_its_record() -> None:
    insert = {"type": "InsertField$Value", "timestamp.field": "w!"}
    assert not goes_at_once(chain(insert), batch_of({"n": [1]}))


def test_a_null_that_has_a_default_gets_it() -> None:
    batch = batch_of({"n": [1, None], "m": [1, 2]})
    fields = batch.value_schema.fields
    with_default = Field("n", replace(fields[0].schema, default=5))
    batch.value_schema = replace(batch.value_schema, fields=(with_default, fields[1]))
    hide = chain({"type": "MaskField$Value", "fields": "m"})
    assert not goes_at_once(hide, batch)
    assert goes_at_once(hide, batch.part(0, 1))


def test_no_field_at_all_is_no_batch() -> None:
    assert not goes_at_once(
        chain({"type": "ReplaceField$Value", "include": "zz"}), batch_of({"n": [1, 2]})
    )


def test_a_null_among_values_is_a_tombstone_of_its_own() -> None:
    extract = {"type": "ExtractField$Value", "field": "in"}
    columns = {"in": pa.array([{"x": 1}, None])}
    assert not goes_at_once(chain(extract), batch_of(columns))
    drop = {"type": "Filter", "predicate": "p"}
    dropping = chain(extract, drop, **{"predicates.p.type": "RecordIsTombstone"})
    assert not goes_at_once(dropping, batch_of(columns))
    assert goes_at_once(dropping, batch_of({"in": pa.array([{"x": 1}, {"x": 2}])}))


def test_a_field_that_is_no_struct_is_no_batch_until_it_is_wrapped() -> None:
    extract = {"type": "ExtractField$Value", "field": "n"}
    assert not goes_at_once(chain(extract), batch_of({"n": [1]}))
    wrap = {"type": "HoistField$Value", "field": "n"}
    assert goes_at_once(chain(wrap, {**extract, "field": "n"}, wrap), batch_of({"n": [1]}))


def test_a_bad_row_costs_its_neighbours_only() -> None:
    texts = [str(n) for n in range(5 * TRIED_AGAIN)]
    texts[3 * TRIED_AGAIN + 7] = "none"
    transforms = chain({"type": "Cast$Value", "spec": "n:int32"})
    batch = batch_of({"n": texts})
    found = prepared(transforms, batch)
    assert len(found) == 4 + TRIED_AGAIN
    assert sum(type(one) is ReadyBatch for one in found) == 4
    at_once, one_by_one = source_ways(transforms, batch)
    assert at_once == one_by_one
    assert [one for one in at_once if isinstance(one, str)] == [one_by_one[3 * TRIED_AGAIN + 7]]


def test_schemas_are_those_of_the_records() -> None:
    """The new schema keeps name, version and parameters of the old."""
    batch = batch_of({"a": [1], "b": [2]})
    schema: Schema = replace(batch.value_schema, name="N", version=2, parameters={"p": "q"})
    batch.value_schema = schema
    assert goes_at_once(chain({"type": "ReplaceField$Value", "exclude": "a"}), batch)
    (ready,) = prepared(chain({"type": "Cast$Value", "spec": "a:string"}), batch)
    assert isinstance(ready, ReadyBatch)
    made = ready.source.value_schema
    assert (made.name, made.version, made.parameters) == ("N", 2, {"p": "q"})
