"""What a reader of a compacted topic remembers of it."""

import threading
import time
from collections.abc import Callable
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


class SlowTopics:
    """Brokers that answer `slow` when they are let, and of which a reader gets nothing."""

    def __init__(self, slow: str) -> None:
        self.asked: list[str] = []
        self.contact = SimpleNamespace(error=TransportError)
        self.awaited, self.let = threading.Event(), threading.Event()
        self._slow = slow

    def topic_starts(self, _topic: str) -> dict[int, int]:
        self._answer("starts")
        return {0: 0}

    def ends(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        self._answer("ends")
        return dict.fromkeys(places, 5)

    def _answer(self, what: str) -> None:
        self.asked.append(what)
        if what == self._slow:
            self.awaited.set()
            assert self.let.wait(30)


def keyed_log(topics: object) -> KafkaKeyedLog:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    return KafkaKeyedLog("t", cast(Any, topics), settings, cast(Any, None), lambda _line: None)


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[str]]:
    """It, and what it raised."""
    raised: list[str] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


CLOSED = ["TransportError: the log of topic 't' was closed"]


@pytest.mark.parametrize("slow", ["starts", "ends"])
def test_who_closes_a_log_does_not_wait_for_brokers_that_are_asked(slow: str) -> None:
    topics = SlowTopics(slow)
    log = keyed_log(topics)
    asking, raised = in_thread(log.end)
    assert topics.awaited.wait(30)
    closing, _ = in_thread(log.close)
    closing.join(10)
    assert not closing.is_alive()
    topics.let.set()
    asking.join(30)
    assert raised == CLOSED
    asked = len(topics.asked)
    for call in (log.end, log.changed, lambda: log.read(0)):
        with pytest.raises(TransportError, match="was closed"):
            call()
    assert len(topics.asked) == asked


def test_who_closes_a_log_does_not_wait_for_who_awaits_its_end() -> None:
    topics = SlowTopics("")
    log = keyed_log(topics)
    waiting, raised = in_thread(log.end)
    while topics.asked != ["starts", "ends"]:
        time.sleep(0.01)
    time.sleep(0.1)  # it holds the mutex by now
    closing, _ = in_thread(log.close)
    closing.join(10)
    assert not closing.is_alive()
    waiting.join(30)
    assert raised == CLOSED


def test_what_is_let_go_while_its_end_is_asked_for_is_opened_again() -> None:
    topics = SlowTopics("ends")
    log = keyed_log(topics)
    waiting, raised = in_thread(log.end)
    assert topics.awaited.wait(30)
    log.rest()
    topics.let.set()
    until = time.monotonic() + 30
    while topics.asked != ["starts", "ends", "starts", "ends"]:
        assert time.monotonic() < until, (topics.asked, raised)
        time.sleep(0.01)
    log.close()
    waiting.join(30)
    assert raised == CLOSED
