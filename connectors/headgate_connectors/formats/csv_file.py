"""CSV files, read on from a position, row by row."""

import csv
import zlib
from collections.abc import Collection, Iterator
from itertools import compress
from typing import TYPE_CHECKING, Any

from headgate.connector import schema as s
from headgate.connector.schema import Schema
from headgate_connectors.files.input import Input, Marks
from headgate_connectors.files.reader import (
    BOM,
    FileFault,
    NotReady,
    ReadOptions,
    Row,
    RowBatch,
    not_text,
)
from headgate_connectors.formats import json_text
from headgate_connectors.formats.blocks import BATCH_ROWS_MIN, BLOCK_BYTES, Block
from headgate_connectors.formats.csv_inference import ANEW, as_written
from headgate_connectors.formats.csv_marks import QuotedNulls, kept_escapes
from headgate_connectors.formats.csv_types import Parse, column
from headgate_connectors.formats.missing_columns import Missing, missing_columns

if TYPE_CHECKING:
    from headgate_connectors.formats.csv_batches import CsvBatches

CHUNK_BYTES = 1 << 20
FIELD_CHARS_MAX = (1 << 31) - 1
"""Never reached: a row ends at `ReadOptions.row_bytes`, which is each connector's own. The limit of
Python's `csv` is one for all tasks of the process."""

csv.field_size_limit(FIELD_CHARS_MAX)


class CsvReader:
    """Rows of a CSV file as JSON objects whose values are the texts that stand there, or, where
    types are declared, as structs. The names of the columns are in the header row; without one they
    are given, or c1, c2 and so on, as many as the first row has. Quoted fields may hold newlines.
    Source: RFC 4180.

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
        self._lines_read = 0
        """Lines of the row that is being read."""
        self._line: int | None = None
        """Number of the line at the position, for messages; None: it was not asked for yet."""
        self._quoted_nulls = QuotedNulls.of(options)
        self._texts: list[str] = []
        """Lines of the row that is being read, where `_quoted_nulls` looks at them."""
        self._columns = self._header()
        self._schema, self._parsers = self._typed()
        self._batches = self._made_batches()
        self._row_bytes = 100.0
        """Bytes of a row, about."""
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
            self._row_start, self._crc, self._lines_read = start, 0, 0
            self._texts.clear()
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
            crc, prefix = self._crc, self._read_prefix
            if fields:  # a blank line is no row
                try:
                    row = Row(start, end, self._value(fields), None, crc, prefix)
                except ValueError as error:
                    row = Row(start, end, None, self._bad(f"{error}"), crc, prefix)
                rows.append(row)
            self._position, self._prefix = end, prefix
            self._go_on(self._lines_read)
        return rows

    def read_batch(self, limit: int) -> RowBatch | None:
        batches = self._batches
        if batches is None or limit < BATCH_ROWS_MIN:
            return None
        try:
            self._file.seek(self._position)
            data = self._file.read(min(BLOCK_BYTES, int(limit * self._row_bytes) + (1 << 16)))
        except FileFault:
            return None  # `read` meets it behind the rows before it
        data = data[: data.rfind(b"\n") + 1]
        data = data[: batches.plain(data)]
        block = Block(data, self._position, self._prefix)
        block.without_blank_lines()
        block.limit(limit)
        if not len(block) or block.longest > self._options.row_bytes:
            return None
        values = batches.batch(block.data, len(block))
        if values is None:
            return None
        block.limit(values.num_rows)
        self._row_bytes = len(block.data) / len(block)
        self._position, self._prefix = block.ends[-1], block.prefix_after(block.ends[-1])
        if self._line is not None:
            self._go_on(block.lines)
        return RowBatch(values, block.numbers(), {})

    @property
    def has_tail(self) -> bool:
        if not self._columns:
            return False
        # Blanks alone are no row of several columns, but tabs between empty fields may be one.
        blank = b"\r\n" if len(self._columns) == 1 else b" \r\n"
        self._file.seek(self._position)
        while chunk := self._file.read(CHUNK_BYTES):
            if chunk.strip(blank):
                return True
        return False

    @property
    def schema(self) -> Schema | None:
        return self._schema

    def close(self) -> None:
        self._file.close()

    def _typed(self) -> tuple[Schema | None, list[Parse]]:
        """The STRUCT of the rows, and the parsers of its fields; None where none is declared.

        Raises:
            FileFault: a type is declared for a column that the file has not, or not so.
        """
        types = self._options.types
        if not types or not self._columns:
            return None, []
        missing = missing_columns(types, self._columns)
        if missing is not None and not (missing.may_be_null and self._options.widens):
            raise FileFault(self._told_missing(missing))
        kinds = [types.get(name, "string") for name in self._columns]
        made = [column(kind, self._options.zone) for kind in kinds]
        fields = zip(self._columns, (schema for schema, _ in made), strict=True)
        parsers = [parse for _, parse in made]
        if self._options.inferred:
            parsers = [as_written(*one) for one in zip(kinds, parsers, strict=True)]
        return s.struct({name: one.as_optional() for name, one in fields}), parsers

    def _told_missing(self, missing: Missing) -> str:
        if self._options.inferred:
            says = (
                f"csv.types = infer has found in another file {missing.reason}: exclude this file"
            )
        else:
            says = f"csv.types has {missing.reason}: exclude the file, mend csv.types"
        if missing.may_be_null:
            says += ", or set schema.change = widen to have null there"
        else:
            says += ", or mend its header row or csv.delimiter"
        return f"{says}; {ANEW}" if self._options.inferred else says

    def _made_batches(self) -> "CsvBatches | None":
        """None: rows of this file are no batches."""
        if self._schema is None:
            return None
        try:
            from headgate_connectors.formats.csv_batches import CsvBatches
        except ModuleNotFoundError:  # the extra is not installed
            return None
        if not CsvBatches.takes(self._columns, self._options):
            return None
        return CsvBatches(self._columns, self._schema, self._parsers, self._options)

    def _typed_value(self, fields: list[str]) -> dict[str, Any]:
        """
        Raises:
            ValueError: a text is no value of its column's type.
        """
        null, row = self._options.null, dict[str, Any]()
        texts, types = self._texts_of_null(), self._options.types
        for name, text, parse in zip(self._columns, fields, self._parsers, strict=True):
            is_null = text == null and not (name in texts and types.get(name) in (None, "string"))
            try:
                row[name] = None if is_null else parse(text)
            except ValueError as error:
                shown = text if len(text) <= 100 else f"{text[:100]}..."
                empty = "" if text else "; if an empty field is a null, set csv.null to nothing"
                raise ValueError(f"column {name} is {shown!r}, {error}{empty}") from None
        return row

    def _bad(self, reason: str) -> str:
        """What is said of the row that begins at the position. The number of its line is counted
        once, and known from then on."""
        if self._line is None:
            back, at, self._line = self._file.tell(), 0, 1
            self._file.seek(0)
            while chunk := self._file.read(min(CHUNK_BYTES, self._row_start - at)):
                at, self._line = at + len(chunk), self._line + chunk.count(b"\n")
            self._file.seek(back)
        return f"bad CSV row: {reason} (line {self._line})"

    def _go_on(self, lines: int) -> None:
        if self._line is not None:
            self._line += lines

    def _value(self, fields: list[str]) -> Any:
        if self._parsers:
            return self._typed_value(fields)
        row: dict[str, Any] = dict(zip(self._columns, fields, strict=True))
        null = self._options.null
        if null is not None:
            texts = self._texts_of_null()
            row = {
                name: None if text == null and name not in texts else text
                for name, text in row.items()
            }
        return json_text.text_of(row)

    def _texts_of_null(self) -> Collection[str]:
        """Columns whose field in the row that was read has the text of a null in quotes. So it is
        text, where the column holds text."""
        nulls = self._quoted_nulls
        if nulls is None:
            return ()
        row = "".join(self._texts)
        if not nulls.are_in(row):
            return ()
        return list(compress(self._columns, nulls.of_row(row)))

    def _header(self) -> list[str]:
        """Names of the columns; the position is after the header row, if there is one."""
        self._settled = True  # so that a header without newline is seen, and told from none
        self._row_start, self._crc, self._prefix = 0, 0, 0
        try:
            parser = self._parser(0)
            while (columns := next(parser, None)) == []:  # a blank line, or a comment
                self._row_start = self._read_to
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileFault(f"the header row does not parse: {self._told(error)}") from error
        if not self._options.header:
            if columns and self._options.columns:
                return list(self._options.columns)
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
            return not_text(self._options.encoding, error)
        if "new-line character" in str(error):
            return "a line that ends with CR alone, expected LF or CRLF: convert the file"
        return str(error)

    def _parser(self, position: int) -> Iterator[list[str]]:
        self._file.seek(position)
        self._read_to, self._read_prefix = position, self._prefix
        options = self._options
        return csv.reader(
            self._lines(),
            delimiter=options.delimiter,
            quotechar=options.quote,
            escapechar=options.escape,
            quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )

    def _lines(self) -> Iterator[str]:
        """Lines as the parser asks for them; keeps what it has read of the current row."""
        most, kept = self._options.row_bytes, kept_escapes(self._options)
        while True:
            line = self._file.readline(most + 1)
            self._ended_line = line[-1:] == b"\n"
            is_last = self._settled and not self._input.is_cut
            whole = self._ended_line or is_last or len(line) > most
            if not line or not whole:
                self._at_end = True
                return
            self._at_end = False
            self._crc = zlib.crc32(line, self._crc)
            if self._read_prefix is not None:
                self._read_prefix = zlib.crc32(line, self._read_prefix)
            if self._read_to + len(line) - self._row_start > most:
                raise csv.Error(
                    f"a row longer than {most} bytes: close its quote, or raise csv.row.bytes.max"
                )
            first = self._read_to == 0 and line.startswith(BOM)
            begins = self._read_to == self._row_start
            self._lines_read += 1
            self._read_to += len(line)
            text = (line[3:] if first else line).decode(self._options.encoding)
            comment = self._options.comment
            if begins and comment is not None and text.startswith(comment):
                text = "\n"
            if self._quoted_nulls is not None:
                self._texts.append(text)
            yield text if kept is None else kept(text)

    def _take_bad(self, reason: str, rows: list[Row]) -> bool:
        """Pass over the first line of the bad row. False: it may yet become good."""
        start = self._row_start
        if self._at_end and not self._settled:
            return False  # an open quote at the end of what is there
        self._file.seek(start)
        end, crc, prefix = start, 0, self._prefix
        ended = False
        # The whole line, however long: what is behind its middle is no row.
        while not ended and (piece := self._file.readline(CHUNK_BYTES)):
            end, ended = end + len(piece), piece[-1:] == b"\n"
            crc = zlib.crc32(piece, crc)
            if prefix is not None:
                prefix = zlib.crc32(piece, prefix)
        if not ended:
            if self._settled:
                half = f"the last row has no newline and looks half written ({reason})"
                rows.append(Row(start, start, None, half, 0))
            return False
        told = self._bad(reason)
        self._position, self._prefix = end, prefix
        self._go_on(1)
        rows.append(Row(start, end, None, told, crc, prefix))
        return True
