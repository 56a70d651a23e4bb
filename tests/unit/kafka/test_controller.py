"""When the broker that was named as the controller does not answer, the client looks the controller
up again."""

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate_kafka.admin.controller import TRIES_S, ask_controller


class Client:
    """Counts how often it asks for metadata, in vain where it is `alone`."""

    def __init__(self, alone: bool = False) -> None:
        self.looks = 0
        self.heard = False
        self._alone = alone

    def poll(self, _timeout_s: float) -> int:
        self.heard = True
        return 0

    def list_topics(self, timeout: float) -> None:
        self.looks += 1
        if self._alone:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def failing(code: int, times: int) -> tuple[list[float], Callable[[float], str]]:
    """Fails so often with `code`; with the limits that it was told."""
    limits: list[float] = []

    def ask(limit_s: float) -> str:
        limits.append(limit_s)
        if len(limits) <= times:
            raise KafkaException(KafkaError(code))
        return "answer"

    return limits, ask


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("times", range(len(TRIES_S)))
def test_who_gets_no_answer_looks_who_is_the_controller_now(times: int, alone: bool) -> None:
    client = Client(alone)
    limits, ask = failing(KafkaError._TIMED_OUT, times)
    assert ask_controller(client, ask) == "answer"
    assert (limits, client.looks) == (list(TRIES_S[: times + 1]), times)


def test_in_the_end_it_is_said_that_nobody_answers() -> None:
    client = Client()
    limits, ask = failing(KafkaError._TIMED_OUT, len(TRIES_S))
    with pytest.raises(KafkaException) as raised:
        ask_controller(client, ask)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
    assert (tuple(limits), client.looks) == (TRIES_S, len(TRIES_S) - 1)


def test_who_is_not_let_in_does_not_ask_again() -> None:
    client = Client()
    limits, ask = failing(KafkaError._TIMED_OUT, len(TRIES_S))
    with pytest.raises(KafkaException):
        ask_controller(client, ask, lambda: client.heard)
    assert (limits, client.looks) == ([TRIES_S[0]], 0)


def test_an_answer_is_an_answer_though_it_is_a_refusal() -> None:
    client = Client()
    limits, ask = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1)
    with pytest.raises(KafkaException):
        ask_controller(client, ask)
    assert (len(limits), client.looks) == (1, 0)
