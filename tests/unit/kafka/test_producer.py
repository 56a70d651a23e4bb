"""What a task's producer makes of brokers that are slow, on a client that plays them."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.ports import Ack, ProducerRecord, TransportError, UnknownTopicError
from headgate_kafka import producer as producers
from headgate_kafka.producer import PlainProducer, TransactionalProducer

RECORDS = [ProducerRecord("t", 0, None, b"v")] * 10
LATE = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Commit timed out", retriable=True))
LIMIT_MS = 200


class SlowClient:
    """Needs so many flushes, or commits; `moves`: of a flush, how many records go out."""

    def __init__(self, needed: int, moves: Callable[[], int] = lambda: 1) -> None:
        self.waits = 0
        self.told: KafkaError | None = None
        self._needed = needed
        self._moves = moves
        self._left = 0

    def produce(self, *_given: object) -> None:
        self._left += 1

    def poll(self, _timeout_s: float) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        self._wait(timeout_s)
        self._left -= self._moves()
        return self._left

    def list_topics(self, topic: str, _timeout_s: float) -> Any:
        self.waits += 1
        return SimpleNamespace(
            topics={
                topic: SimpleNamespace(
                    error=self.told, partitions={0: None} if self.told is None else {}
                )
            }
        )

    def begin_transaction(self) -> None:
        pass

    def commit_transaction(self, timeout_s: float) -> None:
        self._wait(timeout_s)
        if self.waits < self._needed:
            raise LATE

    def _wait(self, timeout_s: float) -> None:
        self.waits += 1
        time.sleep(timeout_s)


class NoOffsets:
    topic = "offsets"

    def before(self, offsets: object) -> None:
        pass

    after = before


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "COMMIT_MS", LIMIT_MS)
    monkeypatch.setattr(producers, "FLUSH_S", LIMIT_MS / 4_000)


def plain(client: Any) -> PlainProducer:
    made = PlainProducer({"bootstrap.servers": "b:9092"}, lambda _topic: 1, lambda _line: None)
    made._client = client
    made.send(RECORDS)
    return made


def transactional(client: Any, timeout_ms: int) -> TransactionalProducer:
    made = TransactionalProducer(
        {"bootstrap.servers": "b:9092", "transaction.timeout.ms": timeout_ms},
        "g-c-0",
        NoOffsets(),
        lambda _topic: 1,
        lambda _id: None,
        lambda _line: None,
    )
    made._client, made._ready = client, True
    made.send(RECORDS)
    return made


def test_records_that_go_out_slowly_are_waited_for() -> None:
    client = SlowClient(0)
    # Longer in all than brokers that take no record are waited for.
    assert plain(client).acks() == [Ack(0, 9)]
    assert client.waits == 10


def test_brokers_that_take_no_record_are_given_up() -> None:
    going = [1, 1, 1]
    producer = plain(SlowClient(0, lambda: going.pop() if going else 0))
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"7 records .* none was for 200 ms; .* at b:9092"):
        producer.acks()
    assert time.monotonic() - began < 10 * LIMIT_MS / 1000
    assert not going


def test_a_commit_may_take_as_long_as_its_transaction() -> None:
    client = SlowClient(4)
    transactional(client, 60_000).commit([(b"k", b"v")])
    assert client.waits == 4


def test_a_commit_is_given_up_with_its_transaction() -> None:
    client = SlowClient(1_000)
    producer = transactional(client, 3 * LIMIT_MS)
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"Commit timed out.*_TIMED_OUT"):
        producer.commit([])
    took = time.monotonic() - began
    assert 2 * LIMIT_MS / 1000 < took < 10 * LIMIT_MS / 1000
    # It may be tried again, for as long as any commit.
    client._needed = 0
    producer.commit([])


@pytest.mark.parametrize(
    ("code", "patient"),
    [(KafkaError.UNKNOWN_TOPIC_OR_PART, True), (KafkaError.TOPIC_EXCEPTION, False)],
)
def test_a_topic_that_nobody_makes_is_unknown(
    code: int, patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(topic: str) -> int:
        raise UnknownTopicError(f"topic {topic} does not exist")

    monkeypatch.setattr(producers, "MADE_MS", LIMIT_MS)
    client: Any = SlowClient(0)
    client.told = KafkaError(code)
    producer = PlainProducer({}, unknown, lambda _line: None)
    producer._client = client
    with pytest.raises(UnknownTopicError, match="topic t does not exist"):
        producer.send(RECORDS)
    assert (client.waits > 1) is patient
