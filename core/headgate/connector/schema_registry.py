"""Schema registries: the interface for converters, and the storage that a log offers for one.

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
    """The registry gave no answer, or one that asks to try again. No record is bad: the task stops,
    and reads the same records again after its restart."""


class SchemaRefusedError(DataError):
    """The registry refused a schema under a subject; the text names the subject and the reason."""


class UnknownSchemaError(DataError):
    """The registry has no schema of this id or subject."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another schema uses, with the name by which it is used there."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry stores it."""

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
        RegistryUnreachableError: Every call may raise it.
    """

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of the schema. It becomes the subject's newest version unless the subject
        has it.

        Raises:
            SchemaRefusedError: It is not compatible with the subject's earlier versions.
        """
        ...

    def find(self, subject: str, schema: RegisteredSchema) -> int:
        """Return the id of a schema that the subject has.

        Raises:
            UnknownSchemaError: The subject has no such schema.
        """
        ...

    def latest(self, subject: str) -> SchemaVersion:
        """Return the newest version of a subject.

        Raises:
            UnknownSchemaError: There is no such subject.
        """
        ...

    def version(self, subject: str, version: int) -> SchemaVersion:
        """Return one version of a subject.

        Raises:
            UnknownSchemaError: There is no such subject, or no such version of it.
        """
        ...

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with this id.

        Raises:
            UnknownSchemaError: There is none.
        """
        ...


class SchemaLog(Protocol):
    """Schemas and subjects as a log stores them. Raises `headgate.ports.TransportError`."""

    def by_id(self, schema_id: int) -> RegisteredSchema | None: ...

    def versions(self, subject: str) -> Sequence[SchemaVersion]:
        """Return all versions, oldest first; none if there is no such subject."""
        ...

    def add(self, subject: str, schema: RegisteredSchema, after: int) -> int | None:
        """Add a schema as version ``after + 1`` of the subject and return its id. A text that is
        stored under another subject keeps that id. Return None if the newest version is not
        `after`."""
        ...
