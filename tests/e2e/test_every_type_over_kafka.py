"""A Parquet file with every type goes through Kafka to Parquet, with each converter that has a
schema."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.data.every_type import (
    CONVERTERS,
    KINDS,
    REFUSED,
    assert_equal_files,
    column_alone,
    rows_in,
    table_for,
)
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.registry.server import schema_registry  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

NAMES = [name for name in CONVERTERS if name != "typed"]
"""TypedConverter is the embedded log's own."""


@pytest.fixture
def worker(
    kafka_broker: Found,
    kafka_name: str,
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
) -> Iterator[HeadgateWorker]:
    settings = {"offset.flush.interval.ms": "500", "exactly.once.source.support": "enabled"}
    yield headgate_worker(kafka_broker.address, kafka_name, settings)


def test_every_type_comes_out_equal_or_is_refused_by_name(
    worker: HeadgateWorker,
    kafka_broker: Found,
    kafka_name: str,
    schema_registry: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    def create(kind: str, name: str, folder: str, topic: str, **more: str) -> None:
        both = {"value.converter": CONVERTERS[name]}
        if name in KINDS:
            both["value.converter.schema.registry.url"] = schema_registry
        config = {"connector.class": kind, "path": str(tmp_path / folder), **both, **more}
        config["topic" if kind == "DirectorySource" else "topics"] = topic
        reply = worker.rest.create(folder, config)
        assert reply.status == 201, reply.body

    refused = [(name, column) for name in NAMES for column in REFUSED.get(name, ())]
    for name in NAMES:
        write(tmp_path / name, table_for(name))
        create_topic(kafka_broker.address, f"{kafka_name}-{name}")
        create("DirectorySource", name, name, f"{kafka_name}-{name}")
        more = {"rotate.interval.ms": "300"}
        create("DirectorySink", name, f"{name}-out", f"{kafka_name}-{name}", **more)
    for name, column in refused:
        write(tmp_path / f"{name}-{column}", column_alone(column))
        topic = f"{kafka_name}-{name}-{column}"
        create_topic(kafka_broker.address, topic)
        create("DirectorySource", name, f"{name}-{column}", topic)
    for name in NAMES:
        out = tmp_path / f"{name}-out"
        await_true(f"rows by {name}", lambda out=out: rows_in(out) == 2, 90, worker.tail)
        assert_equal_files(out, tmp_path / name / "rows.parquet")
    for name, column in refused:
        status = f"/connectors/{name}-{column}/status"

        def failed(status: str = status) -> bool:
            tasks = worker.rest.get(status).body["tasks"]
            return [task["state"] for task in tasks] == ["FAILED"]

        await_true(f"the refusal of {column}", failed, 60, worker.tail)
        (task,) = worker.rest.get(status).body["tasks"]
        assert REFUSED[name][column][0] in task["trace"]


def write(folder: Path, table: Any) -> None:
    folder.mkdir()
    pq.write_table(table, folder / "rows.parquet")
