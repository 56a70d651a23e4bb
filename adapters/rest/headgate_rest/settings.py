"""Connect's worker settings of the REST server. Source: `RestServerConfig`, `RestServer`.

Differs: for TLS, key and certificates are read from PEM files. Java's own stores are refused, with
advice. A listener on all addresses is advertised with this machine's address and not with
``0.0.0.0``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate_rest.limits import Limits
from headgate_rest.signature import DIGESTS

LISTENER: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
HEADER_ACTIONS: Final = ("set", "add", "setDate", "addDate")
EVERYWHERE: Final = ("", "0.0.0.0", "::")
FRONT_PROCESS: Final = "headgate.rest.front.process"


@dataclass(frozen=True, slots=True)
class Listener:
    scheme: str
    host: str
    """Host name or address. Empty: all addresses."""
    port: int
    """Port. 0: any free one."""


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """A rule of `response.http.headers.config`, which is applied to every answer."""

    action: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings. The files are in PEM."""

    certificate: str = ""
    """`ssl.keystore.location`: file with the private key and its chain of certificates."""
    password: str | None = None
    """`ssl.key.password`: password of the private key."""
    trusted: str = ""
    """`ssl.truststore.location`: file with the trusted certificates."""
    client_auth: str = "none"
    """`ssl.client.auth`: none, requested or required."""


@dataclass(frozen=True, slots=True)
class RestSettings:
    listeners: tuple[Listener, ...]
    admin_listeners: tuple[Listener, ...] | None = None
    """Listeners of `/admin`. None: `listeners` serve it too. Empty: it is not served."""
    advertised_host: str | None = None
    advertised_port: int | None = None
    advertised_scheme: str | None = None
    allow_origin: str = ""
    allow_methods: str = ""
    headers: tuple[HeaderRule, ...] = ()
    signature_algorithm: str = "HmacSHA256"
    verification_algorithms: tuple[str, ...] = ("HmacSHA256",)
    tls: TlsSettings = field(default_factory=TlsSettings)
    admin_tls: TlsSettings = field(default_factory=TlsSettings)
    request_timeout_ms: int = 90_000
    """Time limit of a request. It is fixed in Connect."""
    limits: Limits = field(default_factory=Limits)
    front_process: bool = True
    """Whether a separate process accepts connections and answers `/health`."""

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "RestSettings":
        """Return the settings in the worker's properties.

        Raises:
            ValueError: a value is wrong. The message says which key, what was seen and what was
                expected.
        """
        listeners = _listeners("listeners", texts.get("listeners", "http://:8083"))
        admin = texts.get("admin.listeners")
        admin_listeners = None if admin is None else _listeners("admin.listeners", admin)
        advertised = texts.get("rest.advertised.listener") or None
        if advertised is not None and advertised.lower() not in ("http", "https"):
            raise _invalid("rest.advertised.listener", advertised, "expected http or https")
        verification = tuple(
            map(_algorithm, _list(texts.get("inter.worker.verification.algorithms", "HmacSHA256")))
        )
        signature = _algorithm(texts.get("inter.worker.signature.algorithm", "HmacSHA256"))
        _check_algorithms(signature, verification)
        return cls(
            listeners=listeners,
            admin_listeners=admin_listeners,
            advertised_host=texts.get("rest.advertised.host.name") or None,
            advertised_port=_port(texts),
            advertised_scheme=None if advertised is None else advertised.lower(),
            allow_origin=texts.get("access.control.allow.origin", "").strip(),
            allow_methods=texts.get("access.control.allow.methods", "").strip(),
            headers=header_rules(texts.get("response.http.headers.config", "")),
            signature_algorithm=signature,
            verification_algorithms=verification,
            tls=_tls(texts, "listeners", listeners),
            admin_tls=_tls(texts, "admin.listeners", admin_listeners or ()),
            limits=Limits.of(texts),
            front_process=_boolean(FRONT_PROCESS, texts.get(FRONT_PROCESS, "true")),
        )


def advertised_url(settings: RestSettings, ports: Mapping[Listener, int], own_address: str) -> str:
    """Return the URL under which other workers reach this one. Source: `RestServer.advertisedUrl`.

    Args:
        ports: the actual port of each listener.
        own_address: this machine's address, for listeners on all addresses.
    """
    schemes = [listener.scheme for listener in settings.listeners]
    scheme = settings.advertised_scheme or ("http" if "http" in schemes else "https")
    listener = next((each for each in settings.listeners if each.scheme == scheme), None)
    host = settings.advertised_host or (listener.host if listener else "")
    if host in EVERYWHERE:
        host = own_address
    if ":" in host:
        host = f"[{host}]"
    port = settings.advertised_port or (ports[listener] if listener else 8083)
    return f"{scheme}://{host}:{port}/"


def header_rules(text: str) -> tuple[HeaderRule, ...]:
    """Parse rules such as ``add Cache-Control: no-cache, set X: y``. A rule that contains a comma
    must be in quotes.

    Raises:
        ValueError: a rule is wrong.
    """
    rules: list[HeaderRule] = []
    for part in re.findall(r'\s*("[^"]*"|[^,"]+)\s*(?:,|$)', text):
        rule = part.strip().strip('"').strip()
        found = re.fullmatch(r"(\S+)\s+([^:\s]+)\s*:\s*(.*)", rule)
        if found is None or found[1] not in HEADER_ACTIONS:
            wanted = f"'[action] [header name]:[header value]', action one of {HEADER_ACTIONS}"
            raise _invalid("response.http.headers.config", rule, f"expected {wanted}")
        if found[1].endswith("Date") and not re.fullmatch(r"-?\d+", found[3].strip(), re.ASCII):
            wanted = f"{found[1]} takes milliseconds from now"
            raise _invalid("response.http.headers.config", rule, wanted)
        rules.append(HeaderRule(found[1], found[2], found[3].strip()))
    return tuple(rules)


def _listeners(key: str, text: str) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for item in _list(text):
        found = LISTENER.fullmatch(item)
        if found is None:
            wanted = "Listener doesn't have the right format (protocol://hostname:port)."
            raise _invalid(key, item, wanted)
        scheme = found[1].lower()
        if scheme not in ("http", "https"):
            raise _invalid(key, item, 'Listener protocol must be either "http" or "https".')
        if not 0 <= int(found[3]) < 65_536:
            raise _invalid(key, item, "expected a port from 0 (any that is free) to 65535")
        listeners.append(Listener(scheme, found[2], int(found[3])))
    if not listeners and key == "listeners":
        raise _invalid(key, text, "expected at least one, such as http://:8083")
    return tuple(listeners)


def _port(texts: Mapping[str, str]) -> int | None:
    text = texts.get("rest.advertised.port", "").strip()
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise _invalid("rest.advertised.port", text, "expected a port from 1 to 65535")
    return int(text)


def _boolean(key: str, text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise _invalid(key, text, "expected true or false")
    return found


def _algorithm(name: str) -> str:
    """Return the algorithm's name as in `DIGESTS`, since Java ignores its case."""
    return next((known for known in DIGESTS if known.lower() == name.strip().lower()), name)


def _check_algorithms(signature: str, verification: tuple[str, ...]) -> None:
    for key, names in (
        ("inter.worker.signature.algorithm", (signature,)),
        ("inter.worker.verification.algorithms", verification),
    ):
        for name in names:
            if name not in DIGESTS:
                raise _invalid(key, name, f"expected one of {', '.join(DIGESTS)}")
    if signature not in verification:
        raise ValueError(
            f"inter.worker.signature.algorithm ({signature}) must be one of "
            f"inter.worker.verification.algorithms ({', '.join(verification)})"
        )


def _tls(texts: Mapping[str, str], prefix: str, listeners: tuple[Listener, ...]) -> TlsSettings:
    """Return the TLS settings of listeners that need them. Keys with the listeners' prefix, such as
    ``listeners.https.``, override those without, which the Kafka clients use too."""
    if "https" not in {each.scheme for each in listeners}:
        return TlsSettings()

    def setting(key: str, default: str = "") -> str:
        return texts.get(f"{prefix}.https.{key}", texts.get(key, default)).strip()

    if not setting("ssl.keystore.location"):
        raise ValueError(
            f"{prefix} has https, but ssl.keystore.location is not set: name a PEM file with the "
            "private key and its certificates"
        )
    for store in ("ssl.keystore", "ssl.truststore"):
        kind = setting(f"{store}.type", "JKS")
        if setting(f"{store}.location") and kind.upper() != "PEM":
            raise _invalid(
                f"{store}.type",
                kind,
                "the REST server reads PEM files. Export the store with keytool and openssl, name "
                f"the file in {store}.location and set {store}.type=PEM",
            )
    client_auth = setting("ssl.client.auth", "none").lower()
    if client_auth not in ("none", "requested", "required"):
        raise _invalid("ssl.client.auth", client_auth, "expected none, requested or required")
    return TlsSettings(
        certificate=setting("ssl.keystore.location"),
        password=setting("ssl.key.password") or setting("ssl.keystore.password") or None,
        trusted=setting("ssl.truststore.location"),
        client_auth=client_auth,
    )


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _invalid(key: str, value: str, message: str) -> ValueError:
    return ValueError(f"Invalid value {value} for configuration {key}: {message}")
