"""Opens a reader for a file of any format. It reads rows from a position on, while the file may
grow.

A reader never skips a piece of a file silently. Each piece becomes a row with a value, becomes a
row with a reason, or stays unread.
"""

import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.connector.schema import Schema
from headgate.errors import MissingExtraError
from headgate_connectors.files.file_tree import FilePath
from headgate_connectors.files.input import Input, Marks, open_input
from headgate_connectors.files.reader import (
    BOM,
    FileFault,
    Reader,
    ReadOptions,
    Row,
    RowBatch,
    not_text,
)
from headgate_connectors.formats import json_text
from headgate_connectors.formats.blocks import BATCH_ROWS_MIN, BLOCK_BYTES, Block
from headgate_connectors.formats.csv_file import CsvReader
from headgate_connectors.formats.json_array import ArrayReader, is_array
from headgate_connectors.formats.json_rows import JsonRows, typed_row

if TYPE_CHECKING:
    from headgate_connectors.formats.json_batches import JsonBatches

CHUNK_BYTES = 1 << 20
HEAD_BYTES = 1 << 12
"""Bytes at the beginning of a file that are checked for UTF-16."""


def open_reader(
    format: str,
    path: FilePath,
    offset: Mapping[str, Any] | None,
    compression: str | None,
    options: ReadOptions,
) -> Reader:
    """Return a reader of `format` (one of `source_config.FORMATS`) that continues at a source
    offset.

    Raises:
        FileFault: the file was truncated or replaced since the offset was made, or is corrupt.
        NotReady: the file is not complete enough to be opened.
    """
    if format in ("parquet", "arrow", "orc", "avro"):
        return _declared(_typed_reader(format, path, offset), options.column_types, options)
    opened = open_input(path, offset, compression)
    try:
        if opened.position == 0:
            _refuse_wide(opened.file.peek(HEAD_BYTES)[:HEAD_BYTES])
        return _reader(format, opened, options)
    except BaseException:
        opened.file.close()
        raise


def _typed_reader(format: str, path: FilePath, offset: Mapping[str, Any] | None) -> Reader:
    """Return the reader of a file whose format has types."""
    if format == "parquet":
        from headgate_connectors.formats.parquet_file import ParquetReader

        return ParquetReader(path, offset)
    if format == "avro":
        from headgate_connectors.formats.avro_file import AvroReader

        return AvroReader(path, offset)
    from headgate_connectors.formats import arrow_files

    made = arrow_files.ArrowReader if format == "arrow" else arrow_files.OrcReader
    return made(path, offset)


def _declared(reader: Reader, kinds: Mapping[str, str], options: ReadOptions) -> Reader:
    """Return the reader, wrapped so that rows have the declared columns. Raises FileFault if the
    file's columns do not fit."""
    if not kinds:
        return reader
    try:
        from headgate_connectors.formats.declared_columns import DeclaredReader

        return DeclaredReader(reader, kinds, widens=options.widens)
    except ModuleNotFoundError as error:
        reader.close()
        raise MissingExtraError("connectors") from error
    except BaseException:
        reader.close()
        raise


def _refuse_wide(head: bytes) -> None:
    """Refuse a file in UTF-16 or UTF-32, which other encodings would decode to nonsense without an
    error.

    Raises:
        FileFault: the file begins with their byte order mark, or like ASCII characters in them, or
            all of its line ends have two bytes.
    """
    marked = head.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"))
    zeros = "".join(["0" if byte == 0 else "x" for byte in head[:4]])
    if marked or zeros in ("x0x0", "0x0x", "x000", "000x") or _has_wide_ends(head):
        raise FileFault("it is encoded as UTF-16 or UTF-32, expected UTF-8: convert it")


def _has_wide_ends(head: bytes) -> bool:
    """Return whether each newline is one of UTF-16. If the text is not ASCII, only that shows
    it."""
    ends = head.count(b"\n")
    pairs = [head[at : at + 2] for at in range(0, len(head), 2)]
    return ends > 0 and ends in (pairs.count(b"\n\0"), pairs.count(b"\0\n"))


def _reader(format: str, opened: Input, options: ReadOptions) -> Reader:
    if format in ("csv", "tsv"):
        tab = format == "tsv" and options.delimiter == ","
        reader = CsvReader(opened, replace(options, delimiter="\t") if tab else options)
        # A file without rows has no columns yet.
        widens = options.widens and reader.schema is not None
        return _declared(reader, options.types if widens else {}, options)
    if format == "json":
        array = is_array(opened.file)
        opened.file.seek(opened.position)
        if array:
            return ArrayReader(opened, options)
    return LineReader(opened, options, jsonl=format != "lines")


class LineReader:
    """Reads lines of text that end with LF or CRLF.

    For JSON Lines, blank lines are not rows, and each other line must be one JSON value unless
    ``json.check`` is off.
    """

    def __init__(self, opened: Input, options: ReadOptions, *, jsonl: bool) -> None:
        self._check = options.check_json and jsonl
        self._jsonl = jsonl
        self._encoding = options.encoding
        self._input, self._file = opened, opened.file
        self._position, self._prefix = opened.position, opened.prefix
        self._data = b""  # bytes not yet made into rows, starting at the position
        self._open_line = self._ends_open()
        self._typed = JsonRows(options.json_types) if jsonl and options.json_types else None
        self._batches = self._made_batches()
        self._row_bytes = 100.0
        """Approximate bytes of a row."""

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
                continue  # `rows` is full, or some lines were blank and `rest` has more
            try:
                chunk = self._file.read(CHUNK_BYTES)
            except FileFault:
                if not rows:
                    raise
                self._data = rest
                break  # the next call raises the fault again
            self._data = rest + chunk if chunk else rest
            if not chunk:
                if not rows:
                    self._input.refuse_cut()
                if settled and rest and not self._input.is_cut:
                    self._take_last(rest, rows)
                break
        return rows

    def read_batch(self, limit: int) -> RowBatch | None:
        batches = self._batches
        if batches is None or limit < BATCH_ROWS_MIN or self._open_line:
            return None
        size = min(BLOCK_BYTES, int(limit * self._row_bytes) + (1 << 16))
        parts, have = [self._data], len(self._data)
        try:
            while have < size and (chunk := self._file.read(CHUNK_BYTES)):
                parts.append(chunk)
                have += len(chunk)
        except FileFault:
            return None  # `read` raises the fault after the rows before it
        finally:
            self._data = b"".join(parts)
        data = self._data[: self._data.rfind(b"\n", 0, size) + 1]
        if not batches.plain(data):
            return None
        block = Block(data, self._position, self._prefix)
        block.without_blank_lines()
        block.limit(limit)
        values = batches.batch(block)
        if values is None:
            return None
        self._data = self._data[len(block.data) :]
        self._position, self._prefix = block.ends[-1], block.prefix_after(block.ends[-1])
        self._row_bytes = len(block.data) / len(block)
        return RowBatch(values, block.numbers(), {})

    def _made_batches(self) -> "JsonBatches | None":
        """Return the maker of batches. None: this file is not read in batches."""
        if self._typed is None or self._encoding != "utf-8":
            return None
        try:
            from headgate_connectors.formats.json_batches import JsonBatches
        except ModuleNotFoundError:  # the extra is not installed
            return None
        return JsonBatches(self._typed)

    @property
    def has_tail(self) -> bool:
        return bool(self._data.strip() if self._jsonl else self._data)

    @property
    def schema(self) -> Schema | None:
        return None if self._typed is None else self._typed.schema

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
        prefix, encoding, typed = self._prefix, self._encoding, self._typed
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
                append(Row(start, end, None, not_text(encoding, error), crc, prefix))
                continue
            if typed is not None:
                append(typed_row(typed, start, end, text, crc, prefix))
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
        """Take the last line, which has no newline, of a file that did not change for a while.

        If it is not a value, it is most likely half written. Then it stays unread until the file
        changes.
        """
        start = self._position
        end = start + len(line)
        text = (line[3:] if start == 0 and line.startswith(BOM) else line).removesuffix(b"\r")
        if self._jsonl and not text.strip():
            return
        reason: str | None = None
        value: Any = None
        try:
            decoded = text.decode(self._encoding)
            if self._typed is not None:
                value = self._typed.value(decoded)
            else:
                reason = json_text.fault(decoded.encode()) if self._check else None
                value = decoded
        except UnicodeDecodeError as error:
            reason = not_text(self._encoding, error)
        except ValueError as error:
            reason = str(error)
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
        """Return whether the last row was a line without its newline, which may have been written
        since."""
        if self._position == 0:
            return False
        self._file.seek(self._position - 1)
        return self._file.read(1) != b"\n"
