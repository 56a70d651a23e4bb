"""Converters with schemas in a schema registry: names and keys.

The adapter `headgate_registry`, which the extra ``registry`` installs, implements them. These
classes define their configs. Source: Confluent's AvroConverter, ProtobufConverter and
JsonSchemaConverter, AbstractKafkaSchemaSerDeConfig, AvroDataConfig, ProtobufDataConfig and
JsonSchemaDataConfig.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headgate.connector.api import Value
from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.schema import Schema, SchemaAndValue
from headgate.connector.validators import at_least, one_of_any_case
from headgate.errors import MissingExtraError

EMBEDDED: Final = "embedded:"
"""Address of the registry that is part of the embedded log."""
URL: Final = "schema.registry.url"
STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
STRATEGY_PACKAGE: Final = "io.confluent.kafka.serializers.subject."

_B, _S, _I = Type.BOOLEAN, Type.STRING, Type.INT
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_STRATEGY: Final = one_of_any_case(*STRATEGIES, *(STRATEGY_PACKAGE + name for name in STRATEGIES))
_TOPIC_STRATEGY: Final = STRATEGY_PACKAGE + STRATEGIES[0]

_Row = tuple[str, Type, Any, Any, Importance, str]
_ROWS: Final[tuple[_Row, ...]] = (
    (
        *(URL, Type.LIST, "", None, _HIGH),
        "Addresses of the schema registry; under headgate up the default is embedded:, the "
        "registry that is part of the data folder.",
    ),
    (
        *("auto.register.schemas", _B, True, None, _MEDIUM),
        "Whether a schema that the subject does not have is registered.",
    ),
    (
        *("use.latest.version", _B, False, None, _LOW),
        "Whether values are written with the newest schema of the subject; needs "
        "auto.register.schemas = false.",
    ),
    (
        *("latest.compatibility.strict", _B, True, None, _LOW),
        "Taken for Connect's sake: the newest schema must always be able to hold the record.",
    ),
    (
        *("normalize.schemas", _B, False, None, _LOW),
        "Whether the registry brings schemas into one form before it compares them.",
    ),
    (
        *("max.schemas.per.subject", _I, 1000, at_least(1), _LOW),
        "The most schemas that are kept ready.",
    ),
    (
        *("key.subject.name.strategy", Type.CLASS, _TOPIC_STRATEGY, _STRATEGY, _MEDIUM),
        "How the subject of a key's schema is made: from the topic, the record's name, or both.",
    ),
    (
        *("value.subject.name.strategy", Type.CLASS, _TOPIC_STRATEGY, _STRATEGY, _MEDIUM),
        "How the subject of a value's schema is made: from the topic, the record's name, or both.",
    ),
    (
        *("basic.auth.credentials.source", _S, "URL", one_of_any_case("URL", "USER_INFO"), _MEDIUM),
        "Where user and password stand: URL (in the address) or USER_INFO.",
    ),
    (
        *("basic.auth.user.info", Type.PASSWORD, None, None, _MEDIUM),
        "User and password as user:password.",
    ),
    (
        *("schema.registry.basic.auth.user.info", Type.PASSWORD, None, None, _MEDIUM),
        "The same as basic.auth.user.info.",
    ),
    (
        *("schema.registry.ssl.truststore.location", _S, None, None, _MEDIUM),
        "File with the certificates of trusted authorities, in PEM.",
    ),
    (
        *("schema.registry.ssl.truststore.type", _S, "PEM", one_of_any_case("PEM"), _LOW),
        "Form of the trust store.",
    ),
    (
        *("schema.registry.ssl.keystore.location", _S, None, None, _MEDIUM),
        "File with the client's key and certificates, in PEM.",
    ),
    (
        *("schema.registry.ssl.keystore.type", _S, "PEM", one_of_any_case("PEM"), _LOW),
        "Form of the key store.",
    ),
    (
        *("schema.registry.ssl.key.password", Type.PASSWORD, None, None, _LOW),
        "Password of the client's key.",
    ),
    (
        *("schema.registry.request.timeout.ms", _I, 10_000, at_least(1), _LOW),
        "How long one request to the registry may take.",
    ),
    (
        *("max.retries", _I, 3, at_least(0), _LOW),
        "How often a request is tried again before the task fails.",
    ),
    (
        *("schemas.cache.size", _I, 1000, at_least(1), _LOW),
        "The most schemas that are kept ready to convert.",
    ),
)
_AVRO_ROWS: Final[tuple[_Row, ...]] = (
    (
        *("enhanced.avro.schema.support", _B, False, None, _LOW),
        "Whether a text that came from an enum is written as that enum again.",
    ),
    (
        *("connect.meta.data", _B, True, None, _LOW),
        "Whether schemas get properties that only Connect reads: connect.name and others.",
    ),
    (
        *("ignore.default.for.nullables", _B, False, None, _LOW),
        "Whether a null stays null where its schema has a default.",
    ),
)
_JSON_ROWS: Final[tuple[_Row, ...]] = (
    (
        *("use.optional.for.nonrequired", _B, False, None, _LOW),
        "Whether a property that is not required is read as optional.",
    ),
    (
        *("decimal.format", _S, "BASE64", one_of_any_case("BASE64", "NUMERIC"), _LOW),
        "Form of decimals that are written: BASE64 (their unscaled bytes) or NUMERIC.",
    ),
)


def _config(*rows: _Row) -> ConfigDef:
    definition = ConfigDef()
    for row in (*_ROWS, *rows):
        definition.define(*row)
    return definition


class RegistryConverter:
    """A converter with schemas in a registry; `headgate_registry` makes the working class."""

    CONFIG: ConfigDef = _config()

    def configure(self, config: Mapping[str, str], *, is_key: bool) -> None:
        """Raise an error, since this class does not work by itself.

        Raises:
            MissingExtraError: The extra ``registry`` is not installed.
        """
        raise MissingExtraError("registry")

    def from_connect(self, topic: str, value: Value, schema: Schema | None = None) -> bytes | None:
        raise MissingExtraError("registry")

    def to_connect(self, topic: str, data: bytes | None) -> Value:
        return self.to_connect_data(topic, data).value

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:
        raise MissingExtraError("registry")


class AvroForm(NamedTuple):
    """Settings by which an AvroConverter writes values of a schema."""

    head: bytes
    """Bytes before the Avro of each value."""
    root: Any
    """The Avro schema as parsed JSON; named types are given by their full names."""
    named: Mapping[str, Any]
    """Definitions of the named types."""
    keeps_nulls: bool
    """Whether a null stays a null where its schema has a default."""


class AvroConverter(RegistryConverter):
    """Avro with a schema registry. Source: io.confluent.connect.avro.AvroConverter."""

    CONFIG = _config(*_AVRO_ROWS)

    def form(self, topic: str, schema: Schema) -> AvroForm:
        """Return how values of `schema` are written, for code that writes many at once.

        Raises:
            DataError, TransportError and others: As `from_connect`.
        """
        raise MissingExtraError("registry")


class JsonSchemaConverter(RegistryConverter):
    """JSON with its JSON Schema in a registry. Source: io.confluent.connect.json."""

    CONFIG = _config(*_JSON_ROWS)


class ProtobufConverter(RegistryConverter):
    """Protobuf with a schema registry. Source: io.confluent.connect.protobuf."""

    CONFIG = _config()


REGISTRY_CONVERTERS: Final[Mapping[str, type[RegistryConverter]]] = {
    name: found
    for package, found in (
        ("avro", AvroConverter),
        ("json", JsonSchemaConverter),
        ("protobuf", ProtobufConverter),
    )
    for name in (
        f"io.confluent.connect.{package}.{found.__name__}",
        found.__name__,
        found.__name__.removesuffix("Converter"),
    )
}
"""Converters by Confluent's class name, simple name, and simple name without ``Converter``."""
