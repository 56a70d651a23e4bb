"""Values of Connect from bytes of Avro, one after the other."""

from collections.abc import Callable
from typing import Any, BinaryIO

import fastavro

from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema
from headgate_registry.avro_read import reader_of
from headgate_registry.avro_tree import Tree


def stream_reader(tree: Tree) -> tuple[Schema, Callable[[BinaryIO, str], Any]]:
    """The schema of Connect, and what reads the next value of a stream; it is told what to call its
    bytes. It raises `DataError` where they are none of the schema, or have no form in Connect.

    Raises:
        DataError: Connect has no such schema.
    """
    made = reader_of(tree)
    parsed, decode = parsed_schema(tree), made.decode

    def read(stream: BinaryIO, what: str) -> Any:
        try:
            value: Any = fastavro.schemaless_reader(
                stream,
                parsed,
                None,
                return_record_name=True,
                return_record_name_override=True,
            )
        except Exception as error:  # EOFError, IndexError, UnicodeDecodeError and others
            raise DataError(
                f"{what} are no Avro of their schema: {type(error).__name__}: {error}"
            ) from error
        return value if decode is None else decode(value)

    return made.schema, read


def parsed_schema(tree: Tree) -> Any:
    """As fastavro takes it.

    Raises:
        DataError: it is none.
    """
    try:
        return fastavro.parse_schema(tree.bare)
    except Exception as error:  # its own exceptions, KeyError, TypeError
        raise DataError(f"no schema of Avro: {error}") from error
