"""librdkafka's messages tell a broker that refuses a login from one that is away. The texts are
from a broker."""

import pytest
from confluent_kafka import KafkaError

from headgate.ports import RefusedError, TransportError
from headgate_kafka.admin.refusals import (
    LOGIN_HINT,
    OWN_CERTIFICATE_HINT,
    TOKEN_HINT,
    TRUST_HINT,
    refusal,
    tls_refusal,
)
from headgate_kafka.failures import Contact

AT = "sasl_ssl://127.0.0.1:27496/bootstrap"
PASSWORD = KafkaError(
    KafkaError._AUTHENTICATION,
    f"{AT}: SASL authentication error: Authentication failed during authentication due to invalid "
    "credentials with SASL mechanism SCRAM-SHA-256 (after 326ms in state AUTH_REQ, 4 identical "
    "error(s) suppressed)",
)
NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "
AWAY = KafkaError(
    KafkaError._TRANSPORT,
    f"{AT}: Connect to ipv4#127.0.0.1:20676 failed: Connection refused (after 0ms in state "
    "CONNECT)",
)
UNTRUSTED = KafkaError(
    KafkaError._SSL,
    f"{AT}: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker "
    "certificate could not be verified, verify that ssl.ca.location is correctly configured or "
    "root CA certificates are installed (install ca-certificates package) (after 10ms in state "
    "SSL_HANDSHAKE)",
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PASSWORD,
            f"{AT}: SASL authentication error: Authentication failed during authentication due to "
            f"invalid credentials with SASL mechanism SCRAM-SHA-256; {LOGIN_HINT}",
        ),
        (
            KafkaError(
                KafkaError._AUTHENTICATION,
                f"{AT}: SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Unsupported SASL "
                "mechanism: broker's supported mechanisms: PLAIN,SCRAM-SHA-256 (after 303ms in "
                "state AUTH_HANDSHAKE)",
            ),
            f"{AT}: SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Unsupported SASL "
            f"mechanism: broker's supported mechanisms: PLAIN,SCRAM-SHA-256; {LOGIN_HINT}",
        ),
        (
            KafkaError(KafkaError._AUTHENTICATION, f'{NO_TOKEN}{{"error": "invalid_client"}}'),
            f'{NO_TOKEN}{{"error": "invalid_client"}}; {TOKEN_HINT}',
        ),
        (
            UNTRUSTED,
            f"{AT}: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed; "
            + TRUST_HINT,
        ),
        (
            KafkaError(
                KafkaError._TRANSPORT,
                "ssl://127.0.0.1:24388/bootstrap: Receive failed: error:0A000412:SSL routines::"
                "ssl/tls alert bad certificate: SSL alert number 42 (after 2ms in state "
                "APIVERSION_QUERY)",
            ),
            "ssl://127.0.0.1:24388/bootstrap: Receive failed: error:0A000412:SSL routines::ssl/tls "
            f"alert bad certificate: SSL alert number 42; {OWN_CERTIFICATE_HINT}",
        ),
        (AWAY, ""),
        (
            KafkaError(
                KafkaError._TRANSPORT,
                f"{AT}: SSL handshake failed: Disconnected: SSL connection closed by peer: "
                "connecting to a PLAINTEXT broker listener? (after 5ms in state SSL_HANDSHAKE)",
            ),
            "",
        ),
        (
            KafkaError(
                KafkaError._AUTHENTICATION,
                f"{AT}: SASL PLAIN mechanism handshake failed: Local: Broker transport failure: "
                "broker's supported mechanisms: (n/a) (after 9ms in state AUTH_HANDSHAKE)",
            ),
            "",
        ),
        (
            KafkaError(
                KafkaError._AUTHENTICATION,
                f"{AT}: SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in "
                "current SASL state: broker's supported mechanisms:",
            ),
            "",
        ),
        (
            KafkaError(
                KafkaError._AUTHENTICATION,
                f'{AT}: SASL authentication error: {{"status":"invalid_token"}} (after 3ms in '
                "state AUTH_REQ)",
            ),
            "",
        ),
        *[
            (KafkaError(KafkaError._AUTHENTICATION, f"{NO_TOKEN}{said}"), "")
            for said in (
                "Failed to connect to 127.0.0.1:28846 after 0 ms: Could not connect to server",
                '{"error": "temporarily_unavailable"}',
                "{}",
                "[]",
            )
        ],
    ],
)
def test_a_refusal_is_told_from_an_absence(error: KafkaError, said: str) -> None:
    assert refusal(error) == said


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname"
            " mismatch, certificate is not valid for 'localhost'. (_ssl.c:1006)",
            TRUST_HINT,
        ),
        ("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate", OWN_CERTIFICATE_HINT),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert", OWN_CERTIFICATE_HINT),
        ("KafkaConnectionError: socket disconnected", ""),
        ("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol", ""),
    ],
)
def test_what_python_says_of_tls(text: str, hint: str) -> None:
    assert tls_refusal(text) == (f"{text}; {hint}" if hint else "")


def test_what_a_client_heard_last_decides() -> None:
    contact = Contact({"bootstrap.servers": "127.0.0.1:27496"}, warn=lambda _line: None)
    hear = contact.settings["error_cb"]
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
    for error in (PASSWORD, down):
        hear(error)
    found = contact.error("'t' could not be read", KafkaError(KafkaError._TIMED_OUT))
    assert isinstance(found, RefusedError)
    assert str(found).startswith("'t' could not be read at 127.0.0.1:27496: sasl_ssl://127.0.0.1")
    assert LOGIN_HINT in str(found)
    hear(AWAY)
    found = contact.error("'t' could not be read", KafkaError(KafkaError._TIMED_OUT))
    assert type(found) is TransportError
