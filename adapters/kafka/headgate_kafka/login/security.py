"""Logins and certificates of Kafka clients, from Java's properties, for librdkafka and
kafka-python.

Key and trust stores are read when a client is made, and passed on as PEM in memory. So a new client
uses what the files contain then. Passwords and keys appear in no message.

Source: SslConfigs, SaslConfigs, DefaultSslEngineFactory, KIP-651. Differs: Java refuses more
combinations of settings that exclude each other, such as a password for a store in PEM.
"""

import importlib.util
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from headgate_kafka.clients.trial import built_with
from headgate_kafka.login import pem
from headgate_kafka.login.jaas import JaasError, parse_jaas
from headgate_kafka.login.key_stores import Identity, StoreError, identity, trusted_certificates
from headgate_kafka.login.oauth_login import OAuthLogin, OAuthLoginError, oauth_login
from headgate_kafka.login.pem import PemError
from headgate_kafka.login.tls import client_context

Properties: TypeAlias = Mapping[str, str | None]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGINS = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    "com.sun.security.auth.module.Krb5LoginModule": ("GSSAPI",),
}


class ClientSettingsError(ValueError):
    """A client cannot be made from these properties. The message names the key, and no secret."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.key = key


@dataclass(frozen=True, slots=True)
class _Login:
    mechanism: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    kerberos: Mapping[str, str] | None = None
    oauth: OAuthLogin | None = None


@dataclass(frozen=True, slots=True)
class _Tls:
    trusted: str | None
    """Trusted certificates in PEM. None: those that the system trusts."""
    identity: Identity | None
    key_password: str | None = field(repr=False)
    """Password of the key in `identity`, if that may still be encrypted."""
    check_host: bool

    def librdkafka(self) -> dict[str, str | None]:
        who = self.identity
        return {
            "ssl.ca.pem": self.trusted,
            "ssl.certificate.pem": None if who is None else who.chain,
            "ssl.key.pem": None if who is None else who.key,
            "ssl.key.password": self.key_password,
            "ssl.endpoint.identification.algorithm": "https" if self.check_host else "none",
        }

    def context(self) -> ssl.SSLContext:
        """Return a TLS context for kafka-python.

        Raises:
            ClientSettingsError: a certificate or the key cannot be used.
        """
        try:
            context = client_context(self.trusted)
        except ssl.SSLError as error:
            raise _refused(
                "ssl.truststore", f"a certificate in it cannot be read: {error.reason or error}"
            ) from None
        context.check_hostname = self.check_host
        if self.identity is not None:
            try:
                _load_identity(context, self.identity, self.key_password)
            except ssl.SSLError as error:
                raise _refused(
                    "ssl.keystore",
                    f"key and certificate cannot be used ({error.reason or error}): is "
                    "ssl.key.password right, and is it the certificate of this key?",
                ) from None
        return context


def _load_identity(context: ssl.SSLContext, who: Identity, password: str | None) -> None:
    """Load a key and its certificates into a context.

    OpenSSL reads them from files only. The temporary files have no name, only descriptors of this
    process, and are gone when it ends. An empty password keeps OpenSSL from asking for one on the
    terminal.
    """
    with tempfile.TemporaryFile() as chain, tempfile.TemporaryFile() as key:
        for file, text in ((chain, who.chain), (key, who.key)):
            file.write(text.encode())
            file.seek(0)
        names = [f"/dev/fd/{file.fileno()}" for file in (chain, key)]
        context.load_cert_chain(names[0], names[1], password or "")


@dataclass(frozen=True, slots=True)
class Security:
    protocol: str
    """One of `PROTOCOLS`."""
    login: _Login | None
    tls: _Tls | None

    def librdkafka(self) -> dict[str, str]:
        settings: dict[str, str | None] = {"security.protocol": self.protocol.lower()}
        if self.login is not None:
            settings["sasl.mechanism"] = self.login.mechanism
            settings["sasl.username"] = self.login.username
            settings["sasl.password"] = self.login.password
            settings |= self.login.kerberos or {}
            if self.login.oauth is not None:
                settings |= self.login.oauth.librdkafka()
        if self.tls is not None:
            settings |= self.tls.librdkafka()
        return {key: value for key, value in settings.items() if value is not None}

    def kafka_python(self) -> dict[str, Any]:
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self.login is not None:
            settings["sasl_mechanism"] = self.login.mechanism
            settings["sasl_plain_username"] = self.login.username
            settings["sasl_plain_password"] = self.login.password
            if self.login.kerberos is not None:
                if importlib.util.find_spec("gssapi") is None:
                    raise ClientSettingsError(
                        "sasl.mechanism",
                        "GSSAPI (Kerberos): a worker's own clients need the package gssapi, which "
                        "is not installed",
                    )
                name = self.login.kerberos.get("sasl.kerberos.service.name")
                settings["sasl_kerberos_service_name"] = name
            if self.login.oauth is not None:
                # Imported here, since only the worker's own clients need it.
                from headgate_kafka.login.oauth import Tokens

                settings["sasl_oauth_token_provider"] = Tokens(self.login.oauth)
        if self.tls is not None:
            settings["ssl_context"] = self.tls.context()
        return {key: value for key, value in settings.items() if value is not None}


def security(properties: Properties) -> Security:
    """Return login and certificates from one client's properties, without prefixes.

    Raises:
        ClientSettingsError: a value cannot be used, or a file cannot be read.
    """
    protocol = (properties.get("security.protocol") or "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ClientSettingsError(
            "security.protocol", f"{protocol!r} is none of {', '.join(PROTOCOLS)}"
        )
    return Security(
        protocol,
        _login(properties) if protocol.startswith("SASL") else None,
        _tls(properties) if protocol.endswith("SSL") else None,
    )


# -- certificates --


def _tls(properties: Properties) -> _Tls:
    who, encrypted = _identity(properties)
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    return _Tls(
        _trusted(properties),
        who,
        properties.get("ssl.key.password") if encrypted else None,
        check_host=algorithm is None or bool(algorithm.strip()),
    )


def _trusted(properties: Properties) -> str | None:
    prefix, text_key = "ssl.truststore", "ssl.truststore.certificates"
    text = _text(properties, prefix, text_key)
    if text is not None:
        return _pem(text_key, "the value", pem.certificates, text)
    file = _location(properties, prefix)
    if file is None:
        return None
    data = _read(file, prefix)
    if _is_pem(properties, prefix):
        return _pem(f"{prefix}.location", file, pem.certificates, _decoded(data))
    try:
        return trusted_certificates(file, data, properties.get(f"{prefix}.password"))
    except StoreError as error:
        raise _refused(prefix, str(error)) from None


def _identity(properties: Properties) -> tuple[Identity | None, bool]:
    """Return the client's key and certificates, None if it has none, and whether the key may still
    be encrypted."""
    prefix = "ssl.keystore"
    chain_key, key_key = f"{prefix}.certificate.chain", f"{prefix}.key"
    chain, key = (_text(properties, prefix, name) for name in (chain_key, key_key))
    if chain is not None and key is not None:
        return Identity(
            _pem(key_key, "the value", pem.private_key, key),
            _pem(chain_key, "the value", pem.certificates, chain),
        ), True
    if chain is not None or key is not None:
        given, absent = (chain_key, key_key) if key is None else (key_key, chain_key)
        raise ClientSettingsError(given, f"is given without {absent}")
    file = _location(properties, prefix)
    if file is None:
        return None, False
    data = _read(file, prefix)
    if _is_pem(properties, prefix):
        where, text = f"{prefix}.location", _decoded(data)
        return Identity(
            _pem(where, file, pem.private_key, text), _pem(where, file, pem.certificates, text)
        ), True
    password = properties.get(f"{prefix}.password")
    if password is None:
        raise ClientSettingsError(f"{prefix}.password", f"is missing; {file} needs it")
    try:
        return identity(file, data, password, properties.get("ssl.key.password")), False
    except StoreError as error:
        raise _refused(prefix, str(error)) from None


def _text(properties: Properties, prefix: str, key: str) -> str | None:
    """Return PEM that is the value of a property itself. None: the property is not given."""
    text = properties.get(key)
    if text is None:
        return None
    if not _is_pem(properties, prefix):
        kind = properties.get(f"{prefix}.type") or "JKS, the default"
        raise ClientSettingsError(key, f"is for {prefix}.type=PEM only, and that is {kind}")
    if _location(properties, prefix) is not None:
        raise ClientSettingsError(key, f"and {prefix}.location are both given, expected one")
    return text


def _location(properties: Properties, prefix: str) -> str | None:
    return (properties.get(f"{prefix}.location") or "").strip() or None


def _is_pem(properties: Properties, prefix: str) -> bool:
    return (properties.get(f"{prefix}.type") or "JKS").strip().upper() == "PEM"


def _read(file: str, prefix: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise _refused(prefix, f"{file} cannot be read: {error.strerror}") from None


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _pem(key: str, where: str, part: Callable[[str], str], text: str) -> str:
    try:
        return part(text)
    except PemError as error:
        raise ClientSettingsError(key, f"{where} {error}") from None


def _refused(prefix: str, text: str) -> ClientSettingsError:
    return ClientSettingsError(f"{prefix}.location", text)


# -- logins --


def _login(properties: Properties) -> _Login:
    given = (properties.get("sasl.mechanism") or "").strip()
    if given == "GSSAPI":
        _check_kerberos()
    mechanism = given or "GSSAPI"  # as in Java
    text = properties.get("sasl.jaas.config")
    if text is None:
        raise ClientSettingsError(
            "sasl.jaas.config", f"is missing; {mechanism} needs it to know who logs in"
        )
    try:
        entry = parse_jaas(text)
    except JaasError as error:
        raise ClientSettingsError("sasl.jaas.config", str(error)) from None
    if mechanism not in _LOGINS.get(entry.module, ()):
        fitting = [name for name, mechanisms in _LOGINS.items() if mechanism in mechanisms]
        raise ClientSettingsError(
            "sasl.jaas.config",
            f"login module {entry.module} does not go with sasl.mechanism {mechanism}; expected "
            + (
                " or ".join(fitting)
                or "a mechanism of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI"
            ),
        )
    match mechanism:
        case "GSSAPI":
            _check_kerberos()
            return _Login(mechanism, kerberos=_kerberos(properties, entry.options))
        case "OAUTHBEARER":
            return _Login(mechanism, oauth=_oauth(properties, entry.options))
    for option in ("username", "password"):
        if option not in entry.options:
            raise ClientSettingsError("sasl.jaas.config", f"has no option {option}")
    return _Login(mechanism, entry.options["username"], entry.options["password"])


def _check_kerberos() -> None:
    if not built_with("sasl_gssapi"):
        raise ClientSettingsError(
            "sasl.mechanism",
            "GSSAPI (Kerberos) cannot be used: the librdkafka that is installed was built without "
            "it, as that in confluent-kafka's wheels is; expected PLAIN, SCRAM-SHA-256 or "
            "SCRAM-SHA-512, or a confluent-kafka that was built with it (docs/run/security.md)",
        )


def _kerberos(properties: Properties, options: Mapping[str, str]) -> dict[str, str]:
    given = {
        "sasl.kerberos.service.name": properties.get("sasl.kerberos.service.name")
        or options.get("serviceName"),
        "sasl.kerberos.principal": options.get("principal"),
        "sasl.kerberos.keytab": options.get("keyTab"),
        "sasl.kerberos.min.time.before.relogin": properties.get(
            "sasl.kerberos.min.time.before.relogin"
        ),
    }
    return {key: value for key, value in given.items() if value is not None}


def _oauth(properties: Properties, options: Mapping[str, str]) -> OAuthLogin:
    """Return the OAUTHBEARER login. As in Java, the login module's options name the certificates
    trusted for the token endpoint. The properties name those trusted for brokers."""
    for option in options:
        if option.startswith("ssl.keystore."):
            raise ClientSettingsError(
                "sasl.jaas.config",
                f"option {option}: to show the token endpoint a certificate of the client's own is "
                "not supported",
            )
    try:
        trusted = _trusted(options)
    except ClientSettingsError as error:
        raise ClientSettingsError("sasl.jaas.config", f"option {error}") from None
    try:
        return oauth_login(properties, options, trusted)
    except OAuthLoginError as error:
        raise ClientSettingsError(error.key, str(error)) from None
