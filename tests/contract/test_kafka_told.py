"""On a real broker, each record that arrives in an internal topic wakes the worker. A worker that
looks only then misses nothing."""

import threading
from typing import Any

import pytest
from support.kafka.world import KafkaWorld, kafka_world  # noqa: F401

TELLS_S = 20


class Told:
    """A transport whose owner looks only when it is told."""

    def __init__(self, world: KafkaWorld) -> None:
        self._told = threading.Event()
        self.transport: Any = world.connect()
        self.transport.subscribe(self._told.set)
        self._config_position = self._status_position = 0
        self.transport.config_log.end()
        self.transport.status_log.end()
        self.look()
        self._told.clear()

    def look(self) -> list[bytes | None]:
        """Values that came since the last look; empty until there are some."""
        config, status = self.transport.config_log, self.transport.status_log
        configs, self._config_position = config.read(self._config_position)
        statuses, self._status_position = status.read(self._status_position)
        return [record.value for record in (*configs, *statuses)]

    def await_values(self, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < count:
            assert self._told.wait(TELLS_S), f"not told, {len(found)} of {count} were seen"
            self._told.clear()
            while new := self.look():
                found += new
        return found


@pytest.mark.parametrize("privileged", [True, False])
def test_each_record_of_the_config_topic_tells(
    kafka_world: KafkaWorld,  # noqa: F811
    *,
    privileged: bool,
) -> None:
    told = Told(kafka_world)
    other = kafka_world.connect().config_log
    if privileged:
        other.claim(1)
    for n in range(20):
        value = b"%d" % n
        other.append([("connector-a", value)], privileged=privileged)
        assert told.await_values(1) == [value]


def test_each_record_of_the_status_topic_tells(
    kafka_world: KafkaWorld,  # noqa: F811
) -> None:
    told = Told(kafka_world)
    other = kafka_world.connect().status_log
    for n in range(20):
        key = b"status-connector-%d" % (n % 5)  # of two partitions
        other.append([(key, b"%d" % n)])
        assert told.await_values(1) == [b"%d" % n]


def test_many_records_tell_until_all_were_seen(
    kafka_world: KafkaWorld,  # noqa: F811
) -> None:
    told = Told(kafka_world)
    other = kafka_world.connect()
    values = [b"%d" % n for n in range(12_000)]
    for start in range(0, len(values), 1_000):
        other.config_log.append(
            [(f"connector-{value.decode()}", value) for value in values[start : start + 1_000]],
            privileged=False,
        )
    assert told.await_values(len(values)) == values
