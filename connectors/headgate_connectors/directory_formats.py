"""How a file of each format is read on from a position, row by row, while it may still grow.

A reader never passes over what it did not understand in silence: each piece of the file becomes a
row with a value, a row with a reason, or stays unread.
"""

import csv
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headgate.connector.schema import Schema
from headgate_connectors import json_text
from headgate_connectors.directory_array import ArrayReader, is_array
from headgate_connectors.directory_input import Input, Marks, open_input
from headgate_connectors.directory_reader import (
    FileFault,
    NotReady,
    Reader,
    ReadOptions,
    Row,
    RowBatch,
)

CHUNK_BYTES = 1 << 20
ROW_BYTES_MAX = 1 << 20
"""A CSV row that is longer has lost its closing quote."""
BOM = b"\xef\xbb\xbf"

csv.field_size_limit(ROW_BYTES_MAX)


def open_reader(
    format: str,
    path: Path,
    offset: Mapping[str, Any] | None,
    compression: str | None,
    options: ReadOptions,
) -> Reader:
    """A reader of `format` (lines, jsonl, json, csv, tsv, parquet) that goes on at a source offset.

    Raises:
        FileFault: the file was truncated or replaced since the offset was taken, or is corrupt.
        NotReady: it is not complete enough to be opened.
    """
    if format == "parquet":
        from headgate_connectors.directory_parquet import ParquetReader

        return ParquetReader(path, offset)
    opened = open_input(path, offset, compression)
    try:
        return _reader(format, opened, options)
    except BaseException:
        opened.file.close()
        raise


def _reader(format: str, opened: Input, options: ReadOptions) -> Reader:
    if format in ("csv", "tsv"):
        tab = format == "tsv" and options.delimiter == ","
        return CsvReader(opened, replace(options, delimiter="\t") if tab else options)
    if format == "json":
        array = is_array(opened.file)
        opened.file.seek(opened.position)
        if array:
            return ArrayReader(opened, options)
    return LineReader(opened, options, jsonl=format != "lines")


def _not_text(encoding: str, error: UnicodeDecodeError) -> str:
    name = "UTF-8" if encoding == "utf-8" else encoding
    return f"not {name}: {error}; if the file has another encoding, set encoding"


class LineReader:
    """Lines of text, ended by LF or CRLF. As JSON Lines, blank ones are no rows and each must be
    one JSON value (unless the check is off)."""

    def __init__(self, opened: Input, options: ReadOptions, *, jsonl: bool) -> None:
        self._check = options.check_json and jsonl
        self._jsonl = jsonl
        self._encoding = options.encoding
        self._input, self._file = opened, opened.file
        self._position, self._prefix = opened.position, opened.prefix
        self._data = b""  # read, not yet rows; starts at the position
        self._open_line = self._ends_open()

    @property
    def marks(self) -> Marks:
        return self._input.marks

    def read(self, limit: int, settled: bool) -> list[Row]:
        rows: list[Row] = []
        while len(rows) < limit:
            room = limit - len(rows)
            lines = self._data.split(b"\n", room)
            rest = lines.pop()
            self._take(lines, rows)
            self._data = rest
            if len(lines) == room:
                continue  # full, or some were blank and `rest` has more
            try:
                chunk = self._file.read(CHUNK_BYTES)
            except FileFault:
                if not rows:
                    raise
                self._data = rest
                break  # the next call meets it again
            self._data = rest + chunk if chunk else rest
            if not chunk:
                if not rows:
                    self._input.refuse_cut()
                if settled and rest:
                    self._take_last(rest, rows)
                break
        return rows

    def read_batch(self, limit: int) -> RowBatch | None:
        return None

    @property
    def has_tail(self) -> bool:
        return bool(self._data.strip() if self._jsonl else self._data)

    @property
    def schema(self) -> Schema | None:
        return None

    def close(self) -> None:
        self._file.close()

    def _take(self, lines: list[bytes], rows: list[Row]) -> None:
        end = self._position
        if lines and self._open_line:
            self._open_line = False
            if lines[0] in (b"", b"\r"):  # the end of a line that is a row already
                line_end = lines[0] + b"\n"
                end, lines = end + len(line_end), lines[1:]
                self._add_to_prefix(line_end)
        append, crc32, jsonl, check = rows.append, zlib.crc32, self._jsonl, self._check
        prefix, encoding = self._prefix, self._encoding
        for line in lines:
            start, end = end, end + len(line) + 1
            crc = crc32(b"\n", crc32(line))
            if prefix is not None:
                prefix = crc32(b"\n", crc32(line, prefix))
            if line[-1:] == b"\r":
                line = line[:-1]
            if start == 0 and line.startswith(BOM):
                line = line[3:]
            if jsonl and (not line or line.isspace()):
                continue
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError as error:
                append(Row(start, end, None, _not_text(encoding, error), crc, prefix))
                continue
            json = line if encoding == "utf-8" else text.encode()
            if check and (fault := json_text.fault(json)) is not None:
                append(Row(start, end, None, f"not JSON: {fault}", crc, prefix))
            else:
                append(Row(start, end, text, None, crc, prefix))
        self._position, self._prefix = end, prefix

    def _add_to_prefix(self, data: bytes) -> None:
        if self._prefix is not None:
            self._prefix = zlib.crc32(data, self._prefix)

    def _take_last(self, line: bytes, rows: list[Row]) -> None:
        """The end of the file, without a newline, which has been still. What is no value is most
        likely half written, and stays unread until the file changes."""
        start = self._position
        end = start + len(line)
        text = (line[3:] if start == 0 and line.startswith(BOM) else line).rstrip(b"\r")
        if self._jsonl and not text.strip():
            return
        reason = None
        try:
            value = text.decode(self._encoding)
            reason = json_text.fault(value.encode()) if self._check else None
        except UnicodeDecodeError as error:
            reason, value = _not_text(self._encoding, error), ""
        if reason is not None:
            half = f"the last line has no newline and looks half written ({reason})"
            rows.append(Row(start, start, None, half, 0))
            return
        self._add_to_prefix(line)
        rows.append(Row(start, end, value, None, zlib.crc32(line), self._prefix))
        self._data = b""
        self._position = end
        self._open_line = True

    def _ends_open(self) -> bool:
        """Whether the last row was a line without its newline, which may have come since."""
        if self._position == 0:
            return False
        self._file.seek(self._position - 1)
        return self._file.read(1) != b"\n"


class CsvReader:
    """Rows of a CSV file as JSON objects whose values are the texts that stand there. Their names
    are in the header row; without one they are c1, c2 and so on, as many as the first row has.
    Quoted fields may hold newlines. Source: RFC 4180.

    A row that does not parse, or has not as many fields as the header, is bad: its first line is
    passed over and reading goes on at the next line, so that a lost quote costs one row.
    """

    def __init__(self, opened: Input, options: ReadOptions) -> None:
        self._options = options
        self._settled = False
        self._input, self._file = opened, opened.file
        position = opened.position
        self._row_start = self._position = self._crc = 0
        self._at_end = self._ended_line = False
        self._columns = self._header()
        if position > self._position:
            self._position, self._prefix = position, opened.prefix

    @property
    def marks(self) -> Marks:
        return self._input.marks

    def read(self, limit: int, settled: bool) -> list[Row]:
        self._settled = settled
        rows: list[Row] = []
        parser = self._parser(self._position)
        while len(rows) < limit:
            start = self._position
            self._row_start, self._crc = start, 0
            try:
                fields = next(parser, None)
            except (csv.Error, UnicodeDecodeError) as error:
                if not self._take_bad(self._told(error), rows):
                    break
                parser = self._parser(self._position)
                continue
            if fields is None:
                if not rows:
                    self._input.refuse_cut()
                break
            end = self._read_to
            if fields and len(fields) != len(self._columns):
                first = "header" if self._options.header else "first"
                reason = f"{len(fields)} fields, but the {first} row has {len(self._columns)}"
                if not self._take_bad(reason, rows):
                    break
                parser = self._parser(self._position)
                continue
            self._position, self._prefix = end, self._read_prefix
            if fields:  # a blank line is no row
                value = self._value(fields)
                rows.append(Row(start, end, value, None, self._crc, self._prefix))
        return rows

    def read_batch(self, limit: int) -> RowBatch | None:
        return None

    @property
    def has_tail(self) -> bool:
        if not self._columns:
            return False
        self._file.seek(self._position)
        return bool(self._file.read(ROW_BYTES_MAX).strip())

    @property
    def schema(self) -> Schema | None:
        return None

    def close(self) -> None:
        self._file.close()

    def _value(self, fields: list[str]) -> str:
        row: dict[str, Any] = dict(zip(self._columns, fields, strict=True))
        null = self._options.null
        if null is not None:
            row = {name: None if text == null else text for name, text in row.items()}
        return json_text.text_of(row)

    def _header(self) -> list[str]:
        """Names of the columns; the position is after the header row, if there is one."""
        self._settled = True  # so that a header without newline is seen, and told from none
        self._row_start, self._crc, self._prefix = 0, 0, 0
        try:
            columns = next(self._parser(0), None)
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFault(f"the header row does not parse: {self._told(error)}") from error
        if not self._options.header:
            return [f"c{number}" for number in range(1, len(columns or ()) + 1)]
        if not columns or not self._ended_line:
            self._input.refuse_cut()
            raise NotReady("its header row is not complete")
        if len(set(columns)) != len(columns):
            raise FileFault(f"the header row names a column twice: {', '.join(columns)}")
        self._position, self._prefix = self._read_to, self._read_prefix
        return columns

    def _told(self, error: Exception) -> str:
        if isinstance(error, UnicodeDecodeError):
            return _not_text(self._options.encoding, error)
        return str(error)

    def _parser(self, position: int) -> Iterator[list[str]]:
        self._file.seek(position)
        self._read_to, self._read_prefix = position, self._prefix
        options = self._options
        return csv.reader(
            self._lines(),
            delimiter=options.delimiter,
            quotechar=options.quote,
            quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )

    def _lines(self) -> Iterator[str]:
        """Lines as the parser asks for them; keeps what it has read of the current row."""
        while True:
            line = self._file.readline(ROW_BYTES_MAX + 1)
            self._ended_line = line[-1:] == b"\n"
            if not line or not (self._ended_line or self._settled):
                self._at_end = True
                return
            self._at_end = False
            self._crc = zlib.crc32(line, self._crc)
            if self._read_prefix is not None:
                self._read_prefix = zlib.crc32(line, self._read_prefix)
            if self._read_to + len(line) - self._row_start > ROW_BYTES_MAX:
                raise csv.Error(f"a row longer than {ROW_BYTES_MAX} bytes; is a quote missing?")
            first = self._read_to == 0 and line.startswith(BOM)
            self._read_to += len(line)
            yield (line[3:] if first else line).decode(self._options.encoding)

    def _take_bad(self, reason: str, rows: list[Row]) -> bool:
        """Pass over the first line of the bad row. False: it may yet become good."""
        start = self._row_start
        if self._at_end and not self._settled:
            return False  # an open quote at the end of what is there
        self._file.seek(start)
        line = self._file.readline(ROW_BYTES_MAX + 1)
        if line[-1:] != b"\n" and not self._file.read(1):
            half = f"the last row has no newline and looks half written ({reason})"
            rows.append(Row(start, start, None, half, 0))
            return False
        self._position, crc = start + len(line), zlib.crc32(line)
        if self._prefix is not None:
            self._prefix = zlib.crc32(line, self._prefix)
        rows.append(Row(start, self._position, None, f"bad CSV row: {reason}", crc, self._prefix))
        return True
