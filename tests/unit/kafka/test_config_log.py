"""A reader of the config topic starts, fails to start, and is closed, whatever its brokers do."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.ports import TransportError
from headgate_kafka.logs.config_log import KafkaConfigLog
from headgate_kafka.logs.reading import TopicReader

SYNC_MS = 200


class Topics:
    """Brokers of which a reader gets nothing, and which say where the topic begins once they have
    been asked before."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.contact = SimpleNamespace(error=TransportError)

    def topic_starts(self, _topic: str) -> dict[int, int]:
        self.asked.append("starts")
        if self.asked.count("starts") == 1:
            raise TransportError("restarting")
        return {0: 3}

    def ends(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        self.asked.append("ends")
        return dict.fromkeys(places, 5)


@pytest.fixture(params=[False, True], ids=["looked-at", "told"])
def made(request: pytest.FixtureRequest) -> tuple[KafkaConfigLog, Topics]:
    topics = Topics()
    settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    log = KafkaConfigLog(
        "t",
        cast(Any, topics),
        {**settings, "group.id": "g"},
        settings,
        None,
        lambda _line: None,
        sync_ms=SYNC_MS,
    )
    if request.param:
        log.subscribe(lambda: None)
    return log, topics


def test_a_reader_that_could_not_begin_begins_when_it_is_asked_again(
    made: tuple[KafkaConfigLog, Topics],
) -> None:
    log, topics = made
    with pytest.raises(TransportError, match="restarting"):
        log.end()
    with pytest.raises(TransportError, match="t-0 ends at 5, but nothing committed came after 3"):
        log.end()
    assert topics.asked == ["ends", "starts", "ends", "starts"]
    log.close()


def test_a_closed_log_reads_nothing_any_more(made: tuple[KafkaConfigLog, Topics]) -> None:
    """That holds though the end offsets come late."""
    log, topics = made
    log.close()
    calls: list[Callable[[], object]] = [log.end, lambda: log.read(0)]
    for call in calls:
        with pytest.raises(TransportError, match="the log of topic 't' was closed"):
            call()
    assert "starts" not in topics.asked


def test_a_reader_that_could_not_begin_elsewhere_begins_anew(
    made: tuple[KafkaConfigLog, Topics], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, topics = made
    topics.asked.append("starts")
    starts: list[int] = []
    start = TopicReader.start

    def once(reader: TopicReader, positions: dict[int, int]) -> None:
        starts.append(positions[0])
        if starts == [3, 7]:
            raise KafkaException(KafkaError(KafkaError._FAIL))
        start(reader, positions)

    monkeypatch.setattr(TopicReader, "start", once)
    assert log.read(0) == ([], 3)
    with pytest.raises(KafkaException):
        log.read(7)
    assert log.read(3) == ([], 3)
    assert starts == [3, 7, 3]
    log.close()
