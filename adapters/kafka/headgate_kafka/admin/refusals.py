"""What brokers refuse before any request is heard: a login, a certificate. Java's clients give up
at once then (AuthenticationException and its subclasses); librdkafka goes on trying.

A broker that is away, or goes while somebody logs in, refuses nothing.
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
    '"status":"invalid_token"',  # too old, since there is no newer one; or wrong: it is not said
)
"""Texts in a failed login that stand for a broker's own trouble or an invalid token."""
_NO_TOKEN: Final = "Failed to acquire SASL OAUTHBEARER token: "
_TOKEN_REFUSED: Final = frozenset(
    {
        *("invalid_client", "invalid_grant", "invalid_request", "invalid_scope"),
        *("unauthorized_client", "unsupported_grant_type"),
    }
)
"""RFC 6749, 5.2."""
_VERIFY_FAILED = ("0A000086", "certificate verify failed", "CERTIFICATE_VERIFY_FAILED")
_ADVICE = re.compile(r": broker certificate could not be verified, verify that .*?\)")
"""Librdkafka's, which speaks of its own settings."""
_STATE = re.compile(r"\s*\(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)")


def refusal(error: KafkaError) -> str:
    """Text of librdkafka's complaint and what to do, if it is a refusal; else
    nothing."""
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
    """Whether an endpoint refuses to give a token; one that is away will be asked again. librdkafka
    hands on what the endpoint said, as a rule, and not the status."""
    try:
        answer = json.loads(answer_text)
    except ValueError:
        return False
    return isinstance(answer, dict) and answer.get("error") in _TOKEN_REFUSED


def tls_refusal(text: str) -> str:
    """As `refusal`, of what OpenSSL says in either library."""
    if any(sign in text for sign in _VERIFY_FAILED):
        return f"{text}; {TRUST_HINT}"
    if _ALERT.search(text):
        return f"{text}; {OWN_CERTIFICATE_HINT}"
    return ""
