"""Properties files as Java reads them (`java.util.Properties.load`), with the line of each key.

Differs: a file that is valid UTF-8 is read as UTF-8, and any other as ISO-8859-1, which Java always
uses. For ASCII it is the same. Halves of surrogate pairs are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import javaproperties


class PropertiesError(Exception):
    """The file cannot be read. The message names the file, and the line if there is one."""


@dataclass(frozen=True, slots=True)
class Properties:
    """Properties of a file, in its order. If a key is repeated, the last value counts, as in
    Java."""

    file: str
    values: Mapping[str, str]
    lines: Mapping[str, int]
    """Key -> line on which it begins, counted from 1."""
    repeated: tuple[str, ...] = ()

    def place(self, key: str) -> str:
        """``file:line`` of a key, or the file for one that is missing."""
        return f"{self.file}:{self.lines[key]}" if key in self.lines else self.file


def read_properties(path: str | Path) -> Properties:
    """Read a properties file.

    Raises:
        PropertiesError: there is no such file, it is not readable, or has a malformed escape.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise PropertiesError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise PropertiesError(f"{path}: is a folder, expected a properties file") from None
    except OSError as error:
        raise PropertiesError(f"{path}: cannot be read: {error.strerror}") from None
    return properties_of(data, str(path))


def properties_of(data: bytes, file: str) -> Properties:
    """Parse a file's content as `parse_properties` does."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    return parse_properties(text, file)


def parse_properties(text: str, file: str) -> Properties:
    """Return the properties in `text`. Errors name it by `file`."""
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    repeated: list[str] = []
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                _check_pairs(element, f"{file}:{line + _blank_lines(element.source)}")
                if element.key in values:
                    repeated.append(element.key)
                values[element.key] = element.value
                lines[element.key] = line + _blank_lines(element.source)
            line += _line_ends(element.source)
    except javaproperties.InvalidUEscapeError as error:
        raise PropertiesError(f"{file}:{line}: {error}; expected \\u and four digits") from None
    return Properties(file, values, lines, tuple(dict.fromkeys(repeated)))


def _check_pairs(element: javaproperties.KeyValue, place: str) -> None:
    """Refuse halves of surrogate pairs. Java writes them as question marks, which changes the
    value."""
    try:
        f"{element.key}{element.value}".encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise PropertiesError(
            f"{place}: half of a surrogate pair, {half!a}, which no text can have"
        ) from None


def _line_ends(source: str) -> int:
    return len(source.replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1


def _blank_lines(source: str) -> int:
    return _line_ends(source[: len(source) - len(source.lstrip())])
