"""The schema registry in the embedded log: a `SchemaLog`, and the check that new versions are
compatible."""

from typing import Final

from headgate.connector.registry_converters import EMBEDDED
from headgate.connector.schema_registry import (
    RegisteredSchema,
    RegistryUnreachableError,
    SchemaLog,
    SchemaRefusedError,
    SchemaVersion,
    UnknownSchemaError,
)
from headgate.ports import TransportError
from headgate_registry.compatibility import why_not

_TRIES: Final = 100


class EmbeddedRegistry:
    """A `SchemaRegistry` on the embedded log. A new version must be able to read data of the newest
    version before it. This is BACKWARD compatibility, the default of Confluent's registry."""

    def __init__(self, log: SchemaLog) -> None:
        self._log = log

    def register(self, subject: str, schema: RegisteredSchema) -> int:
        for _ in range(_TRIES):
            versions = self._versions(subject)
            for known in versions:
                if known.schema == schema:
                    return known.id
            if versions:
                self._check(subject, schema, versions[-1])
            after = versions[-1].version if versions else 0
            try:
                added = self._log.add(subject, schema, after)
            except TransportError as error:
                raise _unreachable(error) from error
            if added is not None:
                return added
        raise RegistryUnreachableError(
            f"{_TRIES} other schemas came to subject {subject} first: restart the task"
        )

    def _check(self, subject: str, schema: RegisteredSchema, newest: SchemaVersion) -> None:
        reason = why_not(schema, newest.schema)
        if reason is not None:
            raise SchemaRefusedError(
                f"the registry {EMBEDDED} refuses the schema of subject {subject}: it cannot read "
                f"what version {newest.version} wrote: {reason}. Give a new field a default or "
                "make it optional, or write to another topic"
            )

    def find(self, subject: str, schema: RegisteredSchema) -> int:
        for known in self._versions(subject):
            if known.schema == schema:
                return known.id
        raise UnknownSchemaError(f"the registry {EMBEDDED} has no such schema in subject {subject}")

    def latest(self, subject: str) -> SchemaVersion:
        versions = self._versions(subject)
        if not versions:
            raise UnknownSchemaError(f"the registry {EMBEDDED} has no subject {subject}")
        return versions[-1]

    def version(self, subject: str, version: int) -> SchemaVersion:
        for known in self._versions(subject):
            if known.version == version:
                return known
        raise UnknownSchemaError(
            f"the registry {EMBEDDED} has no version {version} of subject {subject}"
        )

    def by_id(self, schema_id: int) -> RegisteredSchema:
        try:
            found = self._log.by_id(schema_id)
        except TransportError as error:
            raise _unreachable(error) from error
        if found is None:
            raise UnknownSchemaError(
                f"the registry {EMBEDDED} has no schema of id {schema_id}; was the topic written "
                "with another registry?"
            )
        return found

    def _versions(self, subject: str) -> tuple[SchemaVersion, ...]:
        try:
            return tuple(self._log.versions(subject))
        except TransportError as error:
            raise _unreachable(error) from error


def _unreachable(error: TransportError) -> RegistryUnreachableError:
    return RegistryUnreachableError(f"the registry {EMBEDDED} cannot be reached: {error}")
