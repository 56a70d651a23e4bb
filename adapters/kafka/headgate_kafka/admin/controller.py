"""Requests that librdkafka sends to the cluster's controller.

librdkafka sends them to the controller of its last metadata, and an admin client does not fetch new
metadata by itself. If that controller is gone, every request waits for it until its timeout.

Measured with librdkafka 2.16.0: 15 clients were made just after one of three brokers was killed.
For the 25 s that they were watched, 7 of them got no answer. Java's client fetches metadata after a
disconnect.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from headgate_kafka.failures import kafka_error

T = TypeVar("T")

TRIES_S: Final = (2.0, 4.0, 15.0)
"""Time limits of the tries, in seconds. Brokers name a controller that is gone until its session
times out, so the second try may fail too. The last try is for slow brokers, which go on with the
earlier requests."""
_LOOK_S: Final = 1.0


def ask_controller(
    client: Any, ask: Callable[[float], T], refused: Callable[[], object] = bool
) -> T:
    """Return the result of `ask`, which is called again after a timeout. Raise what it raises.

    Args:
        client: the admin client that `ask` uses.
        ask: makes the request, given the client's time limit in seconds. It must wait for the
            answer without a limit of its own. The client reports a timeout itself, and a second
            limit could expire while this process is suspended.
        refused: returns whether brokers refuse the client's login. Then a timeout is not tried
            again.
    """
    for limit_s in TRIES_S[:-1]:
        try:
            return ask(limit_s)
        except KafkaException as failed:
            client.poll(0)  # the client's error callbacks only run in `poll`
            if not took_too_long(failed) or refused():
                raise
            look_again(client)
    return ask(TRIES_S[-1])


def took_too_long(failed: KafkaException) -> bool:
    error = kafka_error(failed)
    return error is not None and error.code() == KafkaError._TIMED_OUT


def look_again(client: Any) -> None:
    """Have the client fetch metadata from a broker that is up, and so learn the controller."""
    with suppress(KafkaException):
        client.list_topics(timeout=_LOOK_S)
