"""Offsets of partitions are asked for again while the brokers hand the partitions over. Real
brokers are in tests/e2e."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate.ports import TransportError
from headgate_kafka.logs import reading
from headgate_kafka.logs.reading import MOVED_TRIES, Topics

PLACE = ("t", 0)
PASSING = [
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError._NOENT,  # what librdkafka says itself where it knows of no leader yet
]


class Client:
    """`errors`: what the next questions for offsets are answered with; then there is one. `there`:
    what topics are, or how that question fails."""

    def __init__(self, errors: list[int]) -> None:
        self.errors = errors
        self.there: dict[str, Any] | KafkaException = {"t": SimpleNamespace(partitions={0: None})}

    def list_offsets(self, asked: dict[Any, Any], **_settings: Any) -> dict[Any, Any]:
        future: Future[Any] = Future()
        if self.errors:
            future.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            future.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(asked, future)

    def list_topics(self, **_settings: Any) -> Any:
        if isinstance(self.there, KafkaException):
            raise self.there
        return SimpleNamespace(topics=self.there)

    def poll(self, _timeout_s: float) -> None: ...


def topics(monkeypatch: pytest.MonkeyPatch, errors: list[int]) -> Topics:
    monkeypatch.setattr(reading, "MOVED_S", 0.0)
    made = Topics({"bootstrap.servers": "127.0.0.1:1"}, print)
    client: Any = Client(errors)
    made.client = client
    return made


NOT_THERE: list[dict[str, Any] | KafkaException] = [
    {},
    {"t": SimpleNamespace(partitions={})},
    KafkaException(KafkaError(KafkaError._TRANSPORT)),
]


@pytest.mark.parametrize("code", PASSING)
def test_offsets_are_asked_for_again_while_nobody_leads(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    assert topics(monkeypatch, [code, code]).ends([PLACE]) == {PLACE: 7}


@pytest.mark.parametrize("code", PASSING)
def test_offsets_of_what_stays_without_a_leader_are_given_up(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    with pytest.raises(TransportError, match="offsets of t-0 could not be read"):
        topics(monkeypatch, [code] * MOVED_TRIES).ends([PLACE])


def test_other_errors_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = topics(monkeypatch, [KafkaError.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(TransportError, match="Describe on Topic:t"):
        asked.ends([PLACE])


@pytest.mark.parametrize("there", NOT_THERE)
def test_nobody_is_waited_for_to_lead_what_is_not_there(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, Any] | KafkaException
) -> None:
    """The same holds if nobody can say whether the partition exists, because the brokers are
    away."""
    asked = topics(monkeypatch, [KafkaError._NOENT])
    client: Any = asked.client
    client.there = there
    with pytest.raises(TransportError, match="offsets of t-0 could not be read"):
        asked.ends([PLACE])
