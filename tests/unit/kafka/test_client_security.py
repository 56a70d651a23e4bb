"""Logins in Java's properties become logins of the two Python clients. A refusal shows no
secret."""

import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from headgate_kafka.clients.settings import (
    ClientSettingsError,
    librdkafka,
    worker_kafka_python,
)
from headgate_kafka.clients.trial import built_with
from headgate_kafka.login import security

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required principal=connect;"


def sasl(mechanism: str, jaas: str, **more: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
        **more,
    }


def test_logins() -> None:
    scram = sasl("SCRAM-SHA-512", f"{SCRAM} required username='u' password=p;")
    made = librdkafka(scram, "consumer")
    Consumer({"group.id": "g", "log_level": "0", **made})
    assert (made["sasl.username"], made["sasl.password"]) == ("u", "p")
    oauth = sasl(
        "OAUTHBEARER",
        f'{OAUTH} required clientId="i" clientSecret="s" scope="a b";',
        **{"sasl.oauthbearer.token.endpoint.url": "https://login/token"},
    )
    made = librdkafka(oauth, "admin")
    assert made["sasl.oauthbearer.method"] == "oidc"
    assert made["sasl.oauthbearer.client.id"] == "i"
    AdminClient({"log_level": "0", **made})
    arguments = worker_kafka_python({**scram, "bootstrap.servers": "a:1, b:2"}, client_id="w")
    assert arguments["bootstrap_servers"] == ["a:1", "b:2"]
    assert arguments["sasl_plain_password"] == "p"
    assert arguments["ssl_context"].check_hostname


def test_librdkafka_says_what_it_was_built_with() -> None:
    assert built_with("sasl_scram")
    assert not built_with("no_such_feature")


@pytest.mark.parametrize(
    "given",
    [
        sasl("GSSAPI", KERBEROS),
        sasl("GSSAPI", f"{PLAIN} required;"),
        sasl("", KERBEROS),
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
    ],
)
def test_kerberos_is_refused_where_librdkafka_was_built_without(
    given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "built_with", lambda feature: feature != "sasl_gssapi")
    with pytest.raises(ClientSettingsError, match=r"GSSAPI \(Kerberos\) cannot be used") as caught:
        librdkafka(given, "producer")
    assert caught.value.key == "sasl.mechanism"
    librdkafka({**given, "security.protocol": "SSL"}, "producer")


def test_kerberos_needs_another_package_for_the_workers_own_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(security, "built_with", lambda feature: feature == "sasl_gssapi")
    given = sasl("GSSAPI", KERBEROS, **{"security.protocol": "SASL_PLAINTEXT"})
    made = librdkafka(given, "admin")
    assert (made["sasl.mechanism"], made["sasl.kerberos.principal"]) == ("GSSAPI", "connect")
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ClientSettingsError, match="need the package gssapi"):
        worker_kafka_python(given, client_id="w")
    there = ModuleType("gssapi")
    there.__spec__ = ModuleSpec("gssapi", None)
    monkeypatch.setitem(sys.modules, "gssapi", there)
    assert worker_kafka_python(given, client_id="w")["sasl_mechanism"] == "GSSAPI"


@pytest.mark.parametrize(
    ("given", "key", "text"),
    [
        (sasl("PLAIN", f"{PLAIN} required username=u;"), "sasl.jaas.config", "no option password"),
        (sasl("PLAIN", f"{PLAIN} required username=u"), "sasl.jaas.config", "ended by ;"),
        (
            sasl("PLAIN", f'{PLAIN} required password="secret;'),
            "sasl.jaas.config",
            "without its end",
        ),
        (
            sasl("PLAIN", f"{SCRAM} required password=secret;"),
            "sasl.jaas.config",
            "does not go with",
        ),
        (sasl("FOO", f"{PLAIN} required password=secret;"), "sasl.jaas.config", "does not go with"),
        ({"security.protocol": "SASL_SSL"}, "sasl.jaas.config", "is missing"),
        ({"security.protocol": "TLS"}, "security.protocol", "'TLS' is none of PLAINTEXT, SSL"),
        ({"linger.ms": "soon"}, "linger.ms", "'soon' is not a whole number"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/none.jks"},
            "ssl.truststore.location",
            "/none.jks cannot be read: No such file",
        ),
    ],
)
def test_refused_without_showing_a_secret(given: dict[str, str], key: str, text: str) -> None:
    with pytest.raises(ClientSettingsError, match=re.escape(text)) as caught:
        librdkafka({"producer.x": "", **given}, "producer")
    assert caught.value.key == key
    assert "secret" not in str(caught.value)
