"""What brokers refuse before any request is heard: a login, a certificate. Java's clients give up
at once then (AuthenticationException and its subclasses); librdkafka goes on trying.

A broker that is away, or goes while somebody logs in, refuses nothing.
"""

import re
from typing import Final

from confluent_kafka import KafkaError

LOGIN_HINT: Final = (
    "check name and password in sasl.jaas.config, sasl.mechanism, and the users that the brokers "
    "have"
)
TRUST_HINT: Final = (
    "its certificate is not signed by one that ssl.truststore.location has, or it is for another "
    "name than that of this address (ssl.endpoint.identification.algorithm, empty for any name)"
)
OWN_CERTIFICATE_HINT: Final = (
    "check the client's certificate: ssl.keystore.location, and what the brokers trust"
)
_ALERT = re.compile(r"alert number \d+|TLSV\d+_ALERT|SSLV3_ALERT|\balert (?!close)", re.IGNORECASE)
_VERIFY_FAILED = ("0A000086", "certificate verify failed", "CERTIFICATE_VERIFY_FAILED")
_ADVICE = re.compile(r": broker certificate could not be verified, verify that .*?\)")
"""Librdkafka's, which speaks of its own settings."""
_STATE = re.compile(r"\s*\(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)")


def refusal(error: KafkaError) -> str:
    """Of what librdkafka complains about: what was said and what to do, if it is a refusal; else
    nothing."""
    text = _STATE.sub("", error.str()).rstrip(".: ")
    if error.code() == KafkaError._AUTHENTICATION:
        if "handshake failed: Local:" in text:
            return ""  # the connection ended meanwhile
        return f"{text}; {LOGIN_HINT}"
    if error.code() == KafkaError._SSL or "SSL" in text:
        return tls_refusal(_ADVICE.sub("", text))
    return ""


def tls_refusal(text: str) -> str:
    """As `refusal`, of what OpenSSL says in either library."""
    if any(sign in text for sign in _VERIFY_FAILED):
        return f"{text}; {TRUST_HINT}"
    if _ALERT.search(text):
        return f"{text}; {OWN_CERTIFICATE_HINT}"
    return ""
