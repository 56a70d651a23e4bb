"""Column names that differ in case only, at any depth. Readers take them for the same column."""

from typing import Any

import pyarrow as pa


def clash(columns: Any) -> tuple[str, str] | None:
    """Return the paths of two columns, or two fields of a struct, whose names differ in case only.

    Spark, Hive and DuckDB refuse files with both. None: there are no such names.

    Args:
        columns: a pyarrow.Schema.
    """
    return _clash([*columns], "")


def _clash(fields: list[Any], above: str) -> tuple[str, str] | None:
    spelt: dict[str, str] = {}
    for field in fields:
        other = spelt.setdefault(field.name.lower(), field.name)
        if other != field.name:
            return above + other, above + field.name
    for field in fields:
        found = _clash(_fields_of(field.type), f"{above}{field.name}.")
        if found is not None:
            return found
    return None


def _fields_of(kind: Any) -> list[Any]:
    """Return the fields of the outermost structs in a type, also of those inside lists and maps."""
    inner = [kind.field(at) for at in range(kind.num_fields)]
    if pa.types.is_struct(kind):
        return inner
    return [one for field in inner for one in _fields_of(field.type)]
