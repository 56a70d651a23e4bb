"""The principal as which brokers see a client, as far as its settings tell. It is for messages
about missing permissions."""

import shlex
from collections.abc import Mapping
from typing import Any, Final

_OPTIONS: Final = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--transactional-id",
}


def of_librdkafka(settings: Mapping[str, Any]) -> str:
    sasl = "SASL" in str(settings.get("security.protocol", "")).upper()
    return _principal(
        settings.get("sasl.username"),
        settings.get("sasl.mechanism", "SASL") if sasl else None,
        tls=any(key.startswith(("ssl.certificate", "ssl.keystore")) for key in settings),
    )


def of_kafka_python(settings: Mapping[str, Any]) -> str:
    return _principal(
        settings.get("sasl_plain_username"),
        settings.get("sasl_mechanism"),
        tls=bool(settings.get("ssl_certfile") or settings.get("ssl_context")),
    )


def grant(principal: str, operation: str, kind: str, name: str, servers: str) -> str:
    """Return the command that grants `principal` a permission. If the settings do not tell the
    principal's name, the reader has to fill it in."""
    user = principal if principal.startswith("User:") else "User:..."
    words = ["kafka-acls", "--bootstrap-server", servers, "--add", "--allow-principal", user]
    return shlex.join([*words, "--operation", operation, _OPTIONS[kind], name])


def _principal(user: str | None, mechanism: str | None, *, tls: bool) -> str:
    if user:
        return f"User:{user}"
    if mechanism:
        return f"the principal that logs in by {mechanism}"
    if tls:
        return "the principal of the client's certificate (User:ANONYMOUS without one)"
    return "User:ANONYMOUS"
