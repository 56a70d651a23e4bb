"""The client of a schema registry with a REST API. It uses Confluent's own client."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
)

from headgate.connector.config import ConfigError
from headgate.connector.registry_converters import URL
from headgate.connector.schema_registry import (
    AVRO,
    Reference,
    RegisteredSchema,
    RegistryUnreachableError,
    SchemaRefusedError,
    SchemaVersion,
    UnknownSchemaError,
)

_T = TypeVar("_T")
_SSL: Final = "schema.registry.ssl."
_TRUST: Final = _SSL + "truststore.location"
_KEYS: Final = _SSL + "keystore.location"
_USER_INFO: Final = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")


class RemoteRegistry:
    """A `SchemaRegistry` over HTTP. Its client caches up to ``max.schemas.per.subject`` schemas."""

    def __init__(self, parsed: Mapping[str, Any]) -> None:
        """
        Args:
            parsed: the parsed config of a `RegistryConverter`.

        Raises:
            ConfigError: an address, or the value of another key, cannot be used.
        """
        urls, user_info = _addresses(parsed)
        self._shown = ", ".join(urls)
        self._normalize: bool = parsed["normalize.schemas"]
        settings: dict[str, Any] = {
            "url": ",".join(urls),
            "timeout": parsed["schema.registry.request.timeout.ms"] / 1000,
            "max.retries": parsed["max.retries"],
            "cache.capacity": parsed["max.schemas.per.subject"],
        }
        if user_info:
            settings["basic.auth.user.info"] = user_info
        settings.update(_tls(parsed))
        try:
            self._client = SchemaRegistryClient(settings)
        except Exception as error:  # OSError, ssl.SSLError, ValueError: a file or an address
            text = _without(f"{error}", user_info)
            raise ConfigError.of(URL, self._shown, f"cannot be used: {text}") from None

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        sent = _sent(schema)
        return self._call(
            f"subject {subject}",
            lambda: self._client.register_schema(subject, sent, self._normalize),
        )

    def find(self, subject: str, schema: RegisteredSchema) -> int:
        sent = _sent(schema)
        found = self._call(
            f"subject {subject}",
            lambda: self._client.lookup_schema(subject, sent, self._normalize),
        )
        return _version(found).id

    def latest(self, subject: str) -> SchemaVersion:
        found = self._call(f"subject {subject}", lambda: self._client.get_latest_version(subject))
        return _version(found)

    def version(self, subject: str, version: int) -> SchemaVersion:
        found = self._call(
            f"version {version} of subject {subject}",
            lambda: self._client.get_version(subject, version),
        )
        return _version(found)

    def by_id(self, schema_id: int) -> RegisteredSchema:
        return _received(
            self._call(f"schema id {schema_id}", lambda: self._client.get_schema(schema_id))
        )

    def _call(self, what: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except SchemaRegistryError as error:
            raise self._translated(what, error) from None
        except Exception as error:  # whatever its HTTP client raises
            advice = _of_certificates(error) or f"see that it runs and that {URL} is right"
            raise RegistryUnreachableError(
                f"the schema registry {self._shown} does not answer ({type(error).__name__}: "
                f"{error}); no record is lost: {advice}, then restart the task"
            ) from error

    def _translated(self, what: str, error: SchemaRegistryError) -> Exception:
        status, reason = error.http_status_code, error.error_message
        where = f"the schema registry {self._shown}"
        if status in (409, 422):
            return SchemaRefusedError(f"{where} refuses the schema of {what}: {reason}")
        if status == 404:
            return UnknownSchemaError(f"{where} does not know {what}: {reason}")
        if status in (401, 403):
            return RegistryUnreachableError(
                f"{where} refuses the user ({status}) for {what}: check basic.auth.user.info and "
                "the user's rights, then restart the task"
            )
        return RegistryUnreachableError(
            f"{where} answers {status} for {what}: {reason}; no record is lost: restart the task "
            "when the registry is well"
        )


def _addresses(parsed: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """Return the addresses without user and password, and ``user:password`` or None."""
    urls: list[str] = []
    in_url: str | None = None
    for text in parsed[URL]:
        parts = urlsplit(text.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            shown = parts.hostname or "an address"
            raise ConfigError.of(
                URL, shown, "expected http://host:port or https://host:port, or embedded:"
            )
        if parts.username is not None:
            in_url = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        urls.append(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    if parsed["basic.auth.credentials.source"].upper() == "URL":
        return urls, in_url
    given = next((parsed[key] for key in _USER_INFO if parsed[key] is not None), None)
    if given is None or ":" not in given.value:
        raise ConfigError.of(
            _USER_INFO[0],
            "[hidden]" if given else None,
            "expected user:password, since basic.auth.credentials.source is USER_INFO",
        )
    return urls, str(given.value)


def _tls(parsed: Mapping[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key in (_TRUST, _KEYS):
        if parsed[key] and not Path(parsed[key]).is_file():
            raise ConfigError.of(key, parsed[key], "there is no such file, expected one in PEM")
    if parsed[_TRUST]:
        settings["ssl.ca.location"] = parsed[_TRUST]
    if keys := parsed[_KEYS]:
        settings["ssl.certificate.location"] = settings["ssl.key.location"] = keys
    if (password := parsed[_SSL + "key.password"]) is not None:
        settings["ssl.key.password"] = password.value
    return settings


def _of_certificates(error: Exception) -> str:
    """Return advice if one side does not trust the other's certificate. Empty: the error has
    another cause."""
    text = str(error).upper()
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return (
            "its certificate is not of an authority that is trusted, or is for another host: set "
            f"{_TRUST} to a PEM file with its authority"
        )
    if "ALERT" in text and any(word in text for word in ("CERTIFICATE", "UNKNOWN_CA")):
        return (
            "it does not take the client's certificate: set "
            f"{_KEYS} to a PEM file with a key and a certificate that it trusts"
        )
    return ""


def _without(text: str, user_info: str | None) -> str:
    return text.replace(user_info, "[hidden]") if user_info else text


def _sent(schema: RegisteredSchema) -> Schema:
    references = [
        SchemaReference(name=one.name, subject=one.subject, version=one.version)
        for one in schema.references
    ]
    return Schema(schema.text, schema.kind, references)


def _version(found: Any) -> SchemaVersion:
    return SchemaVersion(int(found.version), int(found.schema_id), _received(found.schema))


def _received(schema: Any) -> RegisteredSchema:
    references = tuple(
        [Reference(one.name, one.subject, one.version) for one in schema.references or ()]
    )
    return RegisteredSchema(schema.schema_type or AVRO, schema.schema_str, references)
