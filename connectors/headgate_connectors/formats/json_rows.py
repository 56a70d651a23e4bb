"""Converts JSON objects to values of the schema that ``json.types`` declares.

An object is refused if a member is not a value of its type, or is not declared. Nothing is dropped
or guessed, and nothing is rounded except to a float. A missing member is null.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from headgate.connector import schema as s
from headgate.connector.schema import Schema
from headgate_connectors.files.reader import Row
from headgate_connectors.formats.csv_types import Parse, column
from headgate_connectors.formats.text_checks import is_utf8

_NUMBERS: Final = ("int8", "int16", "int32", "int64", "float32", "float64")
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity")
"""Texts that are accepted as floats. DirectorySink writes them so."""


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


class JsonRows:
    """Parses JSON objects whose members have the declared `types`."""

    def __init__(self, types: Mapping[str, str]) -> None:
        made = {name: column(kind, None) for name, kind in types.items()}
        self.types = types
        self.schema: Schema = s.struct({name: one.as_optional() for name, (one, _) in made.items()})
        self._members: Mapping[str, tuple[str, Parse]] = {
            name: (types[name], parse) for name, (_, parse) in made.items()
        }
        self._nulls: Mapping[str, Any] = dict.fromkeys(types)
        self.parsers = [parse for _, parse in made.values()]

    def value(self, text: str) -> dict[str, Any]:
        """Return the members of the JSON object in a text.

        Raises:
            ValueError: the text is not such an object. The message says why.
        """
        try:
            found = json.loads(
                text,
                object_pairs_hook=tuple,
                parse_constant=_refuse,
                parse_int=_Number,
                parse_float=_Number,
            )
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not JSON: {error}") from None
        if type(found) is not tuple:
            raise ValueError(f"{_name(found)}, expected an object, as json.types is set")
        row = dict(self._nulls)
        if len({name for name, _ in found}) != len(found):
            raise ValueError("an object that has a member twice, expected each once")
        for name, value in found:
            if name not in row:
                raise ValueError(
                    f"member {name} is not in json.types ({', '.join(self.types)}): add it there"
                )
            if value is not None:
                row[name] = self._member(name, value)
        return row

    def _member(self, name: str, value: Any) -> Any:
        kind, parse = self._members[name]
        try:
            if kind == "boolean":
                if isinstance(value, bool):
                    return value
                raise ValueError("expected boolean, true or false without quotes")
            is_number = isinstance(value, _Number) or (
                kind.startswith("float") and value in _NO_NUMBERS
            )
            if not isinstance(value, str) or (kind in _NUMBERS and not is_number):
                raise ValueError(f"expected {kind}")
            if is_number and kind not in _NUMBERS and not kind.startswith("decimal"):
                raise ValueError(f"expected {kind} as text")
            if not is_number and not is_utf8(value):
                raise ValueError("expected text that has a form in UTF-8")
            return parse(str(value))
        except ValueError as error:
            shown = value if isinstance(value, _Number) else _shown(value)
            raise ValueError(f"member {name} is {shown}, {error}") from None


def typed_row(
    typed: JsonRows, start: int, end: int, text: str, crc: int, prefix: int | None
) -> Row:
    """Return the row of a text with one JSON value. If it is refused, the row has the reason."""
    try:
        return Row(start, end, typed.value(text), None, crc, prefix)
    except ValueError as error:
        return Row(start, end, None, str(error), crc, prefix)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _name(value: Any) -> str:
    kinds = {_Number: "a number", str: "a text", bool: "a boolean", list: "a list"}
    return kinds.get(type(value), "null")


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
