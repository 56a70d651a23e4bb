"""Comparison of Connect schemas: whether values of one are valid under another. It is for formats
whose schemas are translated into Connect's before they are compared."""

from typing import cast

from headgate.connector.schema import DECIMAL, Schema, SchemaType, logical_type


def why_not_under(own: Schema, target: Schema, path: str = "value") -> str | None:
    """Return why a value of `own` cannot be written under `target` as it is. None: it can."""
    if own.optional and not target.optional:
        return f"{path} may be null, expected a required one"
    if (reason := _differs(own, target, path)) is not None:
        return reason
    for one in own.fields:
        into = target.field(one.name)
        if into is None:
            return f"{path}.{one.name} is no field of the schema"
        if (reason := why_not_under(one.schema, into.schema, f"{path}.{one.name}")) is not None:
            return reason
    return _new_field(target, own, path) or _parts(own, target, path, why_not_under)


def why_cannot_read(new: Schema, old: Schema, path: str = "value") -> str | None:
    """Return why `new` cannot read data of `old`. None: it can. `new` may lack fields of `old`."""
    if old.optional and not new.optional:
        return f"{path} may be null in what was written"
    if (reason := _differs(old, new, path)) is not None:
        return reason
    for one in new.fields:
        before = old.field(one.name)
        if before is None:
            continue
        where = f"{path}.{one.name}"
        if (reason := why_cannot_read(one.schema, before.schema, where)) is not None:
            return reason
    return _new_field(new, old, path) or _parts(new, old, path, why_cannot_read)


def _differs(old: Schema, new: Schema, path: str) -> str | None:
    if old.type is not new.type or logical_type(old) != logical_type(new):
        return f"{path} was {_shown(old)} and is now {_shown(new)}"
    if logical_type(old) == DECIMAL and old.scale != new.scale:
        return f"{path} had the scale {old.scale} and has {new.scale} now"
    if old.type is SchemaType.STRUCT and old.name != new.name:
        return f"{path} had the name {old.name} and is now {new.name}"
    return None


def _new_field(new: Schema, old: Schema, path: str) -> str | None:
    for one in new.fields:
        free = one.schema.optional or one.schema.default is not None
        if old.field(one.name) is None and not free:
            return f"{path}.{one.name} is new and has no default"
    return None


def _parts(one: Schema, other: Schema, path: str, check: object) -> str | None:
    found: str | None = None
    for part, shown in (("key_schema", f"a key of {path}"), ("value_schema", f"{path}[]")):
        inner = cast("Schema | None", getattr(one, part))
        if inner is not None and found is None:
            found = check(inner, getattr(other, part), shown)  # type: ignore[operator]
    return found


def _shown(schema: Schema) -> str:
    return logical_type(schema) or schema.type.upper()
