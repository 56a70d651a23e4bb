"""The common part of the three converters: schema ids, subjects, caches and the head of a value."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.connector import schema as s
from headgate.connector.api import Value
from headgate.connector.config import ConfigError
from headgate.connector.data_error import DataError
from headgate.connector.registry_converters import EMBEDDED, URL, RegistryConverter
from headgate.connector.schema import Schema, SchemaAndValue, kind_of, validate
from headgate.connector.schema_registry import (
    RegisteredSchema,
    SchemaLog,
    SchemaRegistry,
    UnknownSchemaError,
)
from headgate_registry.embedded import EmbeddedRegistry
from headgate_registry.subjects import subject_of
from headgate_registry.wire import head, split

Read = Callable[[bytes], SchemaAndValue]
OpenLog = Callable[[], SchemaLog]


@dataclass(frozen=True, slots=True)
class Written:
    """A Connect schema, translated into a format's schema."""

    registered: RegisteredSchema
    record: str | None
    """Full name of the record, for subjects. None: the schema describes no record."""
    write: Callable[[Any], bytes]
    """Encodes a value that is valid under the Connect schema. Raises DataError if the format cannot
    hold it."""


@dataclass(frozen=True, slots=True)
class _Entry:
    head: bytes
    write: Callable[[Any], bytes]


_PLAIN: Final[Mapping[type, Schema]] = {
    str: s.STRING,
    bool: s.BOOLEAN,
    int: s.INT64,
    float: s.FLOAT64,
    bytes: s.BYTES,
}


class FormatConverter(RegistryConverter, ABC):
    """Base class of the converters. A subclass for a format defines `KIND`, `written`, `written_as`
    and `reader`."""

    KIND: str

    def __init__(self, open_log: OpenLog | None) -> None:
        self._open_log = open_log
        self._registry: SchemaRegistry | None = None

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Configure the converter and open its registry.

        Raises:
            ConfigError: a key has a wrong value, or two keys exclude each other.
            MissingExtraError: the client of a registry is not installed.
        """
        parsed = self.CONFIG.parse(config)
        self.parsed = parsed
        self._is_key = is_key
        self._auto: bool = parsed["auto.register.schemas"]
        self._latest: bool = parsed["use.latest.version"]
        if self._auto and self._latest:
            raise ConfigError.of(
                "use.latest.version",
                True,
                "needs auto.register.schemas = false: with both, each value would have two schemas",
            )
        self._strategy: str = parsed[f"{'key' if is_key else 'value'}.subject.name.strategy"]
        self._cache_size: int = parsed["schemas.cache.size"]
        self._entries: dict[tuple[str, Schema], _Entry] = {}
        self._readers: dict[int, Read] = {}
        self._last: tuple[str, Schema | None, _Entry | None] = ("", None, None)
        self._registry = self._opened(parsed)

    def _opened(self, parsed: Mapping[str, Any]) -> SchemaRegistry:
        urls: list[str] = parsed[URL]
        embedded = not urls or urls == [EMBEDDED]
        if embedded and self._open_log is not None:
            return EmbeddedRegistry(self._open_log())
        if embedded:
            what = "is missing" if not urls else "is the registry that headgate up has"
            raise ConfigError.of(
                URL, EMBEDDED if urls else None, f"{what}; name a registry: http://host:8081"
            )
        from headgate_registry.remote import RemoteRegistry

        return RemoteRegistry(parsed)

    # -- writing --

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        if value is None:
            return None
        if schema is None:
            schema = _schema_of(value)
        validate(schema, value)
        last_topic, last_schema, entry = self._last
        if schema is not last_schema or topic != last_topic or entry is None:
            entry = self._entry(topic, schema)
            self._last = topic, schema, entry
        return entry.head + entry.write(value)

    def _entry(self, topic: str, schema: Schema) -> _Entry:
        found = self._entries.get((topic, schema))
        if found is None:
            if len(self._entries) >= self._cache_size:
                self._entries.clear()
            found = self._entries[topic, schema] = self._made(topic, schema)
        return found

    def _made(self, topic: str, schema: Schema) -> _Entry:
        registry = self._checked_registry
        written = self.written(schema)
        subject = subject_of(self._strategy, topic, written.record, is_key=self._is_key)
        if self._latest:
            newest = registry.latest(subject)
            self._check_kind(newest.schema, newest.id)
            return _Entry(head(newest.id), self.written_as(schema, newest.schema))
        if self._auto:
            return _Entry(head(registry.register(subject, written.registered)), written.write)
        try:
            schema_id = registry.find(subject, written.registered)
        except UnknownSchemaError as error:
            raise UnknownSchemaError(
                f"{error}; auto.register.schemas is false: register the schema "
                f"{written.registered.text}"
            ) from error
        return _Entry(head(schema_id), written.write)

    # -- reading --

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        if data is None:
            return SchemaAndValue(None, None)
        schema_id, rest = split(data)
        read = self._readers.get(schema_id)
        if read is None:
            found = self._checked_registry.by_id(schema_id)
            self._check_kind(found, schema_id)
            if len(self._readers) >= self._cache_size:
                self._readers.clear()
            read = self._readers[schema_id] = self.reader(found)
        try:
            return read(rest)
        except DataError as error:
            raise DataError(f"{error} (schema id {schema_id})") from error

    def _check_kind(self, found: RegisteredSchema, schema_id: int) -> None:
        if found.kind != self.KIND:
            raise DataError(
                f"schema id {schema_id} is of type {found.kind}, expected {self.KIND}: use the "
                "converter of that type"
            )

    @property
    def _checked_registry(self) -> SchemaRegistry:
        if self._registry is None:
            raise RuntimeError("configure was not called")
        return self._registry

    # -- for formats --

    @abstractmethod
    def written(self, schema: Schema) -> Written:
        """Translate a Connect schema into one of the format.

        Raises:
            DataError: the format cannot express the schema. The message names the field.
        """

    @abstractmethod
    def written_as(self, schema: Schema, target: RegisteredSchema) -> Callable[[Any], bytes]:
        """Return a function that encodes values of `schema` under another schema.

        Raises:
            DataError: something would be lost. The message names the field.
        """

    @abstractmethod
    def reader(self, found: RegisteredSchema) -> Read:
        """Return a function that decodes the bytes of a value.

        Raises:
            DataError: Connect cannot express the schema. The message names the field.
        """


def _schema_of(value: Any) -> Schema:
    """Return the schema that Java's connectors give to such a value.

    Raises:
        DataError: the value is an object or a list, whose schema cannot be inferred.
    """
    found = _PLAIN.get(type(value))
    if found is None:
        raise DataError(
            f"a {kind_of(value)} without a schema, expected a record with a schema: use a source "
            "that gives one, or JsonConverter with schemas.enable = false"
        )
    return found
