"""`headgate worker` with its tasks on Spark: files to a topic to files, each record once."""

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from support.commands.processes import descendants
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.spark.shared import spark_server  # noqa: F401

from headgate_spark.server import SparkServer

pytestmark = pytest.mark.slow

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
MakeWorker = Callable[..., HeadgateWorker]
Row = tuple[str, int]
"""A record of the input: its file, its number there."""


def until(what: str, true: Callable[[], Any], worker: HeadgateWorker) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := true()):
        assert time.monotonic() < deadline, f"not in time: {what}\n{worker.tail()}"
        time.sleep(0.05)
    return found


def place(file: Path) -> list[int]:
    """Partition, start and number, of a published file of any era."""
    return [int(number) for number in file.stem.partition(".")[0].split("-")[-3:]]


class Lake:
    """Files of JSON lines, a topic of two partitions, a folder of Parquet files."""

    def __init__(self, worker: HeadgateWorker, servers: str, name: str, folder: Path) -> None:
        self.worker, self.servers, self.topic = worker, servers, name
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
        self.source, self.sink = f"{name}-files", f"{name}-lake"
        self.input, self.output = folder / "in", folder / "out"
        self.input.mkdir()

    def write(self) -> Counter[Row]:
        """Some 50,000 records; returns them."""
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
        """A few records, to the topic itself; returns them."""
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        rows = [("sent", n) for n in range(100)]
        for file, n in rows:
            value = json.dumps({"file": file, "n": n})
            producer.produce(self.topic, value, partition=n % PARTITIONS)
        assert producer.flush(30) == 0
        return Counter(rows)

    def create(self) -> None:
        source = {
            "connector.class": "DirectorySource",
            "path": str(self.input),
            "topic": self.topic,
            "tasks.max": "2",
            # Many small transactions: each leaves a marker, an offset without a record.
            "batch.size": "1000",
        }
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
        """Published ones, in order of topic-partition and start."""
        found = self.output.glob("*.parquet")
        return sorted(found, key=place)

    def tables(self) -> list[dict[str, Any]]:
        return [
            row for file in self.files() for row in pyarrow.parquet.read_table(file).to_pylist()
        ]

    def ends(self) -> dict[int, int]:
        """Of the partitions, markers of transactions included."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.topic})
        try:
            places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
            return {p.partition: consumer.get_watermark_offsets(p)[1] for p in places}
        finally:
            consumer.close()

    def committed(self) -> dict[int, int]:
        """Offsets of the sink's group."""
        group = f"connect-{self.sink}"
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result().topic_partitions or []
        return {place.partition: place.offset for place in found if place.offset >= 0}

    def wrote(self, count: int) -> bool:
        """Whether the published files have so many rows, or more."""
        files = self.files()
        return sum(pyarrow.parquet.read_metadata(file).num_rows for file in files) >= count

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
        """PATCH; the answer."""
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


@pytest.fixture
def lake(
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> Lake:
    """On the Spark of the session: its executors outlive a worker."""
    settings = {**SETTINGS, "headgate.spark.remote": spark_server.address}
    worker = headgate_worker(kafka_broker.address, kafka_name, settings)
    return Lake(worker, kafka_broker.address, kafka_name, tmp_path)


def rows_of(tables: list[dict[str, Any]]) -> Counter[Row]:
    return Counter((row["file"], row["n"]) for row in tables)


def complete(lake: Lake, expected: Counter[Row]) -> None:
    """Each record of the input is in the output once, and the group says so."""
    until("the group's offsets", lake.caught_up, lake.worker)
    tables = lake.tables()
    assert rows_of(tables) == expected
    places = [(row["_partition"], row["_offset"]) for row in tables]
    assert places == sorted(places)
    assert {partition for partition, _ in places} == set(range(PARTITIONS))
    assert lake.offsets() == lake.ends()


@pytest.mark.exhaustive
def test_files_to_files_through_a_worker_that_is_killed(lake: Lake) -> None:
    expected = lake.write()
    lake.create()
    until("some batches", lambda: len(lake.files()) >= 2, lake.worker)
    lake.worker.kill()
    written = rows_of(lake.tables())
    assert 0 < len(written) < len(expected), "it was done before it could be killed"
    lake.worker.start()
    until("all records", lambda: lake.running() and lake.wrote(len(expected)), lake.worker)
    complete(lake, expected)

    # Offsets altered: batches after them go, with their files, and are written anew.
    lake.stop_sink()
    first, *later = [file for file in lake.files() if file.stem.startswith(f"{lake.topic}-0-")]
    cut = int(later[0].stem.split("-")[-2])
    refused = lake.alter({0: cut + 1})
    assert refused.status == 500
    assert f"choose {cut} or " in refused.body["message"]
    assert lake.offsets() == lake.ends()
    assert lake.alter({0: cut}).status == 200
    assert first.exists()
    assert not [file for file in later if file.exists()]
    assert lake.offsets() == {**lake.ends(), 0: cut}
    lake.resume_sink()
    complete(lake, expected)

    # And reset: all is written anew.
    lake.stop_sink()
    assert lake.worker.rest.delete(f"/connectors/{lake.sink}/offsets").status == 200
    assert (lake.files(), lake.offsets()) == ([], {})
    lake.resume_sink()
    complete(lake, expected)

    # A topic that is made anew takes the group's offsets along. The manifest knows them.
    lake.stop_sink()
    ends = lake.ends()
    lake.make_topic_anew()
    until("the group without offsets", lambda: lake.committed() == {}, lake.worker)
    assert lake.offsets() == ends
    assert lake.worker.rest.delete(f"/connectors/{lake.sink}/offsets").status == 200
    assert (lake.files(), lake.offsets()) == ([], {})
    expected = lake.send()
    lake.resume_sink()
    complete(lake, expected)


def test_lines_through_a_task_whose_process_is_killed(
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """On a Spark of the worker's own. The producer is in the process that is killed."""
    worker = headgate_worker(kafka_broker.address, kafka_name, SETTINGS)
    file, source = tmp_path / "in.txt", f"{kafka_name}-lines"
    lines = [f"line {n}" for n in range(40_000)]
    config = {
        "connector.class": "FileStreamSource",
        "file": str(file),
        "topic": kafka_name,
        "batch.size": "100",
    }
    assert worker.rest.create(source, config).status == 201
    told = f"WARNING headgate.task: {source}-0: couldn't find file"
    until("what the task logs", lambda: told in worker.log.read_text(), worker)
    (spark_log,) = re.findall(r"what tasks there print: (\S+)", worker.log.read_text())
    assert Path(spark_log).exists()
    file.write_text("".join(f"{line}\n" for line in lines[:20_000]))
    until("records", lambda: end_of(kafka_broker.address, kafka_name), worker)
    (victim,) = resident_bodies(worker)
    os.kill(victim, signal.SIGKILL)
    with file.open("a") as more:
        more.write("".join(f"{line}\n" for line in lines[20_000:]))
    offset = {"partition": {"filename": str(file)}, "offset": {"position": file.stat().st_size}}
    path = f"/connectors/{source}/offsets"
    until("the end", lambda: worker.rest.get(path).body == {"offsets": [offset]}, worker)
    assert values(kafka_broker.address, kafka_name) == lines
    assert victim not in resident_bodies(worker)


def resident_bodies(worker: HeadgateWorker) -> list[int]:
    """Pids of the task bodies on the executors of a worker's own Spark: what its daemons forked."""
    assert worker._process is not None
    below = [
        each
        for each in descendants(worker._process.guard_pid)
        if "-m headgate_spark.daemon " in each.command
    ]
    pids = {each.pid for each in below}
    return [each.pid for each in below if each.parent in pids]


def end_of(servers: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0))[1])
    except KafkaException:
        return 0  # it is made with the first record
    finally:
        consumer.close()


def values(servers: str, topic: str) -> list[str]:
    """Of a topic of one partition, as a committed reader sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while True:
        for message in consumer.consume(5_000, 5):
            if message.error() is not None:
                consumer.close()
                return found
            found.append((message.value() or b"").decode())
