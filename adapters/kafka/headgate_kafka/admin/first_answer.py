"""A check whether brokers answer a client with given settings.

A listener for TLS, or for another login, accepts connections of a wrong client and closes them.
librdkafka then tries for ever and logs nothing.
"""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headgate_kafka.failures import Contact

ASK_S: Final = 3.0
"""How long to wait for an answer."""
_LOOK_S: Final = 0.02


def closed_unanswered(settings: Mapping[str, Any]) -> str:
    """Return why no broker will ever answer: each connection is closed. Empty: a broker answers or
    refuses, or nothing is known after `ASK_S`.

    Args:
        settings: librdkafka's settings of an admin client.
    """
    contact = Contact(settings, lambda _line: None)
    client = AdminClient(contact.settings)
    asked = client.describe_cluster(request_timeout=ASK_S)
    until = time.monotonic() + ASK_S
    while not _answered(asked) and time.monotonic() < until:
        client.poll(0)
        if contact.silence:
            return f"{contact.servers}: {contact.silence}"
    return ""


def _answered(asked: "Future[Any]") -> bool:
    try:
        asked.result(_LOOK_S)
    except TimeoutError:
        return False
    except KafkaException:
        pass
    return True
