"""The transports against which every test of the contract runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.embedded.worlds import WORLDS, World
from support.kafka.world import KafkaWorld

KAFKA = "kafka"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that wait for a session to end on Kafka are exhaustive there, and only there."""
    for item in items:
        if item.get_closest_marker("exhaustive_on_kafka") and f"[{KAFKA}]" in item.name:
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture(params=[*sorted(WORLDS), KAFKA])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made: World
    if request.param == KAFKA:
        made = KafkaWorld(request.getfixturevalue("kafka_broker").address)
    else:
        made = WORLDS[request.param](tmp_path)
    yield made
    made.close()
