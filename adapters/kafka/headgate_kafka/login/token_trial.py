"""A trial request for an OAUTHBEARER token, made before the first client with these settings."""

from collections.abc import Mapping
from typing import Any

from headgate_kafka.login.oauth_login import of_librdkafka


def try_for_token(settings: Mapping[str, Any]) -> None:
    """Request one token from the endpoint in librdkafka's settings, if they name one.

    librdkafka itself does not report which endpoint failed, or how. While an endpoint answers 5xx,
    librdkafka's client cannot be closed for 47 s (2.16.0).

    Raises:
        RefusedError: the endpoint refuses, or gives no token.
        TransportError: it does not answer, or fails for now.
    """
    login = of_librdkafka(settings)
    if login is not None:
        # Imported here, since it loads kafka-python and few workers log in this way.
        from headgate_kafka.login.oauth import ask

        ask(login)
