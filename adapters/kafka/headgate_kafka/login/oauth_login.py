"""The parameters of an OAUTHBEARER login, from Java's properties, and as librdkafka's settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials.client"
_EXTENSION: Final = "extension_"


class OAuthLoginError(ValueError):
    """A parameter of the login is missing or not supported. The message names no secret."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(text)
        self.key = key


@dataclass(frozen=True, slots=True)
class OAuthLogin:
    """Client credentials and the endpoint that exchanges them for a token."""

    endpoint: str
    """An http or https URL."""
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    extensions: tuple[tuple[str, str], ...] = ()
    """SASL extensions, sent to brokers beside the token, such as ``logicalCluster``. Sorted."""

    trusted: str | None = field(default=None, repr=False)
    """Certificates in PEM that are trusted for an https endpoint. None: those that the system
    trusts."""

    def librdkafka(self) -> dict[str, str | None]:
        return {
            "sasl.oauthbearer.method": "oidc",
            ENDPOINT: self.endpoint,
            "sasl.oauthbearer.client.id": self.client_id,
            "sasl.oauthbearer.client.secret": self.client_secret,
            "sasl.oauthbearer.scope": self.scope,
            "sasl.oauthbearer.extensions": ",".join(f"{k}={v}" for k, v in self.extensions) or None,
            "https.ca.pem": self.trusted,
        }


def oauth_login(
    properties: Mapping[str, str | None], options: Mapping[str, str], trusted: str | None = None
) -> OAuthLogin:
    """Return the login that a client's properties describe.

    Args:
        properties: the client's properties, without prefixes.
        options: options of its login module. Properties override them.
        trusted: as in `OAuthLogin`.

    Raises:
        OAuthLoginError: a parameter is missing or not supported.
    """
    endpoint = (properties.get(ENDPOINT) or "").strip()
    if not endpoint:
        raise OAuthLoginError(
            ENDPOINT,
            "is missing; OAUTHBEARER asks there for tokens, by client credentials. Tokens without "
            "a signature, and those that a login callback handler of Java's makes, are not "
            "supported",
        )
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OAuthLoginError(ENDPOINT, f"{endpoint!r} is no http or https URL")
    return OAuthLogin(
        endpoint,
        _credential(properties, options, "id", "clientId"),
        _credential(properties, options, "secret", "clientSecret"),
        properties.get("sasl.oauthbearer.scope") or options.get("scope"),
        tuple(
            sorted(
                (key.removeprefix(_EXTENSION), value)
                for key, value in options.items()
                if key.startswith(_EXTENSION)
            )
        ),
        trusted,
    )


def of_librdkafka(settings: Mapping[str, Any]) -> OAuthLogin | None:
    """Return the OAUTHBEARER login in librdkafka's settings. None: they have another login."""
    endpoint = settings.get(ENDPOINT)
    if endpoint is None:
        return None
    extensions = settings.get("sasl.oauthbearer.extensions") or ""
    return OAuthLogin(
        endpoint,
        settings["sasl.oauthbearer.client.id"],
        settings["sasl.oauthbearer.client.secret"],
        settings.get("sasl.oauthbearer.scope"),
        tuple(tuple(each.split("=", 1)) for each in extensions.split(",") if each),
        settings.get("https.ca.pem"),
    )


def _credential(
    properties: Mapping[str, str | None], options: Mapping[str, str], what: str, option: str
) -> str:
    key = f"{_CREDENTIALS}.{what}"
    found = properties.get(key) or options.get(option)
    if not found:
        raise OAuthLoginError(
            key, f"is missing, and sasl.jaas.config has no option {option}; OAUTHBEARER needs it"
        )
    return found
