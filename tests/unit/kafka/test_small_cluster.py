"""Which clients connect to all brokers of a small cluster at once."""

from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Producer

from headgate_kafka.clients.settings import (
    FEW_BROKERS,
    Properties,
    admin_settings,
    consumer_settings,
    knowing_cluster,
    librdkafka,
    producer_settings,
    worker_client_settings,
)

WORKER = {"bootstrap.servers": "kafka:9092"}


def settings_of_all(
    worker: Properties, connector: Properties
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the settings of each kind of client: the worker's own, and its connectors'."""
    yield "reader", worker_client_settings(worker, "consumer", client_id="c")
    yield "writer", worker_client_settings(worker, "producer", client_id="c")
    yield "producer", producer_settings(worker, connector, client_id="c", transactional_id="t")
    yield "consumer", consumer_settings(worker, connector, client_id="c", group_id="g")
    yield "admin", admin_settings(worker, connector, client_id="c")


AT_ONCE = "enable.sparse.connections"
SMALL = "headgate.small.cluster.servers"
ALL = {"reader", "writer", "producer", "consumer", "admin"}
ELSEWHERE = {"producer.override.bootstrap.servers": "other:9092"}


@pytest.mark.parametrize(
    ("brokers", "more", "connector", "wanted"),
    [
        (FEW_BROKERS, {}, {}, ALL),
        (FEW_BROKERS + 1, {}, {}, set()),
        (1, {}, ELSEWHERE, ALL - {"producer"}),
        (1, {"consumer.bootstrap.servers": "other:9092"}, {}, ALL - {"consumer"}),
        (1, {}, {"admin.override.bootstrap.servers": "other:9092"}, ALL - {"admin"}),
        (1, {f"producer.{AT_ONCE}": "true"}, {}, ALL - {"producer"}),
        (1, {}, {f"consumer.override.{AT_ONCE}": "true"}, ALL - {"consumer"}),
        (9, {f"producer.{AT_ONCE}": "false"}, {}, {"producer"}),
        (1, {}, {**ELSEWHERE, f"producer.override.{SMALL}": "other:9092"}, ALL - {"producer"}),
        (9, {f"producer.{SMALL}": "kafka:9092"}, {}, set()),
    ],
)
def test_a_small_cluster_is_connected_to_at_once(
    brokers: int, more: dict[str, str], connector: dict[str, str], wanted: set[str]
) -> None:
    worker = knowing_cluster({**WORKER, **more}, brokers)
    made = dict(settings_of_all(worker, connector))
    assert {who for who, settings in made.items() if settings.get(AT_ONCE) == "false"} == wanted
    Producer({**made["producer"], "log_level": "0"})  # librdkafka takes it
    assert made.keys() == ALL


def test_nothing_is_known_of_a_cluster_that_was_not_seen() -> None:
    assert not [who for who, settings in settings_of_all(WORKER, {}) if AT_ONCE in settings]
    assert AT_ONCE not in librdkafka({}, "producer")
