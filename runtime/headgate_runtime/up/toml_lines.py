"""The lines of a TOML file on which its keys stand. Errors need them, and `tomllib` does not give
them.

`index` is a scanner of keys, not a parser. It is for text that `tomllib` has accepted. For text
that was refused, it returns the keys before the place where it stopped understanding.
"""

import contextlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]
"""A key with the tables above it: ``("connectors", "events", "tasks.max")``."""

_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@dataclass(slots=True)
class LineIndex:
    """Lines of tables and keys, counted from 1."""

    lines: dict[Path, int] = field(default_factory=dict)
    """First line on which a table or key is named, also as part of a longer key."""
    repeated: list[tuple[Path, int, int]] = field(default_factory=list)
    """Repetitions, which TOML forbids: path, first line, second line."""

    def line(self, path: Path) -> int | None:
        """Line of `path`, or of the nearest table above it that the file names."""
        for size in range(len(path), 0, -1):
            found = self.lines.get(path[:size])
            if found is not None:
                return found
        return None


def index(text: str) -> LineIndex:
    scanner = _Scanner(text)
    # The text was refused by tomllib: the result has what was found before the fault.
    with contextlib.suppress(_NotUnderstood):
        scanner.document()
    return scanner.found


class _NotUnderstood(Exception):
    pass


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.position = 0
        self.found = LineIndex()
        self._defined: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while True:
            self._skip(" \t\n", comments=True)
            if self.position >= len(self.text):
                return
            if self.text[self.position] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        line = self._line()
        several = self.text.startswith("[[", self.position)
        self.position += 2 if several else 1
        path = self._key()
        self._expect("]]" if several else "]")
        self._name(path, line, define=not several)
        return path

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table + self._key()
        self._name(path, line, define=True)
        self._expect("=")
        self._skip(" \t")
        self._value(path)

    def _name(self, path: Path, line: int, *, define: bool) -> None:
        for size in range(1, len(path) + 1):
            self.found.lines.setdefault(path[:size], line)
        if not define:
            return
        if path in self._defined:
            self.found.repeated.append((path, self._defined[path], line))
        self._defined.setdefault(path, line)

    def _key(self) -> Path:
        parts: list[str] = []
        while True:
            self._skip(" \t")
            start = self.position
            if self.text[start : start + 1] in ('"', "'"):
                self._string()
                parts.append(_unquoted(self.text[start : self.position]))
            else:
                while self.text[self.position : self.position + 1] in _BARE:
                    self.position += 1
                if self.position == start:
                    raise _NotUnderstood
                parts.append(self.text[start : self.position])
            self._skip(" \t")
            if self.text[self.position : self.position + 1] != ".":
                return tuple(parts)
            self.position += 1

    def _value(self, path: Path) -> None:
        first = self.text[self.position : self.position + 1]
        if first in ('"', "'"):
            self._string()
        elif first == "[":
            self.position += 1
            self._items("]", path)
        elif first == "{":
            self.position += 1
            self._items("}", path)
        else:
            start = self.position
            while self.text[self.position : self.position + 1] not in (*",]}\n#", ""):
                self.position += 1
            if not self.text[start : self.position].strip():
                raise _NotUnderstood

    def _items(self, closing: str, path: Path) -> None:
        """Read the items of an array, or the pairs of an inline table."""
        while True:
            self._skip(" \t\n,", comments=True)
            if self.position >= len(self.text):
                raise _NotUnderstood
            if self.text[self.position] == closing:
                self.position += 1
                return
            if closing == "}":
                self._pair(path)
            else:
                self._value(path)

    def _string(self) -> None:
        quote = self.text[self.position]
        if self.text.startswith(quote * 3, self.position):
            self.position += 3
            self._past(quote * 3, escapes=quote == '"')
            # Up to two more quotes may belong to the text: """" ends a text that ends with a quote.
            while self.text[self.position : self.position + 1] == quote:
                self.position += 1
            return
        self.position += 1
        self._past(quote, escapes=quote == '"')

    def _past(self, end: str, *, escapes: bool) -> None:
        while self.position < len(self.text):
            if escapes and self.text[self.position] == "\\":
                self.position += 2
            elif self.text.startswith(end, self.position):
                self.position += len(end)
                return
            elif self.text[self.position] == "\n" and len(end) == 1:
                raise _NotUnderstood
            else:
                self.position += 1
        raise _NotUnderstood

    def _expect(self, token: str) -> None:
        self._skip(" \t")
        if not self.text.startswith(token, self.position):
            raise _NotUnderstood
        self.position += len(token)

    def _skip(self, blanks: str, *, comments: bool = False) -> None:
        while self.position < len(self.text):
            if self.text[self.position] in blanks:
                self.position += 1
            elif comments and self.text[self.position] == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            else:
                return

    def _line(self) -> int:
        return self.text.count("\n", 0, self.position) + 1


def _unquoted(raw: str) -> str:
    try:
        parsed: Mapping[str, object] = tomllib.loads(f"key = {raw}")
    except tomllib.TOMLDecodeError as error:
        raise _NotUnderstood from error
    return str(parsed["key"])
