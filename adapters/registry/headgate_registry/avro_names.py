"""Names that Connect's schemas have in Avro, and the words for what only Connect knows.

Source: Confluent's AvroData (7.x). A registry has schemas of Java's converter under these words,
so they must be the same here.
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
"""Parameter of a text: full name of the enum that it came from; with ``.SYMBOL`` each symbol."""
UNION: Final = "io.confluent.connect.avro.Union"
"""Name of the struct that a union of several types becomes: one field for each."""
FIXED_SIZE: Final = "connect.fixed.size"
"""Parameter of bytes that came from a fixed."""
PRECISION_DEFAULT: Final = 64
"""Precision of a decimal whose schema says none."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEFAULT: Final = re.compile(re.escape(f"{NAMESPACE}.{DEFAULT_NAME}") + r"\d*")


def is_default(full_name: str) -> bool:
    """Whether a record has this name because its schema has none."""
    return _DEFAULT.fullmatch(full_name) is not None


def check_name(name: str, path: str) -> str:
    """
    Raises:
        DataError: Avro takes no such name.
    """
    if _NAME.fullmatch(name) is None:
        raise DataError(
            f"{path}: the name {name!r} is none in Avro, expected letters, digits and _, no digit "
            "first; rename it, for one with the transform ReplaceField"
        )
    return name


def split_name(full_name: str, path: str) -> tuple[str, str | None]:
    """Name and namespace.

    Raises:
        DataError: Avro takes no such name.
    """
    namespace, _, name = full_name.rpartition(".")
    for part in (*(namespace.split(".") if namespace else ()), name):
        check_name(part, path)
    return name, namespace or None


def full_name(node: dict[str, Any], namespace: str | None) -> str:
    """Full name of a record, enum or fixed, in the namespace around it."""
    name = str(node["name"])
    if "." in name:
        return name
    inner = node.get("namespace", namespace)
    return f"{inner}.{name}" if inner else name
