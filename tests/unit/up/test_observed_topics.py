"""Which topics the display and `--until-idle` count as a sink's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.ports import ProducerRecord
from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_runtime.up.observe import Observer


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    made = open_transport(transport_settings(tmp_path))
    for topic in ("logs-a", "logs-b", "logs-x", "more-logs-a"):
        made.record_log.create_topic(topic, 1)
        producer = made.record_log.producer("c", None, None)
        producer.send([ProducerRecord(topic, 0, None, b"1")])
        producer.acks()
    yield made
    made.close()


def behind(transport: EmbeddedTransport, config: dict[str, str]) -> dict[tuple[str, int], int]:
    """End offsets of a sink that has not committed anything but of one topic."""
    transport.record_log.commit_unguarded("connect-s", {("logs-a", 0): 1})
    record = {"properties": {"connector.class": "FileStreamSink", **config}}
    transport.config_log.append([("connector-s", json.dumps(record).encode())], privileged=False)
    observer = Observer(transport, {})
    try:
        (seen,) = observer.read().connectors
        return dict(seen.ends)
    finally:
        observer.close()


def test_of_a_pattern_all_that_match_also_what_nothing_is_committed_of(
    transport: EmbeddedTransport,
) -> None:
    ends = behind(transport, {"topics.regex": "logs-[a-z&&[^x]]"})
    assert ends == {("logs-a", 0): 1, ("logs-b", 0): 1}


def test_of_a_pattern_that_is_none_what_is_committed(transport: EmbeddedTransport) -> None:
    assert behind(transport, {"topics.regex": "*"}) == {("logs-a", 0): 1}


def test_those_that_are_named(transport: EmbeddedTransport) -> None:
    assert behind(transport, {"topics": "logs-x,none"}) == {("logs-x", 0): 1}
