"""Questions that librdkafka puts to the broker which it takes for the cluster's controller.

It takes the one that brokers named last, and hears of another only with new metadata, which an
admin client does not ask for by itself. One that is gone is waited for until the time is up, each
time: of 15 clients made when one of three brokers had just been killed, 7 could ask nothing for the
25 s that they were watched. Seen with librdkafka 2.16.0. Java's ask for metadata once disconnected.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from headgate_kafka.failures import kafka_error

T = TypeVar("T")

TRIES_S: Final = (2.0, 4.0, 15.0)
"""Brokers name one that is gone until its session is over, so the second may be in vain, too. The
last is for brokers that are slow: they go on with what was asked before."""
_LOOK_S: Final = 1.0


def ask_controller(
    client: Any, ask: Callable[[float], T], refused: Callable[[], object] = bool
) -> T:
    """What `ask` returns; asked again where it takes too long. Raises what it raises.

    Args:
        client: an admin client, which `ask` asks.
        ask: told how many seconds the client may take. It waits for the answer without a limit of
            its own: the client has one by then, and would else be given up while this process
            stands still.
        refused: whether brokers do not let the client in: what took too long then takes forever.
    """
    for limit_s in TRIES_S[:-1]:
        try:
            return ask(limit_s)
        except KafkaException as failed:
            client.poll(0)  # or what the client complains about is never heard
            if not took_too_long(failed) or refused():
                raise
            look_again(client)
    return ask(TRIES_S[-1])


def took_too_long(failed: KafkaException) -> bool:
    error = kafka_error(failed)
    return error is not None and error.code() == KafkaError._TIMED_OUT


def look_again(client: Any) -> None:
    """Have it ask a broker that is there which one is the controller."""
    with suppress(KafkaException):
        client.list_topics(timeout=_LOOK_S)
