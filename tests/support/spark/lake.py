"""A worker on Kafka that copies files of JSON lines to a topic, and the topic to Parquet files.
Several test modules share it."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from support.commands.processes import Process, descendants
from support.commands.worker import HeadgateWorker

SECONDS = 120
FILES, LINES = 6, 8_000
PARTITIONS = 2
BATCH = 10_000
SETTINGS = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "headgate.task.runner": "spark",
    "headgate.spark.master": "local[2]",
    "headgate.spark.slots": "4",
    "exactly.once.source.support": "enabled",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "500",
    "offset.flush.interval.ms": "500",
}
Row = tuple[str, int]
"""A record of the input: the name of its file, and its number there."""


def until(
    what: str, true: Callable[[], Any], worker: HeadgateWorker, seconds: float = SECONDS
) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"not in time: {what}\n{worker.tail()}"
        time.sleep(0.05)
    return found


def running(worker: HeadgateWorker, connector: str) -> bool:
    """Return whether the connector's only task is RUNNING."""
    tasks = worker.rest.get(f"/connectors/{connector}/status").body.get("tasks", [])
    return [task["state"] for task in tasks] == ["RUNNING"]


def driver(worker: HeadgateWorker) -> Process:
    """Return the JVM of the Spark that belongs to this worker."""
    assert worker._process is not None
    below = descendants(worker._process.guard_pid)
    (jvm,) = [
        one for one in below if "SparkConnectServer" in one.command and "/java" in one.command
    ]
    return jvm


def create_lines(worker: HeadgateWorker, connector: str, file: Path, topic: str) -> None:
    """Create a source of the lines of a file. The file is made, with one line."""
    file.write_text("one\n")
    config = {"connector.class": "FileStreamSource", "file": str(file), "topic": topic}
    assert worker.rest.create(connector, config).status == 201


def place(file: Path) -> list[int]:
    """Return partition, start offset and number of a published file, of any era."""
    return [int(number) for number in file.stem.partition(".")[0].split("-")[-3:]]


class Lake:
    """A folder of JSON lines, a topic of two partitions, and a folder of Parquet files."""

    def __init__(self, worker: HeadgateWorker, servers: str, name: str, folder: Path) -> None:
        self.worker, self.servers, self.topic = worker, servers, name
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
        self.source, self.sink = f"{name}-files", f"{name}-lake"
        self.input, self.output = folder / "in", folder / "out"
        self.input.mkdir()

    def write(self) -> Counter[Row]:
        """Write the input, 48,000 records, and return them."""
        for file in range(FILES):
            lines = [json.dumps({"file": f"f{file}", "n": n}) + "\n" for n in range(LINES)]
            (self.input / f"f{file}.jsonl").write_text("".join(lines))
        return Counter((f"f{file}", n) for file in range(FILES) for n in range(LINES))

    def make_topic_anew(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result()
        until("a topic that is gone", lambda: not self._has_topic(), self.worker)
        self.admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])[self.topic].result()

    def _has_topic(self) -> bool:
        return self.topic in self.admin.list_topics(timeout=10).topics

    def send(self) -> Counter[Row]:
        """Send a few records directly to the topic, and return them."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        rows = [("sent", n) for n in range(100)]
        for file, n in rows:
            value = json.dumps({"file": file, "n": n})
            producer.produce(self.topic, value, partition=n % PARTITIONS)
        assert producer.flush(30) == 0
        return Counter(rows)

    def create(self, rate: int = 0) -> None:
        """Create source and sink. `rate` is the records per second of each source task. 0: no
        limit."""
        source = {
            "connector.class": "DirectorySource",
            "path": str(self.input),
            "topic": self.topic,
            "tasks.max": "2",
            # Many small transactions: each leaves a marker, an offset without a record.
            "batch.size": "1000",
        }
        if rate:
            source["records.per.second"] = str(rate)
        sink = {
            "connector.class": "SparkFileSink",
            "topics": self.topic,
            "path": str(self.output),
            "columns.metadata": "partition,offset",
            "batch.records.max": str(BATCH),
            "batch.interval.ms": "0",
        }
        for name, config in ((self.source, source), (self.sink, sink)):
            made = self.worker.rest.create(name, config)
            assert made.status == 201, made.body

    def files(self) -> list[Path]:
        """Return the published files in the order of topic-partition and start offset."""
        found = self.output.glob("*.parquet")
        return sorted(found, key=place)

    def tables(self) -> list[dict[str, Any]]:
        return [
            row for file in self.files() for row in pyarrow.parquet.read_table(file).to_pylist()
        ]

    def ends(self) -> dict[int, int]:
        """Return the end offsets of the partitions, which include the markers of transactions."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.topic})
        try:
            places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            return {p.partition: consumer.get_watermark_offsets(p)[1] for p in places}
        finally:
            consumer.close()

    def committed(self) -> dict[int, int]:
        """Return the committed offsets of the sink's group."""
        group = f"connect-{self.sink}"
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result().topic_partitions or []
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def rows(self) -> int:
        """Return the number of rows in the published files."""
        return sum(pyarrow.parquet.read_metadata(file).num_rows for file in self.files())

    def wrote(self, count: int) -> bool:
        """Return whether the published files have at least `count` rows."""
        return self.rows() >= count

    def running(self) -> bool:
        for name in (self.source, self.sink):
            body: Any = self.worker.rest.status(name).body
            tasks = body.get("tasks", [])
            assert all(task["state"] != "FAILED" for task in tasks), tasks
            if not tasks or any(task["state"] != "RUNNING" for task in tasks):
                return False
        return True

    def caught_up(self) -> bool:
        self.running()
        return self.committed() == self.ends()

    def offsets(self) -> dict[int, int]:
        body: Any = self.worker.rest.get(f"/connectors/{self.sink}/offsets").body
        return {
            each["partition"]["kafka_partition"]: each["offset"]["kafka_offset"]
            for each in body["offsets"]
        }

    def alter(self, offsets: Mapping[int, int]) -> Any:
        """Alter the sink's offsets, and return the answer."""
        given = [
            {
                "partition": {"kafka_topic": self.topic, "kafka_partition": partition},
                "offset": {"kafka_offset": offset},
            }
            for partition, offset in offsets.items()
        ]
        return self.worker.rest.patch(f"/connectors/{self.sink}/offsets", {"offsets": given})

    def stop_sink(self) -> None:
        assert self.worker.rest.put(f"/connectors/{self.sink}/stop").status == 204
        until("the sink is stopped", self._sink_is_stopped, self.worker)

    def _sink_is_stopped(self) -> bool:
        body: Any = self.worker.rest.status(self.sink).body
        return bool(body["connector"]["state"] == "STOPPED" and not body["tasks"])

    def resume_sink(self) -> None:
        assert self.worker.rest.put(f"/connectors/{self.sink}/resume").status == 202


def rows_of(tables: list[dict[str, Any]]) -> Counter[Row]:
    return Counter((row["file"], row["n"]) for row in tables)


def complete(lake: Lake, expected: Counter[Row]) -> None:
    """Assert that each record of the input is in the output once, and that the group's offsets are
    at the end."""
    until("the group's offsets", lake.caught_up, lake.worker)
    tables = lake.tables()
    assert rows_of(tables) == expected
    places = [(row["_partition"], row["_offset"]) for row in tables]
    assert places == sorted(places)
    assert {partition for partition, _ in places} == set(range(PARTITIONS))
    assert lake.offsets() == lake.ends()
