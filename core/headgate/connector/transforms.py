"""Transforms and predicates by Connect's names, and the chain that a connector config asks for.

Source: Connect's `transforms` package, `TransformationStage` (4.3.1).
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, Protocol, TypeVar

from headgate.connector.api import DataError, Headers, SinkRecord, SourceRecord, Transform
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type, parse_type
from headgate.connector.schema import Schema
from headgate.connector.validators import no_such_class, non_empty, regex, unique_values

Record = TypeVar("Record", SourceRecord, SinkRecord)


_new: Final = object.__new__

ROUTES_MAX: Final = 10_000
"""Topics whose new names `RegexRouter` remembers."""


class Predicate(Protocol):
    """Whether a transform applies to a record."""

    def configure(self, config: Mapping[str, str]) -> None: ...

    def test(self, record: SourceRecord | SinkRecord) -> bool: ...


class RecordTransform(ABC):
    """A transform that treats records of sources and sinks alike: `apply` does it."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef()

    def __init_subclass__(cls) -> None:
        # Without a call in between, which each record would pay for.
        if "apply" in cls.__dict__:
            cls.apply_source = cls.apply_sink = cls.apply  # type: ignore[method-assign]

    def configure(self, config: Mapping[str, str]) -> None:
        self.settings = self.CONFIG.parse(config)

    @abstractmethod
    def apply(self, record: Record) -> Record | None:
        """What becomes of `record`; None drops it."""

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        return self.apply(record)

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None:
        return self.apply(record)


class RegexRouter(RecordTransform):
    """Renames topics whose whole name matches. ``$1`` in the replacement is a group, as in Java.

    Differs: the expression is Python's.
    """

    CONFIG = (
        ConfigDef()
        .define("regex", Type.STRING, documentation="For matching.", validator=regex)
        .define("replacement", Type.STRING, documentation="The new topic; $1 is a group.")
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._regex = re.compile(self.settings["regex"])
        self._replacement = _java_replacement(self.settings["replacement"])
        self._routes: dict[str, str] = {}

    def apply(self, record: Record) -> Record | None:
        topic = self._routes.get(record.topic)
        if topic is None:
            topic = self._route(record.topic)
        if topic == record.topic:
            return record
        return _altered(record, topic, record.headers, record.header_schemas)

    def _route(self, topic: str) -> str:
        if len(self._routes) == ROUTES_MAX:  # a topic for each value of something
            self._routes.clear()
        match = self._regex.fullmatch(topic)
        try:
            route = topic if match is None else match.expand(self._replacement)
        except (re.error, IndexError) as error:
            raise DataError(f"RegexRouter on topic {topic}: {error}") from error
        self._routes[topic] = route
        return route


class Filter(RecordTransform):
    """Drops every record it is applied to; used with a predicate."""

    def apply(self, record: Record) -> Record | None:
        return None


class InsertHeader(RecordTransform):
    """Adds a header, its value read as `SimpleHeaderConverter` reads one."""

    CONFIG = (
        ConfigDef()
        .define("header", Type.STRING, validator=non_empty, importance=Importance.HIGH)
        .define("value.literal", Type.STRING, importance=Importance.HIGH)
    )

    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        self._inserted = ((self.settings["header"], self.settings["value.literal"]),)

    def apply(self, record: Record) -> Record | None:
        # Where there were none all records get the same tuple, which is converted once.
        inserted = (*record.headers, *self._inserted) if record.headers else self._inserted
        schemas: tuple[Schema | None, ...] = record.header_schemas
        return _altered(record, record.topic, inserted, (*schemas, None) if schemas else ())


class DropHeaders(RecordTransform):
    """Removes all headers of these names."""

    CONFIG = ConfigDef().define("headers", Type.LIST, validator=unique_values)

    def apply(self, record: Record) -> Record | None:
        gone = self.settings["headers"]
        left = tuple([header for header in record.headers if header[0] not in gone])
        schemas = record.header_schemas
        if schemas:
            pairs = zip(record.headers, schemas, strict=True)
            schemas = tuple([schema for header, schema in pairs if header[0] not in gone])
        return _altered(record, record.topic, left, schemas)


def _altered(
    record: Record, topic: str, headers: Headers, header_schemas: tuple[Schema | None, ...]
) -> Record:
    """A copy with these. What `replace` does, at a seventh of its cost: every record comes here."""
    if type(record) is SourceRecord:
        copy: SourceRecord = _new(SourceRecord)
        copy.source_partition = record.source_partition
        copy.source_offset = record.source_offset
        copy.topic = topic
        copy.value = record.value
        copy.key = record.key
        copy.headers = headers
        copy.partition = record.partition
        copy.timestamp_ms = record.timestamp_ms
        copy.key_schema = record.key_schema
        copy.value_schema = record.value_schema
        copy.header_schemas = header_schemas
        return copy  # pyright: ignore[reportReturnType]
    return replace(record, topic=topic, headers=headers, header_schemas=header_schemas)


class TopicNameMatches:
    """The whole topic matches `pattern`. Differs: the expression is Python's."""

    CONFIG: Final = ConfigDef().define("pattern", Type.STRING, validator=regex)

    def configure(self, config: Mapping[str, str]) -> None:
        self._pattern = re.compile(self.CONFIG.parse(config)["pattern"])

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return self._pattern.fullmatch(record.topic) is not None


class HasHeaderKey:
    CONFIG: Final = ConfigDef().define("name", Type.STRING, validator=non_empty)

    def configure(self, config: Mapping[str, str]) -> None:
        self._name = self.CONFIG.parse(config)["name"]

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return any(key == self._name for key, _ in record.headers)


class RecordIsTombstone:
    CONFIG: Final = ConfigDef()

    def configure(self, config: Mapping[str, str]) -> None:
        pass

    def test(self, record: SourceRecord | SinkRecord) -> bool:
        return record.value is None


_PACKAGE: Final = "org.apache.kafka.connect.transforms."

TRANSFORMS: Final[Mapping[str, type[RecordTransform]]] = {
    name: found
    for found in (RegexRouter, Filter, InsertHeader, DropHeaders)
    for name in (_PACKAGE + found.__name__, found.__name__)
}

PREDICATES: Final[Mapping[str, Callable[[], Predicate]]] = {
    name: found
    for found in (TopicNameMatches, HasHeaderKey, RecordIsTombstone)
    for name in (f"{_PACKAGE}predicates.{found.__name__}", found.__name__)
}


class Stage:
    """A transform that applies where its predicate says so."""

    def __init__(self, transform: Transform, predicate: Predicate, negate: bool) -> None:
        self._transform = transform
        self._predicate = predicate
        self._negate = negate

    def configure(self, config: Mapping[str, str]) -> None:
        self._transform.configure(config)

    def apply_source(self, record: SourceRecord) -> SourceRecord | None:
        if self._predicate.test(record) is self._negate:
            return record
        return self._transform.apply_source(record)

    def apply_sink(self, record: SinkRecord) -> SinkRecord | None:
        if self._predicate.test(record) is self._negate:
            return record
        return self._transform.apply_sink(record)


def make_transforms(config: Mapping[str, str]) -> list[Transform]:
    """The chain of a connector config, in the order of `transforms`; empty when there is none.

    Raises:
        ConfigError: a class that is not there, a wrong value, a predicate without a definition.
    """
    aliases: list[str] = parse_type("transforms", config.get("transforms"), Type.LIST) or []
    return [_stage(config, alias) for alias in aliases]


def transform_source(chain: Sequence[Transform], record: SourceRecord) -> SourceRecord | None:
    """`record` through `chain`; None when a transform dropped it. Raises what transforms raise."""
    result: SourceRecord | None = record
    for transform in chain:
        if result is None:
            return None
        result = transform.apply_source(result)
    return result


def transform_sink(chain: Sequence[Transform], record: SinkRecord) -> SinkRecord | None:
    result: SinkRecord | None = record
    for transform in chain:
        if result is None:
            return None
        result = transform.apply_sink(result)
    return result


def _stage(config: Mapping[str, str], alias: str) -> Transform:
    prefix = f"transforms.{alias}."
    own = _with_prefix(config, prefix)
    transform = _made(TRANSFORMS, prefix + "type", own.pop("type", None))
    named = own.pop("predicate", None)
    negate = parse_type(prefix + "negate", own.pop("negate", "false"), Type.BOOLEAN)
    transform.configure(own)
    if named is None:
        return transform
    prefix = f"predicates.{named.strip()}."
    settings = _with_prefix(config, prefix)
    predicate = _made(PREDICATES, prefix + "type", settings.pop("type", None))
    predicate.configure(settings)
    return Stage(transform, predicate, negate)


Made = TypeVar("Made")


def _made(known: Mapping[str, Callable[[], Made]], key: str, name: Any) -> Made:
    if name is None:
        raise ConfigError(f'Missing required configuration "{key}" which has no default value.')
    found = known.get(name.strip())
    if found is None:
        raise ConfigError.of(key, name, no_such_class(name, known))
    return found()


def _with_prefix(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key[len(prefix) :]: text for key, text in config.items() if key.startswith(prefix)}


def _java_replacement(text: str) -> str:
    """Java's ``$1`` and ``\\x`` as Python's ``\\g<1>`` and the character itself."""
    result: list[str] = []
    for escaped, group, other in re.findall(r"\\(.)|\$(\d)|(.)", text, re.DOTALL):
        if group:
            result.append(f"\\g<{group}>")
        else:
            plain = escaped or other
            result.append("\\\\" if plain == "\\" else plain)
    return "".join(result)
