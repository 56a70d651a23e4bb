"""A reader has a thread of its own that waits for the brokers.

A caller that is woken and then takes the records gets every record once and in order. It never
learns of a position whose records it was not given.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from support.kafka.cluster import await_true

from headgate.ports import TransportError
from headgate_kafka.logs import read_ahead, reading
from headgate_kafka.logs.reading import TopicReader

SEEDS = 40
LENGTH = 60


def record(offset: int) -> Any:
    return SimpleNamespace(error=lambda: None, partition=lambda: 0, offset=lambda: offset)


class Broker:
    """A partition of records and, at the offsets in `markers`, of markers of transactions; as much
    of it as was written can be fetched."""

    def __init__(self, markers: frozenset[int] = frozenset(), written: int = 0) -> None:
        self.markers, self.written = markers, written
        self.came = threading.Condition()
        self.bug: Exception | None = None

    def write(self, count: int) -> None:
        with self.came:
            self.written += count
            self.came.notify_all()

    def given(self, start: int = 0) -> list[int]:
        """Offsets of the records from `start` on."""
        return [n for n in range(start, self.written) if n not in self.markers]


class FakeConsumer:
    """A stand-in for librdkafka's consumer. A record that it gives out moves its position before
    the caller has the record."""

    def __init__(self, broker: Broker, pause: Callable[[], None]) -> None:
        self._broker, self._pause = broker, pause
        self._at: int | None = None
        self._mutex = threading.Lock()
        self.closed = False
        self.used_late = False
        """After it was closed: librdkafka's would have ended the process."""

    def assign(self, places: list[TopicPartition]) -> None:
        with self._mutex:
            self._at = places[0].offset

    def poll(self, timeout_s: float) -> Any:
        until = time.monotonic() + timeout_s
        while (found := self._next()) is None and time.monotonic() < until:
            with self._broker.came:
                self._broker.came.wait(0.001)
        self._pause()
        return found

    def consume(self, limit: int, _timeout_s: float) -> list[Any]:
        found: list[Any] = []
        while len(found) < limit and (message := self._next()) is not None:
            found.append(message)
        self._pause()
        return found

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        offset = -1_001 if self._at is None else self._at
        return [TopicPartition(place.topic, place.partition, offset) for place in places]

    def close(self) -> None:
        self.closed = True

    def _next(self) -> Any:
        with self._mutex:
            self.used_late |= self.closed
            if self._broker.bug is not None:
                raise self._broker.bug
            while self._at is not None and self._at < self._broker.written:
                self._at += 1
                if self._at - 1 not in self._broker.markers:
                    return record(self._at - 1)
        return None


class Following:
    """A reader that looks only when it was told, as a worker's loop does."""

    def __init__(self, reader: TopicReader, told: threading.Event) -> None:
        self.reader, self._told = reader, told
        self.seen: list[int] = []

    def note(self, records: list[Message]) -> None:
        self.seen += [message.offset() or 0 for message in records]

    def look(self, limit: int) -> None:
        assert self._told.wait(10), f"not told, though only {len(self.seen)} records were seen"
        self._told.clear()
        while records := self.reader.take(limit):
            self.note(records)


Make = Callable[..., tuple[TopicReader, threading.Event]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Readers of a broker that begin at 0."""
    readers: list[TopicReader] = []
    consumers: list[FakeConsumer] = []

    monkeypatch.setattr(read_ahead, "PULL_S", 0.01)
    before = pulling()

    def make(
        broker: Broker, pause: Callable[[], None] = lambda: None
    ) -> tuple[TopicReader, threading.Event]:
        told = threading.Event()
        consumers.append(FakeConsumer(broker, pause))
        monkeypatch.setattr(reading, "Consumer", lambda _settings: consumers[-1])
        reader = TopicReader({}, "t", lambda _line: None, told.set)
        reader.start({0: 0})
        readers.append(reader)
        return reader, told

    yield make
    for reader in readers:
        reader.close()
    await_true("end of all threads", lambda: pulling() <= before, 10)
    assert [(each.closed, each.used_late) for each in consumers] == [(True, False)] * len(readers)


def pulling() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "read-ahead"}


def pauses(seed: int) -> Callable[[], None]:
    """Return a pause for one thread: the time that a record takes to leave librdkafka."""
    dice = random.Random(seed + 2 * SEEDS)
    return lambda: time.sleep(dice.choice((0, dice.random() / 2_000)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_looks_when_told_gets_all_in_order(seed: int, made: Make) -> None:
    dice, writers = random.Random(seed), random.Random(seed + SEEDS)
    markers = frozenset(dice.sample(range(LENGTH), LENGTH // 4)) - {LENGTH - 1}
    broker = Broker(markers)

    def write() -> None:
        while broker.written < LENGTH:
            broker.write(min(writers.randrange(1, 8), LENGTH - broker.written))
            time.sleep(writers.choice((0, 0, writers.random() / 2_000)))

    following = Following(*made(broker, pauses(seed)))
    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    while len(following.seen) < LENGTH - len(markers):
        following.look(dice.randrange(1, 6))
        position = following.reader.positions[0]
        assert following.seen == broker.given()[: len(following.seen)]
        assert len([n for n in broker.given() if n < position]) == len(following.seen)
    writing.join()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_who_awaits_an_end_is_given_what_is_before_it(seed: int, made: Make) -> None:
    """A position is asked for while records are on their way out of librdkafka."""
    dice = random.Random(seed)
    broker = Broker(frozenset({LENGTH - 1}))
    following = Following(made(broker, pauses(seed))[0], threading.Event())
    while broker.written < LENGTH:
        broker.write(min(dice.randrange(1, 20), LENGTH - broker.written))
        following.reader.wait_past({0: broker.written}, 5_000, following.note)
        assert following.seen == broker.given()


def test_who_starts_elsewhere_is_given_nothing_of_before(made: Make) -> None:
    broker = Broker(written=1_000)
    reader, told = made(broker)
    ahead: Any = reader._consumer
    for start in (500, 10, 990):
        reader.start({0: 0})
        await_true("records", lambda: ahead._kept, 10)
        reader.start({0: start})
        following = Following(reader, told)
        reader.wait_past({0: 1_000}, 5_000, following.note)
        assert following.seen == broker.given(start)


def test_what_nobody_takes_is_not_read_without_end(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "KEPT", 10)
    broker = Broker(written=1_000)
    reader, told = made(broker)
    assert told.wait(10)
    time.sleep(0.1)
    kept: Any = reader._consumer
    assert 10 <= len(kept._kept) <= 20
    following = Following(reader, told)
    reader.wait_past({0: 1_000}, 5_000, following.note)
    assert following.seen == broker.given()


def test_a_thread_that_fails_is_told_of_after_what_it_has_read(made: Make) -> None:
    broker = Broker(written=3)
    reader, told = made(broker)
    assert told.wait(10)
    told.clear()
    broker.bug = ValueError("no such thing")
    assert told.wait(10)
    assert len(reader.take(10)) == 3
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such thing"):
            reader.take(10)


def test_no_position_is_told_while_there_is_something_to_take(made: Make) -> None:
    """A caller that has found no records asks for the position, and a record may have come just
    then."""
    broker = Broker(frozenset({1, 2}))
    reader, told = made(broker)
    ahead: Any = reader._consumer
    assert ahead.consume(10, 0) == []
    broker.write(3)
    assert told.wait(10)
    assert list(ahead.position([])) == []
    assert len(ahead.consume(10, 0)) == 1
    await_true("position", lambda: [each.offset for each in ahead.position([])] == [3], 10)


def test_who_waits_is_given_what_comes_at_once(made: Make) -> None:
    broker = Broker()
    reader, _ = made(broker)
    began = time.monotonic()
    writing = threading.Timer(0.2, broker.write, (1,))
    writing.start()
    assert len(reader.take(10, 10)) == 1
    assert 0.1 < time.monotonic() - began < 5


def test_an_error_of_the_brokers_is_the_takers(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    broker = Broker()
    reader, told = made(broker)
    monkeypatch.setattr(
        FakeConsumer, "_next", lambda _consumer: SimpleNamespace(error=lambda: error)
    )
    assert told.wait(10)
    with pytest.raises(TransportError, match="cannot be read"):
        reader.take(10)
