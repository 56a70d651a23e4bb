"""Reads a file that is one JSON array. Each element is a row: its text in the file, on one line."""

import codecs
import json
import re
import zlib
from typing import Any

from headgate.connector.schema import Schema
from headgate_connectors.files.input import Input, Marks
from headgate_connectors.files.reader import FileFault, ReadOptions, Row, RowBatch
from headgate_connectors.formats.json_rows import JsonRows, typed_row

CHUNK_BYTES = 1 << 18
_SPACE = " \t\n\r"
_BREAKS = re.compile(r"[ \t]*[\r\n][ \t\r\n]*")
"""Matches line ends. They are always between values, since a JSON string cannot contain one."""


_CUT_NUMBER = re.compile(r"\.|[eE][+-]?")
"""Matches what may follow the decoded part of a number that is cut off."""


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# Numbers stay text, because an element is only checked and not converted.
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=str, parse_int=str)


class ArrayReader:
    """Reads the elements of a JSON array.

    A position is the byte after an element. An element that is not JSON makes the rest of the file
    unreadable, since it is not known where the element ends.
    """

    def __init__(self, opened: Input, options: ReadOptions) -> None:
        self._input = opened
        self._encoding = options.encoding
        self._decoder = codecs.getincrementaldecoder(options.encoding)()
        self._position = opened.position
        self._prefix = opened.prefix
        self._text = ""
        """Decoded text that is not made into rows yet. It starts at the position."""
        self._raw = b""
        """Bytes of `_text`, followed by bytes that are not decoded yet."""
        self._at_end = False
        self._closed = False
        self._first = opened.position == 0
        self._typed = JsonRows(options.json_types) if options.json_types else None

    @property
    def marks(self) -> Marks:
        return self._input.marks

    def read(self, limit: int, settled: bool) -> list[Row]:
        rows: list[Row] = []
        try:
            while len(rows) < limit and (row := self._next()) is not None:
                rows.append(row)
        except FileFault:
            if not rows:
                raise
            return rows  # the next call raises the fault again
        if not rows and self._at_end:
            self._input.refuse_cut()
            if settled and not self._closed and self._text.strip(_SPACE + "\ufeff"):
                half = "the array has no end: the file looks half written"
                rows.append(Row(self._position, self._position, None, half, 0))
        return rows

    @property
    def schema(self) -> Schema | None:
        return None if self._typed is None else self._typed.schema

    def read_batch(self, limit: int) -> RowBatch | None:
        return None

    @property
    def has_tail(self) -> bool:
        return not self._closed and bool(self._text.strip(_SPACE) or self._position)

    def close(self) -> None:
        self._input.file.close()

    def _next(self) -> Row | None:
        """Return the next element. None: there is none, or it is not complete yet."""
        if self._closed:
            return None
        start = self._skip(0)
        if start is None:
            return None
        opener = "[" if self._first else ","
        if self._text[start] == "]" and not self._first:
            self._end(start)
            return None
        if self._text[start] != opener:
            raise self._fault(start, f"expected {opener!r} or the end of the array")
        start = self._skip(start + 1)
        if start is None:
            return None
        if self._first and self._text[start] == "]":
            self._end(start)
            return None
        found = self._element(start)
        if found is None:
            return None
        self._first = False
        return self._row(start, found)

    def _end(self, at: int) -> None:
        """End the array at its closing bracket. Raises FileFault if anything but space follows
        it."""
        rest = self._skip(at + 1)
        if rest is not None:
            raise self._fault(rest, "something follows the end of the array")
        self._closed = True

    def _element(self, start: int) -> int | None:
        """Return the index after the element that begins at `start`. None: it is not complete
        yet."""
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, start)
            except RecursionError as error:
                raise self._fault(start, f"not JSON: {error}") from error
            except ValueError as error:
                # A text that is cut off may not be JSON yet.
                if self._more(len(self._text)):
                    continue
                if self._at_end and self._looks_cut(error, start):
                    return None
                raise self._fault(start, f"not JSON: {error}") from error
            if self._skip(end) is None:
                return None  # the element may be a number that goes on
            if _CUT_NUMBER.fullmatch(self._text, end):
                if self._more(0):
                    continue
                return None
            return end

    def _looks_cut(self, error: ValueError, start: int) -> bool:
        """Return whether the text looks as if only its end were missing."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        cut = error.msg.startswith(("Unterminated string", "Invalid \\escape"))
        rest = self._text[error.pos :].strip(_SPACE)
        return cut or not rest or rest == "-" or (rest.isalpha() and len(rest) < 9)

    def _row(self, start: int, end: int) -> Row:
        before, size = self._bytes_of(start), self._bytes_of(end)
        first, last = self._position + before, self._position + size
        if self._prefix is not None:
            self._prefix = zlib.crc32(self._raw[:size], self._prefix)
        value = _BREAKS.sub("", self._text[start:end])
        crc = zlib.crc32(self._raw[before:size])
        self._text, self._raw, self._position = self._text[end:], self._raw[size:], last
        if self._typed is not None:
            return typed_row(self._typed, first, last, value, crc, self._prefix)
        return Row(first, last, value, None, crc, self._prefix)

    def _bytes_of(self, count: int) -> int:
        """Return how many bytes of the file the first `count` characters have. Python's encoder may
        give other bytes, since some encodings have several forms of a character."""
        try:
            made = self._text[:count].encode(self._encoding)
        except UnicodeEncodeError:
            made = None
        if made is not None and self._raw.startswith(made):
            return len(made)
        decoder = codecs.getincrementaldecoder(self._encoding)()
        size = decoded = 0
        while decoded < count:
            decoded += len(decoder.decode(self._raw[size : size + 1]))
            size += 1
        return size

    def _skip(self, index: int) -> int | None:
        """Return the index of the first character from `index` on that is not space. None: there is
        none yet."""
        while True:
            while index < len(self._text) and self._text[index] in _SPACE:
                index += 1
            bom = index == self._position == 0 and self._text[:1] == "\ufeff"
            if index < len(self._text) and not bom:
                return index
            if bom:
                index += 1
            elif not self._more(0):
                return None

    def _more(self, wanted: int) -> bool:
        """Read at least a chunk, or `wanted` bytes. Returns False if there is no more now."""
        size = max(CHUNK_BYTES, wanted)
        chunk = self._input.file.read(size)
        self._at_end = not chunk
        try:
            self._text += self._decoder.decode(chunk)
            self._raw += chunk
        except UnicodeDecodeError as error:
            raise FileFault(f"not {self._encoding}: {error}; is it in another encoding?") from error
        return bool(chunk)

    def _fault(self, at: int, reason: str) -> FileFault:
        position = self._position + self._bytes_of(at)
        return FileFault(
            f"this is one JSON array, and at byte {position} {reason}. Lines of JSON need "
            "format = jsonl"
        )


def is_array(file: Any) -> bool | None:
    """Return whether a file begins like a JSON array. None: the file has no content yet."""
    file.seek(0)
    first = file.read(1 << 12).removeprefix(b"\xef\xbb\xbf").lstrip()
    file.seek(0)
    return first[:1] == b"[" if first else None
