"""What is told when not all producers could be shut out."""

from collections.abc import Sequence
from typing import Any

import pytest

from headgate.ports import TransportError
from headgate_kafka.fencer import KafkaFencer


class Answers:
    """The broker's, by id."""

    servers = "b1:9092"

    def __init__(self, codes: dict[str, int]) -> None:
        self.codes = codes
        self.asked: list[str] = []

    def fence(self, transactional_ids: Sequence[str], _timeout_ms: int) -> dict[str, int]:
        self.asked += transactional_ids
        return self.codes


def fence(codes: dict[str, int], *ids: str) -> Answers:
    answers: Any = Answers(codes)
    KafkaFencer(answers).fence(ids)
    return answers  # type: ignore[no-any-return]


def test_all_are_shut_out() -> None:
    assert fence({"a": 0, "b": 0}, "a", "b").asked == ["a", "b"]
    assert fence({}).asked == []


def test_who_may_not_is_told_the_permission() -> None:
    with pytest.raises(
        TransportError, match=r"1 of 2 .* b1:9092: b: error 53 .*Write and Describe"
    ):
        fence({"a": 0, "b": 53}, "a", "b")


def test_silence_is_no_fence() -> None:
    with pytest.raises(TransportError, match=r"2 of 3 .*no answer within 90000 ms for b, c"):
        fence({"a": 0}, "a", "b", "c")
