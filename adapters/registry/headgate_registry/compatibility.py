"""The BACKWARD check: whether a new version of a schema can read data of an older one."""

import json

from headgate.connector.schema import Schema
from headgate.connector.schema_registry import AVRO, JSON, RegisteredSchema
from headgate_registry.avro_compatibility import why_avro_cannot_read
from headgate_registry.json_schema_text import connect_schema_of
from headgate_registry.schema_fit import why_cannot_read


def why_not(new: RegisteredSchema, old: RegisteredSchema) -> str | None:
    """Return why `new` cannot read data of `old`. None: it can."""
    if new.kind != old.kind:
        return f"it is of type {new.kind}, the version before it {old.kind}"
    if new.kind == AVRO:
        return why_avro_cannot_read(new.text, old.text)
    return why_cannot_read(_connect(new), _connect(old))


def _connect(schema: RegisteredSchema) -> Schema:
    if schema.kind == JSON:
        return connect_schema_of(json.loads(schema.text))
    from headgate_registry.protobuf_read import schema_of_text

    return schema_of_text(schema.text)
