"""How a file of each format is read on from a position, row by row, while it may still grow.

A reader never passes over what it did not understand in silence: each piece of the file becomes a
row with a value, a row with a reason, or stays unread.
"""

import csv
import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headgate.connector.schema import Schema
from headgate_connectors import json_text
from headgate_connectors.directory_reader import FileFault, NotReady, Reader, Row

CHUNK_BYTES = 1 << 20
ROW_BYTES_MAX = 1 << 20
"""A CSV row that is longer has lost its closing quote."""
BOM = b"\xef\xbb\xbf"

csv.field_size_limit(ROW_BYTES_MAX)


def open_reader(
    format: str, path: Path, offset: Mapping[str, Any] | None, *, check_json: bool
) -> Reader:
    """A reader of `format` (lines, jsonl, csv, tsv, parquet) that goes on at a source offset.

    Raises:
        FileFault: the file was truncated or replaced since the offset was taken, or is corrupt.
        NotReady: it is not complete enough to be opened.
    """
    match format:
        case "csv" | "tsv":
            return CsvReader(path, offset, "\t" if format == "tsv" else ",")
        case "parquet":
            from headgate_connectors.directory_parquet import ParquetReader

            return ParquetReader(path, offset)
        case _:
            jsonl = format == "jsonl"
            return LineReader(path, offset, check_json=check_json and jsonl, jsonl=jsonl)


def open_at(path: Path, offset: Mapping[str, Any] | None) -> tuple[io.BufferedReader, int]:
    """The file, sought to the offset's position, after a check that it is still the same file.

    Raises:
        FileFault: it is not.
    """
    file = path.open("rb")
    try:
        return file, _seek(file, offset)
    except BaseException:
        file.close()
        raise


def _seek(file: io.BufferedReader, offset: Mapping[str, Any] | None) -> int:
    if offset is None:
        return 0
    position = offset.get("position")
    if not isinstance(position, int) or isinstance(position, bool) or position < 0:
        raise FileFault(f"its source offset {dict(offset)} has no position of 0 or more")
    size = file.seek(0, io.SEEK_END)
    if size < position:
        raise FileFault(
            f"it was read up to byte {position} and is only {size} bytes long now: truncated or "
            "replaced. Give new data a new name, or alter the connector's offset for the file"
        )
    start, crc = offset.get("start"), offset.get("crc")
    if isinstance(start, int) and isinstance(crc, int) and 0 <= start <= position:
        file.seek(start)
        if zlib.crc32(file.read(position - start)) != crc:
            raise FileFault(
                f"bytes {start} to {position} are not what was read there before: replaced. Give "
                "new data a new name, or alter the connector's offset for the file"
            )
    file.seek(position)
    return position


class LineReader:
    """Lines of UTF-8, ended by LF or CRLF. As JSON Lines, blank ones are no rows and each must be
    one JSON value (unless the check is off)."""

    def __init__(
        self, path: Path, offset: Mapping[str, Any] | None, *, check_json: bool, jsonl: bool
    ) -> None:
        self._check = check_json
        self._jsonl = jsonl
        self._file, self._position = open_at(path, offset)
        self._data = b""  # read, not yet rows; starts at the position
        self._open_line = self._ends_open()

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
            chunk = self._file.read(CHUNK_BYTES)
            self._data = rest + chunk if chunk else rest
            if not chunk:
                if settled and rest:
                    self._take_last(rest, rows)
                break
        return rows

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
                end, lines = end + len(lines[0]) + 1, lines[1:]
        append, crc32, jsonl, check = rows.append, zlib.crc32, self._jsonl, self._check
        for line in lines:
            start, end = end, end + len(line) + 1
            crc = crc32(b"\n", crc32(line))
            if line[-1:] == b"\r":
                line = line[:-1]
            if start == 0 and line.startswith(BOM):
                line = line[3:]
            if jsonl and (not line or line.isspace()):
                continue
            try:
                text = line.decode()
            except UnicodeDecodeError as error:
                append(Row(start, end, None, f"not UTF-8: {error}", crc))
                continue
            if check and (fault := json_text.fault(line)) is not None:
                append(Row(start, end, None, f"not JSON: {fault}", crc))
            else:
                append(Row(start, end, text, None, crc))
        self._position = end

    def _take_last(self, line: bytes, rows: list[Row]) -> None:
        """The end of the file, without a newline, which has been still. What is no value is most
        likely half written, and stays unread until the file changes."""
        start = self._position
        end = start + len(line)
        text = (line[3:] if start == 0 and line.startswith(BOM) else line).rstrip(b"\r")
        if self._jsonl and not text.strip():
            return
        reason = json_text.fault(text) if self._check else None
        try:
            value = text.decode()
        except UnicodeDecodeError as error:
            reason, value = f"not UTF-8: {error}", ""
        if reason is not None:
            half = f"the last line has no newline and looks half written ({reason})"
            rows.append(Row(start, start, None, half, 0))
            return
        rows.append(Row(start, end, value, None, zlib.crc32(line)))
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
    """Rows of a CSV file with a header row, as JSON objects whose values are the texts that stand
    there. Quoted fields may hold newlines. Source: RFC 4180.

    A row that does not parse, or has not as many fields as the header, is bad: its first line is
    passed over and reading goes on at the next line, so that a lost quote costs one row.
    """

    def __init__(self, path: Path, offset: Mapping[str, Any] | None, delimiter: str) -> None:
        self._delimiter = delimiter
        self._settled = False
        self._file, position = open_at(path, offset)
        self._row_start = self._position = self._crc = 0
        self._at_end = self._ended_line = False
        self._file.seek(0)
        try:
            self._columns = self._header()
        except BaseException:
            self._file.close()
            raise
        self._position = max(position, self._position)

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
                if not self._take_bad(str(error), rows):
                    break
                parser = self._parser(self._position)
                continue
            if fields is None:
                break
            end = self._read_to
            if fields and len(fields) != len(self._columns):
                reason = f"{len(fields)} fields, but the header row has {len(self._columns)}"
                if not self._take_bad(reason, rows):
                    break
                parser = self._parser(self._position)
                continue
            self._position = end
            if fields:  # a blank line is no row
                value = json_text.text_of(dict(zip(self._columns, fields, strict=True)))
                rows.append(Row(start, end, value, None, self._crc))
        return rows

    @property
    def has_tail(self) -> bool:
        self._file.seek(self._position)
        return bool(self._file.read(ROW_BYTES_MAX).strip())

    @property
    def schema(self) -> Schema | None:
        return None

    def close(self) -> None:
        self._file.close()

    def _header(self) -> list[str]:
        self._settled = True  # so that a header without newline is seen, and told from none
        self._row_start, self._crc = 0, 0
        try:
            columns = next(self._parser(0), None)
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFault(f"the header row does not parse: {error}") from error
        if not columns or not self._ended_line:
            raise NotReady("its header row is not complete")
        if len(set(columns)) != len(columns):
            raise FileFault(f"the header row names a column twice: {', '.join(columns)}")
        self._position = self._read_to
        return columns

    def _parser(self, position: int) -> Iterator[list[str]]:
        self._file.seek(position)
        self._read_to = position
        return csv.reader(self._lines(), delimiter=self._delimiter, strict=True)

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
            if self._read_to + len(line) - self._row_start > ROW_BYTES_MAX:
                raise csv.Error(f"a row longer than {ROW_BYTES_MAX} bytes; is a quote missing?")
            first = self._read_to == 0 and line.startswith(BOM)
            self._read_to += len(line)
            yield (line[3:] if first else line).decode()

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
        self._position = start + len(line)
        rows.append(Row(start, self._position, None, f"bad CSV row: {reason}", zlib.crc32(line)))
        return True
