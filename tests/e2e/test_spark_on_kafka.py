"""`headgate worker` with its tasks on Spark copies files to a topic and the topic to files, each
record once."""

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from support.commands.processes import descendants
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.spark.lake import SETTINGS, Lake, complete, driver, rows_of, until
from support.spark.shared import spark_server  # noqa: F401

from headgate_spark.server import SparkServer

pytestmark = pytest.mark.slow

MakeWorker = Callable[..., HeadgateWorker]


@pytest.fixture
def lake(
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> Lake:
    """A lake on the Spark of the session, whose executors outlive a worker."""
    settings = {**SETTINGS, "headgate.spark.remote": spark_server.address}
    worker = headgate_worker(kafka_broker.address, kafka_name, settings)
    return Lake(worker, kafka_broker.address, kafka_name, tmp_path)


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
    """The worker has a Spark of its own. The producer is in the process that is killed."""
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


@pytest.mark.exhaustive
def test_files_to_files_through_a_driver_that_stands_still(
    headgate_worker: MakeWorker,  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> None:
    """The worker has a Spark of its own, with both tasks of the source and the batches of the
    sink."""
    settings = {**SETTINGS, "headgate.spark.driver.timeout.ms": "8000"}
    worker = headgate_worker(kafka_broker.address, kafka_name, settings)
    lake = Lake(worker, kafka_broker.address, kafka_name, tmp_path)
    expected = lake.write()
    lake.create(rate=800)
    until("some batches", lambda: len(lake.files()) >= 2, worker, 300)  # Spark starts meanwhile
    frozen = driver(worker)
    os.kill(frozen.pid, signal.SIGSTOP)
    why = f"Spark's driver (pid {frozen.pid}) has not answered for 8 s and was ended"
    until("word of it", lambda: f"{why}; it starts again" in worker.log.read_text(), worker)
    until("its end", lambda: not frozen.alive(), worker)
    assert len(rows_of(lake.tables())) < len(expected), "it was done before"
    path = "/headgate/worker"
    until("word of a task", lambda: why in json.dumps(worker.rest.get(path).body), worker)
    until("all records", lambda: lake.wrote(len(expected)), worker, 300)
    complete(lake, expected)
    assert driver(worker).pid != frozen.pid
    assert worker.log.read_text().count("Spark is up again") == 1


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
    """Return the values of a topic of one partition, as a committed reader sees them."""
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
