"""A task on a real broker reports its bytes, commit times and lag."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.kafka.body import bench
from support.kafka.cluster import create_topic, read_committed
from support.kafka.world import KafkaWorld
from support.task.body_bench import BodyBench
from support.task.scripted_source import record, run_dry, scripted

from headgate.connector.api import SinkRecord, SinkTask
from headgate.task.messages import Measured, TaskKind, TaskOutcome
from headgate_runtime.tasks import body

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

PARTITIONS = 3


class Gate(SinkTask):
    """Nothing may be committed while it is shut."""

    shut = False

    def put(self, records: Sequence[SinkRecord]) -> None: ...

    def pre_commit(self, offsets: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], int]:
        return {} if self.shut else offsets


def measured(made: BodyBench) -> Measured:
    return made.progress.measured or Measured(0, 0, 0)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_source(kafka_world: KafkaWorld, tmp_path: Path, *, exactly_once: bool) -> None:
    topic = kafka_world.name("t")
    given = [record(n, value="x" * n) for n in range(100)]
    for each in given:
        each.topic = topic
    made = bench(kafka_world, tmp_path, scripted(given), exactly_once=exactly_once)
    run_dry(made)
    assert made.stop().outcome is TaskOutcome.STOPPED, made.reports
    written = read_committed(kafka_world.servers, topic)
    assert len(written) == 100
    found = measured(made)
    assert found.data_bytes == sum(len(key or b"") + len(value or b"") for key, value in written)
    assert found.commits >= 1
    assert found.commit_ms >= 1
    assert found.lag is None


class Topic:
    """A topic of which one partition is empty, written in transactions."""

    def __init__(self, world: KafkaWorld) -> None:
        self.name, self.bytes = world.name("t"), 0
        create_topic(world.servers, self.name, PARTITIONS)
        self._producer = Producer(
            {"bootstrap.servers": world.servers, "transactional.id": world.name("x")}
        )
        self._producer.init_transactions()

    def write(self, count: int) -> None:
        """Write this many records to each partition except the last."""
        self._producer.begin_transaction()
        for n in range(count * (PARTITIONS - 1)):
            self._producer.produce(self.name, b"value", b"key", partition=n % (PARTITIONS - 1))
            self.bytes += len(b"valuekey")
        self._producer.commit_transaction()


def test_a_sink(kafka_world: KafkaWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MEASURE_MS", 100)
    monkeypatch.setattr(Gate, "shut", False)
    topic = Topic(kafka_world)
    topic.write(50)
    config = {"topics": topic.name, "consumer.override.group.id": kafka_world.name("g")}

    def sink() -> BodyBench:
        kind = TaskKind.SINK
        return bench(kafka_world, tmp_path, Gate, config=config, kind=kind).start()

    first = sink()
    first.until(lambda: measured(first).lag == 0)
    assert first.progress.records == 100
    assert measured(first).data_bytes == topic.bytes
    assert measured(first).commits >= 1
    assert measured(first).commit_ms >= 1
    Gate.shut = True
    topic.write(5)
    # With the marker of the transaction before, in each of two partitions.
    first.until(lambda: measured(first).lag == 10 + 2 + 2)
    assert measured(first).data_bytes == topic.bytes
    Gate.shut = False
    first.until(lambda: measured(first).lag == 0)
    assert first.stop().outcome is TaskOutcome.STOPPED
    again = sink()
    again.until(lambda: measured(again).lag == 0)
    assert measured(again).commits == 0, "nothing is new, and its lag is known all the same"
    Gate.shut = True
    topic.write(5)
    again.until(lambda: (measured(again).lag or 0) >= 10)
    assert again.stop().outcome is TaskOutcome.STOPPED
