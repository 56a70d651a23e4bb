"""Trial clients, which tell whether librdkafka accepts settings and what it was built with.

A trial makes a client without servers, which connects to nothing, and drops it at once. It takes
0.25 ms, or 4 ms for the first client of a process, and leaves no thread. The library is imported at
the first trial.

Logins and certificates are not tried. With OAUTHBEARER a new client asks for a token at once, and
to read the certificates that the system trusts takes 5 ms.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

_LEFT_OUT: Final = ("bootstrap.servers", "security.", "sasl.", "ssl.", "https.")
_JAVA_NAMES: Final = {
    "`max.in.flight`": "`max.in.flight.requests.per.connection`",
    "`message.timeout.ms`": "`delivery.timeout.ms`",
}
"""Java's names of settings for librdkafka's aliases, which its messages about combinations use."""
_UNHEARD: Final = logging.Logger("trial", logging.CRITICAL + 1)
"""A logger that drops everything. With the setting `debug` a client logs a lot."""


def refusal(settings: Mapping[str, Any], role: str) -> str:
    """Return why librdkafka refuses to make a client of this role from `settings`. Empty: it makes
    one."""
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
    """Return whether librdkafka was built with a feature. By its documentation, a client whose
    setting `builtin.features` names an absent feature is refused."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        AdminClient({"builtin.features": feature}, logger=_UNHEARD)
    except KafkaException:
        return False
    return True
