"""Typed files go over Kafka to partitioned Parquet, with transforms and dead letters. Workers and
tasks of both sides are killed at random, and every row is there once, with its types.

Lines of CSV, some of them bad, go one by one. Rows of Parquet go as batches, whose JSON or Avro is
made by columns and given to the producer in that form (`tests/unit/task/test_source_columns.py`).
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.commands.processes import Process
from support.kafka.cluster import (
    QUICK_GROUPS,
    KafkaCluster,
    await_true,
    create_topic,
    end_offset,
    kill,
    quick_properties,
    read_committed,
    states_ever,
)
from support.registry.memory import converter as registry_converter
from support.registry.server import schema_registry  # noqa: F401
from support.task.letters import assert_at_least_once

from headgate.connector.converters import make_converter
from local_kafka.broker import Broker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

KILLS = 20
ROWS = 3_000
"""Of a file; there is one for each kill."""
COLUMNS = {
    "id": pa.int64(),
    "city": pa.string(),
    "price": pa.decimal128(10, 2),
    "at": pa.timestamp("ms", "UTC"),
    "code": pa.string(),
}
CITIES = ("Rome", "a/b=c", "Köln")
SEED = int(os.environ.get("HEADGATE_CHAOS_SEED", "0")) or random.SystemRandom().randrange(
    1, 1 << 31
)
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter"}
TOLERANT = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.replication.factor": "1",
}
SOURCE = {
    **TOLERANT,
    "connector.class": "DirectorySource",
    "topic": "rows",
    "tasks.max": "2",
    "batch.size": "100",
    "csv.types": "id: int64, price: decimal(10,2), at: timestamp",
    "errors.deadletterqueue.topic.name": "bad-lines",
    "transforms": "kind",
    "transforms.kind.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.kind.static.field": "kind",
    "transforms.kind.static.value": "sale",
}
SINK = {
    **TOLERANT,
    "connector.class": "DirectorySink",
    "topics": "rows",
    "tasks.max": "2",
    "errors.deadletterqueue.topic.name": "bad-rows",
    "transforms": "code",
    "transforms.code.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.code.spec": "code:int32",
    "partition.by": "city",
    "rotate.records": "500",
    "rotate.interval.ms": "300",
}
NAMES = ("id", "city", "price", "at", "code", "kind")
Row = tuple[Any, ...]


class Files:
    """The files that were written, and what must become of their rows.

    Args:
        kind: ``csv`` or ``parquet``.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        folder.mkdir()
        self.good: list[Row] = []
        self.bad_lines: list[str] = []
        """Lines that no row can be made of: the source's letters."""
        self.bad_codes: list[Row] = []
        """Rows whose code is no number: the sink's letters."""
        self._count = 0

    def add(self) -> None:
        first = self._count * ROWS
        lines: list[tuple[int, str, Decimal, datetime, str]] = []
        for row in range(first, first + ROWS):
            city, price = CITIES[row % 3], Decimal(row).scaleb(-2)
            at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=row)
            code = str(row)
            if row % 101 == 7 and self._kind == "csv":
                price, code = Decimal("1.005"), "1"  # three places
                self.bad_lines.append(_line((row, city, price, at, code)))
            elif row % 103 == 11:
                code = f"no {row}"
                self.bad_codes.append((row, city, price, at, code, "sale"))
            else:
                self.good.append((row, city, price, at, row, "sale"))
            lines.append((row, city, price, at, code))
        draft = self._folder / f".{self._count}.{self._kind}"
        if self._kind == "csv":
            draft.write_text("\n".join([",".join(COLUMNS), *map(_line, lines)]) + "\n")
        else:
            columns = zip(zip(*lines, strict=True), COLUMNS.values(), strict=True)
            arrays = [pa.array(values, kind) for values, kind in columns]
            pq.write_table(pa.table(arrays, names=list(COLUMNS)), draft)
        draft.rename(self._folder / f"{self._count}.{self._kind}")
        self._count += 1


def _line(row: tuple[int, str, Decimal, datetime, str]) -> str:
    number, city, price, at, code = row
    return f"{number},{city},{price},{at.isoformat(timespec='milliseconds')},{code}"


def written(folder: Path) -> Iterator[Row]:
    """Rows of the sink's files, as a reader of partitions sees them."""
    by = ds.partitioning(pa.schema([("city", pa.string())]), flavor="hive")
    paths = [str(path) for path in folder.glob("city=*/*.parquet")]
    table = ds.dataset(paths, partitioning=by, partition_base_dir=str(folder)).to_table()
    types = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert types == {
        "id": "int64",
        "city": "string",
        "price": "decimal128(10, 2)",
        "at": "timestamp[ms, tz=UTC]",
        "code": "int32",
        "kind": "string",
    }
    for row in table.to_pylist():
        yield tuple(row[name] for name in NAMES)


def count(folder: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("city=*/*.parquet"))


class Killing:
    def __init__(self, cluster: KafkaCluster, chance: random.Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self.landed: Counter[str] = Counter()

    def strike(self) -> None:
        what = self._chance.choice(["files", "files", "lake", "lake", "worker", "zygote"])
        found: list[Process] = []

        def look() -> bool:
            found[:] = [process for process in self._candidates(what) if process is not None]
            return bool(found) and kill(self._chance.choice(found))

        await_true(what, look, 60, self._cluster.tail)
        self.landed[what] += 1

    def _candidates(self, what: str) -> list[Process | None]:
        workers = self._cluster.workers
        if what == "worker":
            return [one.worker() for one in workers]
        if what == "zygote":
            return [one.zygote() for one in workers]
        return [p for one in workers for n in range(2) for p in one.tasks(f"{what}-{n}")]


def avro(registry: str) -> dict[str, str]:
    """The converter of both sides."""
    key, name = "value.converter", "io.confluent.connect.avro.AvroConverter"
    return {key: name, f"{key}.schema.registry.url": registry}


def rows_of(values: list[bytes], config: Mapping[str, str]) -> list[Row]:
    if config == JSON:
        reads: Any = make_converter(JSON["value.converter"], {}, is_key=False)
    else:
        url = config["value.converter.schema.registry.url"]
        reads = registry_converter("AvroConverter", None, {"schema.registry.url": url})
    found = [reads.to_connect_data("rows", value).value for value in values]
    return [tuple(row[name] for name in NAMES) for row in found]


@pytest.mark.parametrize(
    ("kind", "by_avro"),
    [("csv", False), ("parquet", False), ("parquet", True)],
    ids=["csv", "parquet", "parquet by Avro"],
)
def test_every_row_is_there_once_after_twenty_kills(
    kind: str,
    by_avro: bool,
    request: pytest.FixtureRequest,
    own_broker: Callable[..., Broker],
    kafka_cluster: Callable[..., KafkaCluster],
    tmp_path: Path,
    say: Callable[[str], None],
) -> None:
    say(f"seed {SEED}; run it again with HEADGATE_CHAOS_SEED={SEED}")
    chance, files, out = random.Random(SEED), Files(tmp_path / "in", kind), tmp_path / "out"
    broker = own_broker(settings=QUICK_GROUPS)
    for topic, partitions in (("rows", 2), ("bad-lines", 1), ("bad-rows", 1)):
        create_topic(broker.address, topic, partitions)
    converter = avro(request.getfixturevalue("schema_registry")) if by_avro else JSON
    quick = {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "1000"}
    cluster = kafka_cluster(broker.address, "g", 2, quick_properties(**quick))
    source = {**SOURCE, **converter, "path": str(tmp_path / "in")}
    files.add()
    cluster.create("files", {**source, "records.per.second": "500"})
    cluster.create("lake", {**SINK, **converter, "path": str(out)})
    killing = Killing(cluster, chance)

    def in_log() -> int:
        return sum(end_offset(broker.address, "rows", n, stable=True) for n in range(2))

    for number in range(KILLS):
        files.add()
        before = in_log(), count(out)
        await_true("new rows in the log", lambda b=before: in_log() > b[0], 120, cluster.tail)
        if number % 2:
            await_true("new files", lambda b=before: count(out) > b[1], 120, cluster.tail)
        time.sleep(chance.uniform(0.0, 0.7))
        killing.strike()
    say(f"kills: {dict(killing.landed)}; {count(out):,} of {len(files.good):,} rows were written")
    assert count(out) < len(files.good), "all was written before the last kill"
    cluster.create("files", source)
    await_true("all rows", lambda: count(out) >= len(files.good), 300, cluster.tail)
    for name in ("files", "lake"):
        await_true(f"{name} RUNNING", lambda n=name: cluster.running(n, 2), 60, cluster.tail)
    assert Counter(written(out)) == Counter(files.good)
    letters = [value.decode() for _, value in read_committed(broker.address, "bad-lines")]
    assert Counter(letters) == Counter(files.bad_lines)  # in the transactions of their neighbours
    values = [value for _, value in read_committed(broker.address, "bad-rows")]
    assert_at_least_once(rows_of(values, converter), files.bad_codes, KILLS)
    states = states_ever(broker.address, "g-status", 2)
    assert not any("FAILED" in each for each in states.values()), states
