"""What an error of a librdkafka client means."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate_kafka.failures import is_fenced, real_error

HIDDEN = KafkaError(KafkaError._FATAL)
"""As librdkafka answers once it has had a fatal error: not fatal itself, by its own word."""
FENCED = KafkaException(KafkaError(KafkaError._FENCED, "a later producer", fatal=True))


class Client:
    """A client that raises the given errors, call after call, and then nothing."""

    def __init__(self, *raised: BaseException | None) -> None:
        self._left = list(raised)

    def commit_transaction(self, _timeout_s: float) -> None:
        error = self._left.pop(0) if self._left else None
        if error is not None:
            raise error

    poll: Callable[..., None] = commit_transaction


@pytest.mark.parametrize(
    "raised",
    [
        (FENCED,),
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), FENCED),  # seen on a broker
        (SystemError("a callback ran"), None, FENCED),
        (None, FENCED),
    ],
)
def test_a_hidden_fatal_error_is_asked_for_until_it_is_told(
    raised: tuple[BaseException | None, ...],
) -> None:
    client: Any = Client(*raised)
    found = real_error(client, HIDDEN)
    assert found is not None and is_fenced(found)


def test_what_is_not_told_or_not_hidden_stays_as_it_is() -> None:
    client: Any = Client()
    assert real_error(client, HIDDEN) is HIDDEN
    assert real_error(client, None) is None
    other = KafkaError(KafkaError._TIMED_OUT)
    client = Client(FENCED)
    assert real_error(client, other) is other


class LateClient(Client):
    """A client whose own thread answers late."""

    def commit_transaction(self, timeout_s: float) -> None:
        raise FENCED if timeout_s >= 1 else KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def poll(self, _timeout_s: float) -> None:
        pass


def test_a_client_that_is_late_is_waited_for() -> None:
    client: Any = LateClient()
    found = real_error(client, HIDDEN)
    assert found is not None and is_fenced(found)
