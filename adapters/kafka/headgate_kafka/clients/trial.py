"""What librdkafka itself says of settings, and what it was built with.

A client is made that has no servers, so that it connects to nothing, and is let go at once: 0.25
ms, 4 ms for the first of a process. No thread is left. Logins and certificates are not tried: with
OAUTHBEARER a client asks for a token as soon as it is there, and reading the certificates that a
system trusts takes 5 ms. The library is loaded with the first question.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

_LEFT_OUT: Final = ("bootstrap.servers", "security.", "sasl.", "ssl.", "https.")
_JAVA_NAMES: Final = {
    "`max.in.flight`": "`max.in.flight.requests.per.connection`",
    "`message.timeout.ms`": "`delivery.timeout.ms`",
}
"""Other names of settings, as librdkafka's complaints about combinations have them."""
_UNHEARD: Final = logging.Logger("trial", logging.CRITICAL + 1)
"""With `debug` a client has much to say."""


def refusal(settings: Mapping[str, Any], role: str) -> str:
    """Why librdkafka makes no client of this kind from its settings; empty: it does."""
    from confluent_kafka import Consumer, KafkaException, Producer
    from confluent_kafka.admin import AdminClient

    classes: dict[str, Any] = {"producer": Producer, "consumer": Consumer, "admin": AdminClient}
    tried = {key: value for key, value in settings.items() if not key.startswith(_LEFT_OUT)}
    if role == "consumer":
        tried.setdefault("group.id", "trial")
    try:
        classes[role](tried, logger=_UNHEARD)
    except KafkaException as error:
        text = str(error.args[0].str()).strip().removeprefix(f"Failed to create {role}: ")
        for name, java in _JAVA_NAMES.items():
            text = text.replace(name, java)
        return text
    return ""


def built_with(feature: str) -> bool:
    """Whether librdkafka has it. `builtin.features` may be set to what is needed, and is refused
    where that is absent; so its list of settings has it."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient({"builtin.features": feature}, logger=_UNHEARD)
    except KafkaException:
        return False
    return True
