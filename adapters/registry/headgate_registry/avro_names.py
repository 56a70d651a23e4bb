"""Names of Connect's schemas in Avro, and of properties that only Connect reads.

Source: Confluent's AvroData (7.x). Schemas that Java's converter has registered contain these
names, so they must be the same here.
"""

import re
from typing import Any, Final

from headgate.connector.data_error import DataError

NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT_NAME: Final = "ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
KEY, VALUE = "key", "value"

CONNECT_NAME: Final = "connect.name"
CONNECT_DOC: Final = "connect.doc"
CONNECT_VERSION: Final = "connect.version"
CONNECT_DEFAULT: Final = "connect.default"
CONNECT_PARAMETERS: Final = "connect.parameters"
CONNECT_TYPE: Final = "connect.type"
INTERNAL_TYPE: Final = "connect.internal.type"

ENUM: Final = "io.confluent.connect.avro.Enum"
"""Parameter of a STRING that was an enum, with the enum's full name. There is one more parameter
for each symbol, with ``.SYMBOL`` appended."""
UNION: Final = "io.confluent.connect.avro.Union"
"""Name of the STRUCT that a union of several types becomes. It has one field for each type."""
FIXED_SIZE: Final = "connect.fixed.size"
"""Parameter of BYTES that were a fixed, with its size."""
PRECISION_DEFAULT: Final = 64
"""Precision of a decimal whose schema names none."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEFAULT: Final = re.compile(re.escape(f"{NAMESPACE}.{DEFAULT_NAME}") + r"\d*")


def is_default(full_name: str) -> bool:
    """Return whether this is the name of a record whose Connect schema has none."""
    return _DEFAULT.fullmatch(full_name) is not None


def check_name(name: str, path: str) -> str:
    """Return `name` if it is valid in Avro.

    Raises:
        DataError: it is not.
    """
    if _NAME.fullmatch(name) is None:
        raise DataError(
            f"{path}: the name {name!r} is none in Avro, expected letters, digits and _, no digit "
            "first; rename it, for one with the transform ReplaceField"
        )
    return name


def split_name(full_name: str, path: str) -> tuple[str, str | None]:
    """Return the name and the namespace in a full name.

    Raises:
        DataError: the name is not valid in Avro.
    """
    namespace, _, name = full_name.rpartition(".")
    for part in (*(namespace.split(".") if namespace else ()), name):
        check_name(part, path)
    return name, namespace or None


def full_name(node: dict[str, Any], namespace: str | None) -> str:
    """Return the full name of a record, enum or fixed. `namespace` is that around it."""
    name = str(node["name"])
    if "." in name:
        return name
    inner = node.get("namespace", namespace)
    return f"{inner}.{name}" if inner else name
