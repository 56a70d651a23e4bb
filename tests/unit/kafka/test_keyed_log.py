"""A reader of a compacted topic starts, rests and is closed, whatever its brokers do."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from support.kafka.cluster import await_true

from headgate.ports import TransportError
from headgate_kafka.logs import reading
from headgate_kafka.logs.keyed_log import END_MS, KafkaKeyedLog
from headgate_kafka.logs.reading import TopicReader

CLOSED = ["TransportError: the log of topic 't' was closed"]


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


def keyed_log(topics: object, *, told: bool = False, end_ms: int = END_MS) -> KafkaKeyedLog:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    given = cast(Any, topics), settings, cast(Any, None), lambda _line: None
    log = KafkaKeyedLog("t", *given, end_ms=end_ms)
    if told:
        log.subscribe(lambda: None)
    return log


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[str]]:
    """Make a call on a thread of its own. Return the thread and the list of errors that the call
    raises."""
    raised: list[str] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            raised.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, raised


def test_a_reader_that_could_not_begin_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader has no partitions, so the next caller that asks for the end would be told that the
    topic is empty."""
    starts: list[dict[int, int]] = []

    def start(_reader: TopicReader, positions: dict[int, int]) -> None:
        starts.append(positions)
        raise KafkaException(KafkaError(KafkaError._FAIL))

    monkeypatch.setattr(TopicReader, "start", start)
    topics = SimpleNamespace(topic_starts=lambda _topic: {0: 0})
    log = keyed_log(topics)
    for _ in range(2):
        with pytest.raises(KafkaException):
            log.read(0)
    assert starts == [{0: 0}, {0: 0}]


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("slow", ["starts", "ends"])
def test_who_closes_a_log_does_not_wait_for_brokers_that_are_asked(
    slow: str, *, told: bool
) -> None:
    topics = SlowTopics(slow)
    log = keyed_log(topics, told=told)
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


@pytest.mark.parametrize("told", [False, True])
def test_who_closes_a_log_does_not_wait_for_who_awaits_its_end(*, told: bool) -> None:
    topics = SlowTopics("")
    log = keyed_log(topics, told=told)
    waiting, raised = in_thread(log.end)
    await_true("asked", lambda: topics.asked == ["starts", "ends"], 30)
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
    await_true(
        "opened again",
        lambda: topics.asked == ["starts", "ends", "starts", "ends"],
        30,
        lambda: str((topics.asked, raised)),
    )
    log.close()
    waiting.join(30)
    assert raised == CLOSED


def test_a_reader_does_not_wait_for_who_awaits_the_end() -> None:
    """The loop of a worker reads while another thread waits for what brokers have yet to give."""
    topics = SlowTopics("nothing")
    log = keyed_log(topics)
    ending, raised = in_thread(log.end)
    await_true("its end is awaited", lambda: "ends" in topics.asked, 30)
    for _ in range(3):
        time.sleep(0.05)
        reading, _ = in_thread(lambda: log.read(0))
        reading.join(10)
        assert not reading.is_alive() and ending.is_alive()
    log.close()
    ending.join(30)
    assert raised == CLOSED


class BehindMarkers:
    """A consumer whose position is after the records that it gives, as after the marker of a
    transaction. It reports no end."""

    def __init__(self, _settings: object) -> None: ...

    def assign(self, _places: object) -> None: ...

    def consume(self, _limit: int, _wait_s: float) -> list[object]:
        return []

    def poll(self, _wait_s: float) -> None: ...

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(place.topic, place.partition, 5) for place in places]

    def close(self) -> None: ...


def test_the_end_behind_markers_is_there_without_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka tells of such an end half a second later: each source task waits for one."""
    monkeypatch.setattr(reading, "Consumer", BehindMarkers)
    topics = SlowTopics("nothing")
    topics.topic_starts = lambda _topic: {0: 0, 1: 0}  # type: ignore[method-assign]
    log = keyed_log(topics, end_ms=1_000)
    assert log.end() == 0
    log.close()
