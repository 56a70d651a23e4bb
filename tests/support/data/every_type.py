"""Columns of every type that Parquet has, and what becomes of each by each converter."""

import datetime
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq


def every_type() -> dict[str, Any]:
    """Return columns of every type that Parquet has, with a null in each."""
    day = datetime.date
    return {
        "bool": pa.array([True, None]),
        "int8": pa.array([-128, None], pa.int8()),
        "uint8": pa.array([255, None], pa.uint8()),
        "uint16": pa.array([65535, None], pa.uint16()),
        "uint32": pa.array([2**32 - 1, None], pa.uint32()),
        "int64": pa.array([-(2**63), None]),
        "uint64": pa.array([2**64 - 1, None], pa.uint64()),
        "float16": pa.array([1.5, None], pa.float16()),
        "float32": pa.array([0.1, None], pa.float32()),
        "nan32": pa.array([math.nan, None], pa.float32()),
        "float64": pa.array([-math.inf, None]),
        "nan": pa.array([math.nan, -0.0]),
        "text": pa.array(["\u00e9\x00\U0001f600", None]),
        "empty": pa.array(["", None]),
        "large": pa.array(["a", None], pa.large_string()),
        "bytes": pa.array([b"\x00\xff", None]),
        "fixed": pa.array([b"ab", None], pa.binary(2)),
        "decimal38": pa.array([Decimal("9" * 36 + ".99"), None], pa.decimal128(38, 2)),
        "decimal76": pa.array([Decimal("-1.5"), None], pa.decimal256(76, 3)),
        "date": pa.array([day(9999, 12, 31), None]),
        "time_ms": pa.array([1, None], pa.time32("ms")),
        "time_us": pa.array([86_399_999_999, None], pa.time64("us")),
        "time_ns": pa.array([789, None], pa.time64("ns")),
        "at_ms": pa.array([-1, None], pa.timestamp("ms")),
        "at_us": pa.array([2**62, None], pa.timestamp("us")),
        "at_ns": pa.array([1_704_067_200_123_456_789, None], pa.timestamp("ns")),
        "utc": pa.array([1_704_067_200_123, None], pa.timestamp("ms", "UTC")),
        "zone": pa.array([1_704_067_200_123_456_789, None], pa.timestamp("ns", "America/New_York")),
        "took": pa.array([789, None], pa.duration("ns")),
        "list": pa.array([[1, None], None], pa.list_(pa.int32())),
        "nested": pa.array([[[Decimal("1.1")]], []], pa.list_(pa.list_(pa.decimal128(5, 1)))),
        "map": pa.array([[("k", 5)], None], pa.map_(pa.string(), pa.timestamp("ns"))),
        "by_number": pa.array([[(1, "a")], []], pa.map_(pa.int32(), pa.string())),
        "struct": pa.array(
            [{"x": 0.1, "y": [b"z"]}, None],
            pa.struct([("x", pa.float32()), ("y", pa.list_(pa.binary()))]),
        ),
        "word": pa.array(["a", None]).dictionary_encode(),
        "none": pa.array([None, None], pa.null()),
    }


CONVERTERS: Final = {
    "typed": "TypedConverter",
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "avro": "io.confluent.connect.avro.AvroConverter",
    "schema": "io.confluent.connect.json.JsonSchemaConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
}
KINDS: Final = {"avro": "AVRO", "schema": "JSON", "protobuf": "PROTOBUF"}
"""The converters that have a registry, with its word for their schemas."""
_NULL: Final = "is null, expected a list or map: Protobuf cannot tell a null from an empty one"
_NESTED: Final = "is a list or map within another one, which Protobuf has not: put it in a struct"
REFUSED: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "protobuf": {
        "list": [
            "value.list[1] is null, which a list in Protobuf cannot hold",
            f"value.list {_NULL}",
        ],
        "nested": [f"value.nested[] {_NESTED}"] * 2,
        "map": [f"value.map {_NULL}"],
    }
}
"""What a converter says of each row that it refuses because its format cannot hold the column. All
other columns come out equal."""


def table_for(converter: str) -> pa.Table:
    """Return the columns that `converter`, a name in `CONVERTERS`, does not refuse."""
    return pa.table(every_type()).drop_columns(list(REFUSED.get(converter, ())))


def column_alone(column: str) -> pa.Table:
    return pa.table({column: every_type()[column]})


def rows_in(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def assert_equal_files(out: Path, stored: Path) -> None:
    """Assert that the Parquet files in `out` have the rows of the file `stored`, with the same
    types."""
    found = pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("*.parquet")))
    given = pq.read_table(stored)
    assert found.schema.names == given.schema.names
    assert {each.name: each.type for each in found.schema} == {
        each.name: each.type for each in given.schema
    }
    for name in given.column_names:  # as text: NaN is no different from NaN, -0.0 is from 0.0
        texts = [each[name].combine_chunks().to_string() for each in (found, given)]
        assert texts[0] == texts[1], name
