"""Whether a new version of a schema can read what an older one wrote: BACKWARD."""

from headgate.connector.schema_registry import AVRO, RegisteredSchema
from headgate_registry.avro_compatibility import why_avro_cannot_read


def why_not(new: RegisteredSchema, old: RegisteredSchema) -> str | None:
    """Why `new` cannot read what `old` wrote; None: it can."""
    if new.kind != old.kind:
        return f"it is of type {new.kind}, the version before it {old.kind}"
    if new.kind == AVRO:
        return why_avro_cannot_read(new.text, old.text)
    return None
