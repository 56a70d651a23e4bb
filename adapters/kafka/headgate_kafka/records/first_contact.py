"""First contact of a librdkafka client with a broker, before it initialises transactions.

A client without a connection to a broker, when it looks for its coordinator, looks again only 500
ms later. It is a matter of chance whether it has one: its first connection, to an address of
`bootstrap.servers`, is closed as soon as the brokers' ids are known.

Measured with librdkafka 2.16.0: one of every four `init_transactions` of new clients took half a
second. After a metadata request all of them take 5 ms. The request itself takes as long as the
second connection has to wait (`clients.settings.RECONNECT_MS`). With `clients.settings.FEW_BROKERS`
or fewer that is nothing, since all brokers are connected to at once.
"""

from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException

LOOK_S: Final = 1.0
LOOKS: Final = 2
"""Number of requests. The first is answered over the connection to a bootstrap address, the second
by a broker that is known by its id."""


def connect(client: Any, topic: str) -> bool:
    """Wait until a broker has answered a client, or the time is up. Return whether one has.

    Errors are not raised here. The client reports them when it is polled next.

    Args:
        client: a producer that was just made.
        topic: a topic that exists.
    """
    with suppress(KafkaException):
        for _ in range(LOOKS):
            client.list_topics(topic, LOOK_S)
        return True
    return False
