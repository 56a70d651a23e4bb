"""Lookup of the schemas that another schema refers to."""

from headgate.connector.schema_registry import RegisteredSchema, SchemaRegistry


def texts(registry: SchemaRegistry, schema: RegisteredSchema) -> dict[str, str]:
    """Return the texts of all schemas that `schema` refers to, directly or not, by the reference's
    name. A schema comes before those that refer to it.

    Raises:
        UnknownSchemaError: the registry does not have one of them any more.
    """
    found: dict[str, str] = {}
    for one in schema.references:
        if one.name in found:
            continue
        used = registry.version(one.subject, one.version).schema
        found = {**texts(registry, used), **found}
        found[one.name] = used.text
    return found
