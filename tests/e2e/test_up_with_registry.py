"""Parquet files through the embedded log to Parquet, by converters that keep schemas in its
registry."""

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.pipelines import Up
from support.depth import first_rows

from headgate_embedded.schemas import open_schemas

pytestmark = pytest.mark.slow

PIPELINE = """
[cluster]
runner = "thread"
"offset.flush.interval.ms" = 500

[connectors.read]
"connector.class" = "DirectorySource"
path = "in"
topic = "rows"
"value.converter" = "{converter}"

[connectors.write]
"connector.class" = "DirectorySink"
topics = "rows"
path = "out"
"rotate.interval.ms" = 500
"value.converter" = "{converter}"
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    made = Up(tmp_path, ("--until-idle",))
    yield made
    made.clean_up()


def table() -> pa.Table:
    """Types that all three formats can say."""
    return pa.table(
        {
            "int8": pa.array([-128, None], pa.int8()),
            "uint64": pa.array([2**64 - 1, None], pa.uint64()),
            "float32": pa.array([0.1, None], pa.float32()),
            "float64": pa.array([-math.inf, 1.5]),
            "text": pa.array(["\u00e9\x00\U0001f600", None]),
            "bytes": pa.array([b"\x00\xff", None]),
            "decimal38": pa.array([Decimal("9" * 36 + ".99"), None], pa.decimal128(38, 2)),
            "date": pa.array([datetime.date(9999, 12, 31), None]),
            "time_us": pa.array([86_399_999_999, None], pa.time64("us")),
            "at_ns": pa.array([1_704_067_200_123_456_789, None], pa.timestamp("ns")),
            "utc": pa.array([1_704_067_200_123, None], pa.timestamp("ms", "UTC")),
            "zone": pa.array([1_704_067_200_123_456, None], pa.timestamp("us", "Asia/Tokyo")),
            "list": pa.array([[1, 2], []], pa.list_(pa.int32())),
            "struct": pa.array([{"x": 0.5, "y": [b"z"]}, None]),
        }
    )


@pytest.mark.parametrize(
    ("converter", "kind"),
    first_rows(
        1,
        [
            ("io.confluent.connect.avro.AvroConverter", "AVRO"),
            ("io.confluent.connect.json.JsonSchemaConverter", "JSON"),
            ("io.confluent.connect.protobuf.ProtobufConverter", "PROTOBUF"),
        ],
    ),
)
def test_types_and_values_come_out_as_they_went_in(up: Up, converter: str, kind: str) -> None:
    (up.folder / "in").mkdir()
    pq.write_table(table(), up.folder / "in" / "rows.parquet")
    (up.folder / "pipeline.toml").write_text(PIPELINE.format(converter=converter))
    process = up.start().process
    assert process is not None
    assert process.wait(90) == 0, up.tail()
    written = [pq.read_table(path) for path in sorted((up.folder / "out").glob("*.parquet"))]
    assert pa.concat_tables(written).equals(table())
    (version,) = open_schemas(up.log_folder).versions("rows-value")
    assert version.schema.kind == kind
