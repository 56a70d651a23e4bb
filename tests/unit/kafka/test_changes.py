"""What a reader of a compacted topic remembers of it."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.ports import TransportError
from headgate_kafka.keyed_log import Changes, KafkaKeyedLog
from headgate_kafka.reading import TopicReader


def test_records_without_a_key_are_all_given_and_supersede_nothing() -> None:
    changes = Changes()
    changes.add(b"k", b"1", 0, (0, 5))
    for offset in (6, 7):
        changes.add(None, b"x", 0, (0, offset))
    changes.add(b"k", b"2", 0, (0, 8))
    records, position = changes.after(0, 100)
    assert [(r.key, r.found_at) for r in records] == [
        (None, (0, 6)),
        (None, (0, 7)),
        (b"k", (0, 8)),
    ]
    assert changes.after(position, 100) == ([], position)


def test_a_flood_of_them_is_not_kept() -> None:
    changes = Changes()
    changes.add(b"k", b"1", 0)
    for offset in range(100_000):
        changes.add(None, b"x", 0, (0, offset))
    records, _ = changes.after(0, 1_000_000)
    assert records[0].key == b"k"
    assert 100 <= len(records) < 2_000
    assert records[-1].found_at == (0, 99_999)


def test_a_reader_that_could_not_begin_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no partitions: whoever asked for the end next would be told that nothing is there."""
    starts: list[dict[int, int]] = []

    def start(_reader: TopicReader, positions: dict[int, int]) -> None:
        starts.append(positions)
        raise KafkaException(KafkaError(KafkaError._FAIL))

    monkeypatch.setattr(TopicReader, "start", start)
    topics: Any = SimpleNamespace(topic_starts=lambda _topic: {0: 0})
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    log = KafkaKeyedLog("t", topics, settings, cast(Any, None), lambda _line: None)
    for _ in range(2):
        with pytest.raises(KafkaException):
            log.read(0)
    assert starts == [{0: 0}, {0: 0}]


def test_who_closes_a_log_does_not_wait_for_brokers_that_are_asked() -> None:
    asked, answered = threading.Event(), threading.Event()

    def starts(_topic: str) -> dict[int, int]:
        asked.set()
        assert answered.wait(30)
        return {0: 0}

    topics: Any = SimpleNamespace(
        topic_starts=starts, contact=SimpleNamespace(error=lambda text: TransportError(text))
    )
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    log = KafkaKeyedLog("t", topics, settings, cast(Any, None), lambda _line: None)
    failed: list[TransportError] = []

    def read() -> None:
        try:
            log.read(0)
        except TransportError as error:
            failed.append(error)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    assert asked.wait(30)
    closing = threading.Thread(target=log.close, daemon=True)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    answered.set()
    reading.join(30)
    assert [str(error) for error in failed] == ["the log of topic 't' was closed"]
