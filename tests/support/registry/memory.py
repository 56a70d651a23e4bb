"""A schema registry in memory, and converters on it."""

from collections.abc import Mapping, Sequence

from headgate.connector.registry_converters import REGISTRY_CONVERTERS
from headgate.connector.schema_registry import RegisteredSchema, SchemaVersion
from headgate_registry.base import FormatConverter
from headgate_registry.converters import working


class MemorySchemas:
    """A `SchemaLog` in memory."""

    def __init__(self) -> None:
        self.schemas: list[RegisteredSchema] = []
        self.subjects: dict[str, list[SchemaVersion]] = {}

    def by_id(self, schema_id: int) -> RegisteredSchema | None:
        return self.schemas[schema_id - 1] if 0 < schema_id <= len(self.schemas) else None

    def versions(self, subject: str) -> Sequence[SchemaVersion]:
        return self.subjects.get(subject, ())

    def add(self, subject: str, schema: RegisteredSchema, after: int) -> int | None:
        known = self.subjects.setdefault(subject, [])
        if len(known) != after:
            return None
        if schema not in self.schemas:
            self.schemas.append(schema)
        found = self.schemas.index(schema) + 1
        known.append(SchemaVersion(after + 1, found, schema))
        return found


def converter(
    name: str,
    schemas: MemorySchemas | None,
    config: Mapping[str, str] | None = None,
    *,
    is_key: bool = False,
) -> FormatConverter:
    """Return the converter of a class name, ready to work. `schemas` None: there is no embedded
    registry."""
    made = working(REGISTRY_CONVERTERS[name], None if schemas is None else lambda: schemas)
    made.configure(config or {}, is_key=is_key)
    return made
