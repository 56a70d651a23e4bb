"""Producers of ours over a client that behaves as with slow brokers."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.ports import ProducerRecord
from headgate_kafka.records import plain_producer
from headgate_kafka.records import producer as producers
from headgate_kafka.records.plain_producer import PlainProducer
from headgate_kafka.records.producer import TransactionalProducer

RECORDS = [ProducerRecord("t", 0, None, b"v")] * 10
LATE = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Commit timed out", retriable=True))
LIMIT_MS = 200


class SlowClient:
    """A client that needs `needed` flushes or commits. `moves` returns how many records a flush
    sends."""

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
    monkeypatch.setattr(producers, "CLOSE_MS", LIMIT_MS)
    monkeypatch.setattr(plain_producer, "COMMIT_MS", LIMIT_MS)
    monkeypatch.setattr(plain_producer, "FLUSH_S", LIMIT_MS / 4_000)


def plain(client: Any, count: int = 1) -> PlainProducer:
    made = PlainProducer({"bootstrap.servers": "b:9092"}, lambda _topic: count, lambda _line: None)
    made._client = client
    if count == 1:
        made.send(RECORDS)
    return made


def transactional(
    client: Any,
    timeout_ms: int = 60_000,
    *,
    ready: bool = True,
    count: int = 1,
    state: str | None = None,
) -> TransactionalProducer:
    """Return a transactional producer over `client`. `state` is what the coordinator says of its
    transactional id."""
    made = TransactionalProducer(
        {"bootstrap.servers": "b:9092", "transaction.timeout.ms": timeout_ms},
        "g-c-0",
        NoOffsets(),
        lambda _topic: count,
        lambda _id: state,
        lambda _line: None,
    )
    made._client, made._ready, made._in_touch = client, ready, client is not None
    if ready and count == 1:
        made.send(RECORDS)
    return made


def batches(count: int) -> list[list[ProducerRecord]]:
    """Return `count` batches of three records each, without keys."""
    return [
        [ProducerRecord("t", None, None, b"%d.%d" % (n, m)) for m in range(3)] for n in range(count)
    ]
