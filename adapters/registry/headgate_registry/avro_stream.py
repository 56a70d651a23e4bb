"""A reader of Connect values from consecutive Avro values."""

from collections.abc import Callable
from typing import Any, BinaryIO

import fastavro

from headgate.connector.data_error import DataError
from headgate.connector.schema import Schema
from headgate_registry.avro_read import reader_of
from headgate_registry.avro_tree import Tree


def stream_reader(tree: Tree) -> tuple[Schema, Callable[[BinaryIO, str], Any]]:
    """Return the Connect schema, and a function that reads the next value of a stream.

    The function's second argument is a description of the bytes, for error messages. It raises
    `DataError` if the bytes do not match the schema, or the value has no form in Connect. If the
    error has no cause but another `DataError`, the stream stands behind the value.

    Raises:
        DataError: Connect cannot express the schema.
    """
    made = reader_of(tree)
    parsed, decode = parsed_schema(tree), made.decode

    def value_of(stream: BinaryIO, errors: str) -> Any:
        return fastavro.schemaless_reader(
            stream,
            parsed,
            None,
            return_record_name=True,
            return_record_name_override=True,
            handle_unicode_errors=errors,
        )

    def read(stream: BinaryIO, what: str) -> Any:
        start = stream.tell()
        try:
            value = value_of(stream, "strict")
        except UnicodeDecodeError as error:
            _pass(stream, start, value_of, what)
            raise DataError(f"a text is not UTF-8: {error}") from None
        except Exception as error:  # EOFError, IndexError and others
            raise _no_avro(what, error) from error
        return value if decode is None else decode(value)

    return made.schema, read


def _pass(
    stream: BinaryIO, start: int, value_of: Callable[[BinaryIO, str], Any], what: str
) -> None:
    """Move the stream behind a value that has a text which is not UTF-8. The length of such a text
    is known, so the end of the value is, too."""
    stream.seek(start)
    try:
        value_of(stream, "replace")
    except Exception as error:
        raise _no_avro(what, error) from error


def _no_avro(what: str, error: Exception) -> DataError:
    return DataError(f"{what} are no Avro of their schema: {type(error).__name__}: {error}")


def parsed_schema(tree: Tree) -> Any:
    """Return the schema as fastavro needs it.

    Raises:
        DataError: it is not a valid Avro schema.
    """
    try:
        return fastavro.parse_schema(tree.bare)
    except Exception as error:  # its own exceptions, KeyError, TypeError
        raise DataError(f"no schema of Avro: {error}") from error
