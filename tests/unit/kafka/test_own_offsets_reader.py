"""A connector's own offsets topic is read where its producer writes it, with the producer's
login."""

from collections.abc import Mapping

import pytest

from headgate_kafka.clients.roles import connector_clients, own_offsets_reader
from headgate_kafka.clients.settings import knowing_cluster

WORKER = {"bootstrap.servers": "here:9092", "consumer.security.protocol": "PLAINTEXT"}
ELSEWHERE = {"producer.override.bootstrap.servers": "there:9094"}
AT_ONCE = "consumer.override.enable.sparse.connections"
LOGIN = {
    "producer.override.security.protocol": "SASL_PLAINTEXT",
    "producer.override.sasl.mechanism": "PLAIN",
    "producer.override.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="writer" password="secret";'
    ),
}


def read_with(config: Mapping[str, str]) -> tuple[object, object]:
    settings = connector_clients(WORKER, config, print)
    reader = own_offsets_reader(WORKER, config, "c", settings)
    return reader["bootstrap.servers"], reader.get("sasl.username")


def test_where_the_producer_writes_and_as_it_logs_in() -> None:
    assert read_with(ELSEWHERE) == ("there:9094", None)
    assert read_with({**ELSEWHERE, **LOGIN}) == ("there:9094", "writer")


def test_what_is_said_of_the_consumer_counts() -> None:
    consumer = {"consumer.override.bootstrap.servers": "proxy:9092"}
    assert read_with({**ELSEWHERE, **LOGIN, **consumer}) == ("proxy:9092", None)
    plain = {"consumer.override.security.protocol": "PLAINTEXT"}
    assert read_with({**ELSEWHERE, **LOGIN, **plain}) == ("there:9094", None)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({}, "false"),
        (ELSEWHERE, None),
        ({**ELSEWHERE, AT_ONCE: "false"}, "false"),
        ({**ELSEWHERE, AT_ONCE: "true"}, "true"),
    ],
)
def test_what_is_known_of_the_workers_cluster_is_not_said_of_another(
    config: dict[str, str], wanted: str | None
) -> None:
    worker = knowing_cluster(WORKER, 1)
    settings = connector_clients(worker, config, print)
    reader = own_offsets_reader(worker, config, "c", settings)
    assert reader.get("enable.sparse.connections") == wanted


def test_on_the_workers_own_servers_it_stays_the_consumers() -> None:
    """The consumer's principal is the one with the right to read."""
    assert read_with({"offsets.storage.topic": "own", **LOGIN}) == ("here:9092", None)
