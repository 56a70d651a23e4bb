"""Recognition of refused logins and certificates, which come before any request.

Java's clients give up at once then (AuthenticationException and its subclasses). librdkafka goes on
trying. A broker that is away, or goes away during a login, does not count as refusing.
"""

import json
import re
from typing import Final

from confluent_kafka import KafkaError

LOGIN_HINT: Final = (
    "check name and password in sasl.jaas.config, sasl.mechanism, and the users that the brokers "
    "have"
)
TOKEN_HINT: Final = (
    "check clientId, clientSecret and scope in sasl.jaas.config, and "
    "sasl.oauthbearer.token.endpoint.url"
)
TRUST_HINT: Final = (
    "its certificate is not signed by one that ssl.truststore.location has, or it is for another "
    "name than that of this address (ssl.endpoint.identification.algorithm, empty for any name)"
)
OWN_CERTIFICATE_HINT: Final = (
    "check the client's certificate: ssl.keystore.location, and what the brokers trust"
)
_ALERT = re.compile(r"alert number \d+|TLSV\d+_ALERT|SSLV3_ALERT|\balert (?!close)", re.IGNORECASE)
_PASSING: Final = (
    "handshake failed: Local:",  # the connection ended meanwhile
    "Request not valid in current SASL state",  # a session ended before it was renewed
    '"status":"invalid_token"',  # expired before a newer one came, or wrong: brokers do not say
)
"""Texts of failed logins that may succeed later: the broker had trouble, or the token expired."""
_NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token: "
_TOKEN_REFUSED: Final = frozenset(
    {
        *("invalid_client", "invalid_grant", "invalid_request", "invalid_scope"),
        *("unauthorized_client", "unsupported_grant_type"),
    }
)
"""Error codes with which a token endpoint refuses for good. Source: RFC 6749, 5.2."""
_VERIFY_FAILED = ("0A000086", "certificate verify failed", "CERTIFICATE_VERIFY_FAILED")
_ADVICE = re.compile(r": broker certificate could not be verified, verify that .*?\)")
"""librdkafka's advice, which names its own settings and is left out."""
_STATE = re.compile(r"\s*\(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)")


def refusal(error: KafkaError) -> str:
    """Return librdkafka's text and what to do about it, if the error is a refusal. Otherwise
    empty."""
    text = _STATE.sub("", error.str()).rstrip(".: ")
    if error.code() == KafkaError._AUTHENTICATION:
        if any(sign in text for sign in _PASSING):
            return ""
        _, no_token, answer_text = text.partition(_NO_TOKEN)
        if no_token:
            return f"{text}; {TOKEN_HINT}" if _token_refused(answer_text) else ""
        return f"{text}; {LOGIN_HINT}"
    if error.code() == KafkaError._SSL or "SSL" in text:
        return tls_refusal(_ADVICE.sub("", text))
    return ""


def _token_refused(answer_text: str) -> bool:
    """Return whether a token endpoint refuses to give a token. If it is only away it is asked
    again. librdkafka usually hands on the endpoint's answer, but not its HTTP status."""
    try:
        answer = json.loads(answer_text)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("error") in _TOKEN_REFUSED


def tls_refusal(text: str) -> str:
    """As `refusal`, for an error text of OpenSSL, from librdkafka or kafka-python."""
    if any(sign in text for sign in _VERIFY_FAILED):
        return f"{text}; {TRUST_HINT}"
    if _ALERT.search(text):
        return f"{text}; {OWN_CERTIFICATE_HINT}"
    return ""
