"""One try to log in by OAUTHBEARER, made before the first client with these settings exists."""

from collections.abc import Mapping
from typing import Any

from headgate_kafka.login.oauth_login import of_librdkafka


def try_for_token(settings: Mapping[str, Any]) -> None:
    """Asks the token endpoint of these settings of librdkafka once, if they name one.

    librdkafka tells neither which endpoint failed nor how. While an endpoint answers 5xx, its
    client cannot be closed for 47 s (2.16.0).

    Raises:
        RefusedError: the endpoint refuses, or gives no token.
        TransportError: it does not answer, or cannot now.
    """
    login = of_librdkafka(settings)
    if login is not None:
        # Imported here, since it loads kafka-python and few workers log in this way.
        from headgate_kafka.login.oauth import ask

        ask(login)
