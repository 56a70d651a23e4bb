"""From a topic of Kafka to Parquet files: SparkFileSink beside Spark's own ways.

The three ways are SparkFileSink, Structured Streaming and a plain job of PySpark. They read the
same topic of JSON objects, in turns, each in a running Spark that has done the same once before.
Spark's own ways are told the columns. SparkFileSink finds them itself.

SparkFileSink and Structured Streaming write batches of the same size, so the start and commit of
each batch is in their time. CPU is that of Spark with its Python workers, and of the sink's task.

HEADGATE_BENCH_RECORDS, HEADGATE_BENCH_PARTITIONS and HEADGATE_BENCH_BATCH set the sizes.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from bench.files import rows_in
from bench.kafka_topics import create_topic, fill
from bench.medians import medians
from bench.processes import cpu_seconds

for _folder in ("tests", "tools"):
    sys.path.insert(0, str(Path(__file__).parents[1] / _folder))

from support.spark.sink_process import Context, drain  # noqa: E402

from headgate_spark.file_sink import SparkFileSinkTask  # noqa: E402
from headgate_spark.server import SparkServer  # noqa: E402
from headgate_spark.sessions import START_TIMEOUT  # noqa: E402
from local_kafka.broker import Broker  # noqa: E402
from local_kafka.jars import SPARK_KAFKA, ensure, pinned  # noqa: E402

RECORDS: Final = int(os.environ.get("HEADGATE_BENCH_RECORDS", "1000000"))
PARTITIONS: Final = int(os.environ.get("HEADGATE_BENCH_PARTITIONS", "2"))
BATCH: Final = int(os.environ.get("HEADGATE_BENCH_BATCH", "100000"))
REPEATS: Final = 3
MASTER: Final = "local[2]"
LINE: Final = (
    b'{"user": 1234567, "action": "click", "page": "/a/b/c", "at": 1795220025955, "n": %d}'
)
COLUMNS: Final = "user long, action string, page string, at long, n long"
TOPIC: Final = "events"


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float


class Side(NamedTuple):
    name: str
    spark: SparkServer
    write: Callable[[str, Path], None]


def run() -> Iterator[str]:
    """Yield report lines: records per second and CPU of each way, and the ratio to Structured
    Streaming."""
    with tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        broker = Broker(folder / "broker", heap_mb=1_024, flags=())
        ours = SparkServer(MASTER, 6, folder / "ours", python_path=_python_path(), preload=_PRELOAD)
        jars = ",".join(str(ensure(SPARK_KAFKA) / jar.name) for jar in pinned(SPARK_KAFKA))
        plain = SparkServer(MASTER, 2, folder / "plain", {"spark.jars": jars})
        started: list[Broker | SparkServer] = []
        try:
            for one in (broker, ours, plain):
                one.start()
                started.append(one)
            _fill(broker.address)
            yield (
                f"{RECORDS:,} objects of 5 fields, {len(LINE % RECORDS)} bytes, {PARTITIONS} "
                f"partitions; batches of {BATCH:,}; {MASTER}; medians of {REPEATS}, in turns"
            )
            yield from _report(_measured(broker.address, ours, plain, folder))
        finally:
            for one in reversed(started):
                one.close() if isinstance(one, Broker) else one.stop()


_PRELOAD: Final = ["headgate_runtime.tasks.main", "headgate_kafka"]


def _python_path() -> list[str]:
    root = Path(__file__).parents[1]
    return [str(root), str(root / "tests")]


def _fill(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    create_topic(admin, TOPIC, PARTITIONS)
    fill(address, TOPIC, ({"value": LINE % n, "partition": n % PARTITIONS} for n in range(RECORDS)))
    _await_coordinator(admin)


def _await_coordinator(admin: Any) -> None:
    """Repeat a request while a new broker loads the offsets of groups and refuses it."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    until = time.monotonic() + 60
    while True:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("any")])
        try:
            asked["any"].result(30)
            return
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def _measured(
    address: str, ours: SparkServer, plain: SparkServer, folder: Path
) -> dict[str, list[Cost]]:
    session = _session(plain)
    sides = [
        Side("SparkFileSink", ours, lambda name, out: _sink(address, ours, name, out)),
        Side("Structured Streaming", plain, lambda name, out: _stream(session, address, out)),
        Side("plain PySpark, one job", plain, lambda name, out: _job(session, address, out)),
    ]
    costs: dict[str, list[Cost]] = {side.name: [] for side in sides}
    for turn in range(REPEATS + 1):
        for number, side in enumerate(sides):
            cost = _cost(side, f"s{number}-{turn}", folder)
            if os.environ.get("HEADGATE_BENCH_VERBOSE"):
                print(side.name, turn, cost, flush=True)
            if turn:  # the first turn warms up the compilers
                costs[side.name].append(cost)
    session.stop()
    return costs


def _cost(side: Side, name: str, folder: Path) -> Cost:
    out = folder / name
    pid = side.spark.pid
    assert pid is not None
    began, spark, mine = time.perf_counter(), cpu_seconds(pid), time.process_time()
    side.write(name, out)
    took = time.perf_counter() - began
    cpu = cpu_seconds(pid) - spark + time.process_time() - mine
    rows = rows_in(out)
    if rows != RECORDS:
        raise RuntimeError(f"{side.name} wrote {rows:,} rows, expected {RECORDS:,}")
    return Cost(took, cpu)


def _sink(address: str, spark: SparkServer, name: str, out: Path) -> None:
    transport = {
        "kind": "kafka",
        "bootstrap.servers": address,
        "group.id": "bench",
        **{f"{one}.storage.topic": f"bench-{one}" for one in ("offset", "config", "status")},
    }
    config = {
        "name": name,
        "path": str(out),
        "batch.records.max": str(BATCH),
        "batch.interval.ms": "0",
    }
    context = Context(spark.address, transport, [TOPIC], name)
    # Set as for tasks whose worker has started Spark, which share a session.
    context.worker_settings[START_TIMEOUT] = "60"
    task = SparkFileSinkTask()
    task.context = context
    task.start(config)
    drain(task, context)
    task.stop()
    context.close()


def _session(spark: SparkServer) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(spark.address).create()


def _source(reader: Any, address: str) -> Any:
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
    )


def _rows(frame: Any) -> Any:
    return frame.selectExpr(f"from_json(cast(value as string), '{COLUMNS}') as v").select("v.*")


def _stream(session: Any, address: str, out: Path) -> None:
    source = _source(session.readStream, address).option("maxOffsetsPerTrigger", str(BATCH))
    query = (
        _rows(source.load())
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", f"{out}-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _job(session: Any, address: str, out: Path) -> None:
    _rows(_source(session.read, address).load()).write.parquet(str(out))


def _report(costs: dict[str, list[Cost]]) -> Iterator[str]:
    found = {name: medians(some) for name, some in costs.items()}
    streaming = found["Structured Streaming"]
    yield f"{'':24}{'records/s':>12}{'us CPU':>9}{'of streaming':>14}{'of its CPU':>12}"
    for name, cost in found.items():
        yield (
            f"{name:24}{RECORDS / cost.seconds:>12,.0f}{1e6 * cost.cpu_seconds / RECORDS:>9.2f}"
            f"{streaming.seconds / cost.seconds:>13.2f}x"
            f"{cost.cpu_seconds / streaming.cpu_seconds:>11.2f}x"
        )
