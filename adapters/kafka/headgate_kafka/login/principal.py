"""Whom brokers take a client for, as far as its settings tell: for messages on missing rights."""

from collections.abc import Mapping
from typing import Any


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


def _principal(user: str | None, mechanism: str | None, *, tls: bool) -> str:
    if user:
        return f"User:{user}"
    if mechanism:
        return f"the principal that logs in by {mechanism}"
    if tls:
        return "the principal of the client's certificate (User:ANONYMOUS without one)"
    return "User:ANONYMOUS"
