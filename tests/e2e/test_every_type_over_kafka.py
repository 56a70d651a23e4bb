"""A Parquet file with every type through Kafka to Parquet, by each converter."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.data.every_type import NOT_IN_PROTOBUF, every_type
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.registry.server import schema_registry  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

CONVERTERS = {
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "avro": "io.confluent.connect.avro.AvroConverter",
    "schema": "io.confluent.connect.json.JsonSchemaConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
}


@pytest.fixture
def worker(
    kafka_broker: Found,
    kafka_name: str,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
) -> Iterator[HeadgateWorker]:
    settings = {"offset.flush.interval.ms": "500", "exactly.once.source.support": "enabled"}
    yield headgate_worker(kafka_broker.address, kafka_name, settings)


def written(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*.parquet"))


def test_every_type_comes_out_equal(
    worker: HeadgateWorker,
    kafka_broker: Found,
    kafka_name: str,
    schema_registry: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    table = pa.table(every_type())
    tables = {
        name: table.drop_columns(sorted(NOT_IN_PROTOBUF)) if name == "protobuf" else table
        for name in CONVERTERS
    }
    for name, converter in CONVERTERS.items():
        topic, folder = f"{kafka_name}-{name}", tmp_path / name
        create_topic(kafka_broker.address, topic)
        folder.mkdir()
        pq.write_table(tables[name], folder / "rows.parquet")
        both = {"value.converter": converter}
        if name != "json":
            both["value.converter.schema.registry.url"] = schema_registry
        source = {"connector.class": "DirectorySource", "path": str(folder), "topic": topic}
        sink = {"connector.class": "DirectorySink", "topics": topic, "rotate.interval.ms": "300"}
        for kind, config in (
            ("in", source),
            ("out", {**sink, "path": str(tmp_path / f"{name}-out")}),
        ):
            reply = worker.rest.create(f"{name}-{kind}", {**config, **both})
            assert reply.status == 201, reply.body
    for name in CONVERTERS:
        out = tmp_path / f"{name}-out"
        await_true(f"rows by {name}", lambda out=out: written(out) == 2, 90, worker.tail)
        check(out, pq.read_table(tmp_path / name / "rows.parquet"))


def check(out: Path, stored: Any) -> None:
    found = pa.concat_tables(pq.read_table(path) for path in sorted(out.glob("*.parquet")))
    assert found.schema.names == stored.schema.names
    assert {field.name: field.type for field in found.schema} == {
        field.name: field.type for field in stored.schema
    }
    for name in stored.column_names:  # as text: NaN is no different from NaN, -0.0 is from 0.0
        texts = [each[name].combine_chunks().to_string() for each in (found, stored)]
        assert texts[0] == texts[1], name
