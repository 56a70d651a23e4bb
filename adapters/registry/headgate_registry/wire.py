"""The head of each value: a zero, and the schema's id in four bytes, most significant first.

Source: Confluent's wire format. Protobuf has the path of its message after the id
(`headgate_registry.protobuf_wire`).
"""

import struct
from typing import Final

from headgate.connector.data_error import DataError

_HEAD: Final = struct.Struct(">bI")
_MAGIC: Final = 0


def head(schema_id: int) -> bytes:
    return _HEAD.pack(_MAGIC, schema_id)


def split(data: bytes) -> tuple[int, bytes]:
    """Return the schema's id, and the bytes after it.

    Raises:
        DataError: the bytes do not begin with a schema's id.
    """
    if len(data) < _HEAD.size:
        raise DataError(
            f"{len(data)} bytes, expected at least {_HEAD.size}: a zero and the schema's id; "
            "was this written by another converter?"
        )
    magic, schema_id = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise DataError(
            f"Unknown magic byte! It is {magic & 0xFF:#04x}, expected 0x00 and then the schema's "
            "id; was this written by another converter?"
        )
    return schema_id, data[_HEAD.size :]
