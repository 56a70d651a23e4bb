"""OAUTHBEARER logins with a token that an HTTP endpoint issues for a client's credentials.

librdkafka fetches its tokens itself. kafka-python takes a token on the thread of its connections.
That thread must not wait, because heartbeats go through it. So a thread of this module renews the
token before it expires, and the connections use the current one.

Source: KIP-768, KIP-1139, ClientCredentialsJwtRetriever, RFC 6749, 4.4. Differs: the lifetime of a
token is the endpoint's ``expires_in``, and the token's own claim only if that is missing. A token
is renewed after four fifths of its lifetime (Java's default). If that fails it is tried again every
few seconds. Not supported: tokens from files, assertions, unsigned tokens, and Java's callback
handlers.
"""

import base64
import contextlib
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import weakref
from collections.abc import Callable, Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple

from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider

from headgate.ports import RefusedError, TransportError
from headgate_kafka.admin.refusals import TOKEN_HINT
from headgate_kafka.login.oauth_login import OAuthLogin
from headgate_kafka.login.tls import client_context

ANSWER_S: Final = 10.0
RENEWED_AFTER: Final = 0.8
USED_UNTIL: Final = 0.95
"""Share of its lifetime for which a token is used. A broker's clock may be ahead, and brokers
refuse an expired token like a wrong one."""
AGAIN_S: Final = 5.0
_LIFE_S_MIN: Final = 1.0
_LIFE_S_MAX: Final = 86_400.0
"""Limit of the lifetime, in seconds. A token with a longer one is renewed as if it had this one."""
_SHOWN: Final = 200
_TRUST_HINT: Final = (
    "check the options ssl.truststore.location, .type and .password of the login module in "
    "sasl.jaas.config, by which its certificate is checked, or the name in "
    "sasl.oauthbearer.token.endpoint.url"
)
_PASSING: Final = frozenset({408, 425, 429})
"""HTTP statuses below 500 after which a request may succeed later."""


class Token(NamedTuple):
    text: str
    life_s: float


def ask(login: OAuthLogin) -> Token:
    """Request a new token.

    Raises:
        RefusedError: the endpoint refuses, or gives no token.
        TransportError: it does not answer, or fails for now.
    """
    credentials = base64.b64encode(f"{login.client_id}:{login.client_secret}".encode()).decode()
    asked = {"grant_type": "client_credentials"}
    if login.scope:
        asked["scope"] = login.scope
    request = urllib.request.Request(
        login.endpoint,
        urllib.parse.urlencode(asked).encode(),
        {
            "Authorization": f"Basic {credentials}",
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    context = _context(login)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=context) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:
        shown = ""
        with error, contextlib.suppress(OSError, HTTPException):
            shown = _shown(error.read())
        passes = error.code >= 500 or error.code in _PASSING
        hint = "" if passes else TOKEN_HINT
        raise _failure(login, f"answers {error.code}{shown}", hint) from None
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        hint = _TRUST_HINT if isinstance(reason, ssl.SSLCertVerificationError) else ""
        raise _failure(login, f"does not answer: {reason}", hint) from None
    return _token(login, body)


def _context(login: OAuthLogin) -> ssl.SSLContext | None:
    if urllib.parse.urlsplit(login.endpoint).scheme != "https":
        return None
    try:
        return client_context(login.trusted)
    except ssl.SSLError as error:
        what = f"cannot be checked: a certificate that is to be trusted cannot be read: {error}"
        raise _failure(login, what, _TRUST_HINT) from None


def _token(login: OAuthLogin, body: bytes) -> Token:
    """Return the token in an endpoint's response."""
    try:
        answer: Any = json.loads(body)
    except ValueError:
        answer = None
    text = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise _failure(login, "answers 200, but no JSON with an access_token", TOKEN_HINT)
    life_s = answer.get("expires_in")
    if not isinstance(life_s, int | float | str):
        life_s = _life_of(text)
    try:
        # With `max` in this order NaN, which JSON may have, becomes the least lifetime.
        return Token(text.strip(), min(max(_LIFE_S_MIN, float(life_s)), _LIFE_S_MAX))
    except (OverflowError, TypeError, ValueError):
        raise _failure(login, "does not say how long its token lives", TOKEN_HINT) from None


def _life_of(text: str) -> float | None:
    """Return the remaining lifetime of a token by its own claim, in seconds. None: it is no JWT, or
    has no such claim."""
    try:
        part = text.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return float(claims["exp"]) - time.time()
    except (IndexError, KeyError, OverflowError, TypeError, ValueError):
        return None


def _shown(body: bytes) -> str:
    """Return the error in an endpoint's response, by RFC 6749, 5.2, as text. Empty: it has none."""
    try:
        answer = json.loads(body)
        parts = [answer.get("error"), answer.get("error_description")]
    except (AttributeError, ValueError):
        return ""
    shown = ", ".join(part for part in parts if isinstance(part, str))[:_SHOWN]
    return f" ({shown})" if shown else ""


def _failure(login: OAuthLogin, what: str, hint: str) -> TransportError:
    """Make the error of a failed request.

    Args:
        hint: what to do. Empty if the failure may pass by itself.
    """
    text = f"no token for client {login.client_id}: the endpoint {login.endpoint} {what}"
    return RefusedError(f"{text}; {hint}") if hint else TransportError(text)


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """The token provider of one kafka-python client. Its thread ends when this object is no longer
    referenced."""

    def __init__(
        self,
        login: OAuthLogin,
        asked: Callable[[OAuthLogin], Token] = ask,
        again_s: float = AGAIN_S,
    ) -> None:
        """
        Args:
            asked: requests a token.
            again_s: pause, in seconds, before the next request after a failure.
        """
        super().__init__()
        self._login = login
        self._ask = asked
        self._again_s = again_s
        self._text = ""
        self._ends_at = 0.0
        self._failure: TransportError | None = None

    def token(self) -> str:
        """Return the current token. Only the first call waits for the endpoint, when no other
        connection depends on this thread yet.

        Raises:
            SaslAuthenticationFailedError: the endpoint refuses, and the last token has expired.
            KafkaConnectionError: the endpoint does not answer, and the last token has expired.
        """
        if not self._text:
            try:
                renewed_in_s = self._take()
            except TransportError as error:
                raise _for_connections(error) from None
            over = threading.Event()
            weakref.finalize(self, over.set)
            threading.Thread(
                target=_keep_renewed,
                args=(weakref.ref(self), over, renewed_in_s),
                name="headgate-oauth",
                daemon=True,
            ).start()
        if time.monotonic() >= self._ends_at and self._failure is not None:
            raise _for_connections(self._failure)
        return self._text

    def extensions(self) -> Mapping[str, str]:
        return dict(self._login.extensions)

    def renew(self) -> float:
        """Request a new token. Return in how many seconds to call this again."""
        try:
            return self._take()
        except TransportError as error:
            self._failure = error
            return self._again_s

    def _take(self) -> float:
        asked_at = time.monotonic()
        text, life_s = self._ask(self._login)
        self._text, self._ends_at, self._failure = text, asked_at + life_s * USED_UNTIL, None
        return life_s * RENEWED_AFTER


def _for_connections(failure: TransportError) -> Exception:
    """Return kafka-python's exception for a failure. It has one for a refusal and another for a
    failure that may pass."""
    if isinstance(failure, RefusedError):
        return SaslAuthenticationFailedError(str(failure))  # type: ignore[no-any-return]
    return KafkaConnectionError(str(failure))  # type: ignore[no-any-return]


def _keep_renewed(ref: "weakref.ref[Tokens]", over: threading.Event, renewed_in_s: float) -> None:
    while not over.wait(renewed_in_s):
        tokens = ref()
        if tokens is None:
            return
        renewed_in_s = tokens.renew()
        del tokens
