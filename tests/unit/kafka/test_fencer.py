"""The fencer reports which producers it could not fence."""

from collections.abc import Sequence

import pytest

from headgate.ports import TransportError
from headgate_kafka.admin.fencer import KafkaFencer
from headgate_kafka.admin.raw_admin import RawAdmin


class Answers(RawAdmin):
    """The broker's, by id."""

    def __init__(self, codes: dict[str, int]) -> None:
        super().__init__({"bootstrap_servers": ["b1:9092"], "sasl_plain_username": "connect"})
        self.codes = codes
        self.asked: list[str] = []

    def fence(self, transactional_ids: Sequence[str], timeout_ms: int) -> dict[str, int]:
        self.asked += transactional_ids
        return self.codes


def fence(codes: dict[str, int], *ids: str) -> Answers:
    answers = Answers(codes)
    KafkaFencer(answers).fence(ids)
    return answers


def test_all_are_shut_out() -> None:
    assert fence({"a": 0, "b": 0}, "a", "b").asked == ["a", "b"]
    assert fence({}).asked == []


def test_who_may_not_is_told_the_permission() -> None:
    with pytest.raises(
        TransportError,
        match=r"1 of 2 .* b1:9092: b: error 53 .User:connect lacks Write on TransactionalId:b.$",
    ):
        fence({"a": 0, "b": 53}, "a", "b")


def test_silence_is_no_fence() -> None:
    with pytest.raises(TransportError, match=r"2 of 3 .*no answer within 90000 ms for b, c"):
        fence({"a": 0}, "a", "b", "c")
