"""Compilation of .proto files by Google's own compiler, which is in the package grpcio-tools."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import google.type
from confluent_kafka.schema_registry.confluent import meta_pb2
from google.protobuf import descriptor_pb2, descriptor_pool

from headgate.connector.data_error import DataError

MAIN: Final = "headgate_schema.proto"
DECIMAL_FILE: Final = "confluent/type/decimal.proto"
META_FILE: Final = "confluent/meta.proto"
_KNOWN: Final[Mapping[str, str]] = {
    DECIMAL_FILE: 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    META_FILE: 'syntax = "proto3"; package confluent; '
    'import "google/protobuf/descriptor.proto"; '
    "message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; } "
    "extend google.protobuf.FileOptions { Meta file_meta = 1088; } "
    "extend google.protobuf.MessageOptions { Meta message_meta = 1088; } "
    "extend google.protobuf.FieldOptions { Meta field_meta = 1088; } "
    "extend google.protobuf.EnumOptions { Meta enum_meta = 1088; } "
    "extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }",
}
"""Files that every Confluent registry has, with only the fields that are used here."""
_SECONDS: Final = 60
MESSAGE_META: Final[Any] = vars(meta_pb2)["message_meta"]


def compiled(text: str, others: Mapping[str, str]) -> tuple[Any, Any]:
    """Compile a file. Return its descriptor, and a pool that has it and all files it imports.

    Args:
        others: texts of files that it imports, by path.

    Raises:
        DataError: this is no Protobuf schema. The message has the compiler's reason.
    """
    data = _compiled(text, tuple(sorted(others.items())))
    files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    pool = descriptor_pool.DescriptorPool()
    for one in files:
        pool.Add(one)
    return files[-1], pool


@lru_cache(maxsize=256)
def _compiled(text: str, others: tuple[tuple[str, str], ...]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="headgate-proto-") as folder:
        root = Path(folder)
        for path, content in (*_KNOWN.items(), *others, (MAIN, text)):
            place = (root / path).resolve()
            if not place.is_relative_to(root.resolve()):
                raise DataError(f"the schema imports {path!r}, expected a path below its own")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content, encoding="utf-8")
        result = root / "result"
        shared = [str(Path(one).parents[1]) for one in google.type.__path__]
        command = [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{root}"),
            *(f"-I{one}" for one in shared),
            *("--include_imports", f"--descriptor_set_out={result}", MAIN),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if done.returncode != 0:
            raise DataError(f"no schema of Protobuf: {done.stderr.strip()}")
        return result.read_bytes()
