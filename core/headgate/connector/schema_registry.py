"""Schema registries: what converters ask of one, and what a log keeps so that it can be one.

Source: the REST API of Confluent's Schema Registry, for words and rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from headgate.connector.api import RetriableError
from headgate.connector.data_error import DataError

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
"""Types of schemas, in the registry's words."""


class RegistryUnreachableError(RetriableError):
    """The registry gave no answer, or one that says to try again. No record is to blame: the task
    stops, and takes the same records up again after its restart."""


class SchemaRefusedError(DataError):
    """The registry took no schema under a subject; names the subject and the registry's reason."""


class UnknownSchemaError(DataError):
    """The registry has no schema of this id or subject."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses, by the name under which that one uses it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry keeps it."""

    kind: str
    """`AVRO`, `JSON` or `PROTOBUF`."""
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A schema under a subject."""

    version: int
    id: int
    schema: RegisteredSchema


class SchemaRegistry(Protocol):
    """A registry as converters use it. Safe for several threads.

    Raises:
        RegistryUnreachableError: from each call.
    """

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Id of the schema, which is the subject's newest version unless it was there.

        Raises:
            SchemaRefusedError: it does not go with the versions before it.
        """
        ...

    def find(self, subject: str, schema: RegisteredSchema) -> int:
        """Id of a schema that the subject has.

        Raises:
            UnknownSchemaError: it has no such schema.
        """
        ...

    def latest(self, subject: str) -> SchemaVersion:
        """
        Raises:
            UnknownSchemaError: there is no such subject.
        """
        ...

    def version(self, subject: str, version: int) -> SchemaVersion:
        """
        Raises:
            UnknownSchemaError: there is no such subject, or no such version of it.
        """
        ...

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """
        Raises:
            UnknownSchemaError: there is none.
        """
        ...


class SchemaLog(Protocol):
    """Schemas and subjects as a log keeps them. Raises `headgate.ports.TransportError`."""

    def by_id(self, schema_id: int) -> RegisteredSchema | None: ...

    def versions(self, subject: str) -> Sequence[SchemaVersion]:
        """All versions, oldest first; none: there is no such subject."""
        ...

    def add(self, subject: str, schema: RegisteredSchema, after: int) -> int | None:
        """Id of the schema, now version ``after + 1`` of the subject. A text that is there under
        another subject has one id. None: the newest version is another than `after`."""
        ...
