"""Schemas that another schema refers to, from the registry."""

from headgate.connector.schema_registry import RegisteredSchema, SchemaRegistry


def texts(registry: SchemaRegistry, schema: RegisteredSchema) -> dict[str, str]:
    """Texts of all schemas that `schema` needs, at any depth, by the name of the reference; those
    that others need come first.

    Raises:
        UnknownSchemaError: the registry has one of them no more.
    """
    found: dict[str, str] = {}
    for one in schema.references:
        if one.name in found:
            continue
        used = registry.version(one.subject, one.version).schema
        found = {**texts(registry, used), **found}
        found[one.name] = used.text
    return found
