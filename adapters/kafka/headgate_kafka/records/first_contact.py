"""Brings a client of librdkafka into touch with a broker before transactions are initialised.

A client that has no broker yet when it looks for its coordinator looks again 500 ms later. Which of
the two comes first is chance, for its first connection, to an address of `bootstrap.servers`, is
given up as soon as the brokers are known by their ids. Seen with librdkafka 2.16.0: of every four
`init_transactions` of new clients one took half a second. With a look first all take 5 ms, and the
look takes what a second connection has to wait (`client_settings.RECONNECT_MS`), which is nothing
where all brokers are connected to at once (`client_settings.FEW_BROKERS`).
"""

from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException

LOOK_S: Final = 1.0
LOOKS: Final = 2
"""The first is answered by an address, the second by a broker of the cluster."""


def connect(client: Any, topic: str) -> bool:
    """Whether a broker has answered; returns when it has, or none has in time. What the client
    has to say of that is told where it is polled next.

    Args:
        client: a producer that was just made.
        topic: one that is there.
    """
    with suppress(KafkaException):
        for _ in range(LOOKS):
            client.list_topics(topic, LOOK_S)
        return True
    return False
