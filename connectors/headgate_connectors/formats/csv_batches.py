"""Rows of CSV files with declared types as batches of Arrow rows.

Pyarrow parses only what it parses as Python's `csv` does. So a block ends before a row that is not
plain: one whose quotes are not around a whole field, or with a line end inside.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv

from headgate.connector.schema import Schema
from headgate_arrow import arrow_types
from headgate_arrow.rows import record_batch
from headgate_connectors.files.reader import BOM, ReadOptions
from headgate_connectors.formats.csv_types import Parse
from headgate_connectors.formats.text_columns import BadRowError, TextColumn

_LONE_CR: Final = re.compile(rb"\r(?!\n)")


class CsvBatches:
    """Makes batches of the rows of one file. Its columns are those of the STRUCT `schema`."""

    def __init__(
        self, columns: Sequence[str], schema: Schema, parsers: Sequence[Parse], options: ReadOptions
    ) -> None:
        self._names = list(columns)
        self._schema = arrow_types.arrow_schema(schema)
        self._options = options
        kinds = [options.types.get(name, "string") for name in columns]
        self._columns = [
            TextColumn(
                kind,
                # Pyarrow has found the nulls of texts: those that are not in quotes.
                *(parse, None if kind == "string" else options.null, options.zone, field.type),
                as_written=options.inferred,
            )
            for field, kind, parse in zip(self._schema, kinds, parsers, strict=True)
        ]
        marks = ["\0", options.escape, options.comment and f"\n{options.comment}"]
        self._refused = [mark.encode() for mark in marks if mark]
        self._refused_first = (BOM, *([options.comment.encode()] if options.comment else []))
        self._delimiter, self._quote = options.delimiter.encode(), (options.quote or "").encode()
        self._plain = _plain_rows(options)
        """None: the files have no quotes."""

    @staticmethod
    def takes(columns: Sequence[str], options: ReadOptions) -> bool:
        """Whether files that are read so can be parsed by pyarrow."""
        marks = [options.delimiter, *([] if options.quote is None else [options.quote])]
        return (
            options.encoding == "utf-8"
            and all(len(mark) == 1 and mark.isascii() for mark in marks)
            and len(set(columns)) == len(columns)
        )

    def plain(self, data: bytes) -> int:
        """How many of the first bytes of `data` are plain rows, each a line."""
        if data.startswith(self._refused_first):
            return 0
        ends = [found for mark in self._refused if (found := data.find(mark)) >= 0]
        if b"\r" in data and (lone := _LONE_CR.search(data)) is not None:
            ends.append(lone.start())
        if ends:
            data = data[: data.rfind(b"\n", 0, min(ends) + 1) + 1]
        if self._plain is None or self._are_quotes_around_fields(data):
            return len(data)
        plain = self._plain.match(data)
        return 0 if plain is None else plain.end()

    def _are_quotes_around_fields(self, data: bytes) -> bool:
        """Whether each pair of quotes is around a whole field, without quotes or line ends inside.
        Quick: nothing is done for each row."""
        quote, delimiter = self._quote, self._delimiter
        if quote not in data:
            return True
        pieces = data.split(quote)
        outside = quote.join(pieces[::2])
        count = len(pieces) // 2
        opened = data.startswith(quote) + sum(
            outside.count(one + quote) for one in (delimiter, b"\n")
        )
        closed = sum(outside.count(quote + one) for one in (delimiter, b"\n", b"\r"))
        return (
            len(pieces) % 2 == 1
            and opened == closed == count
            and b"\n" not in b"".join(pieces[1::2])
        )

    def batch(self, data: bytes, rows: int) -> Any:
        """The first of the `rows` rows in `data` as a RecordBatch, as many as are good before the
        first bad one; None where there is none, or pyarrow parses them in another way."""
        try:
            texts, found = self._texts(data)
        except pa.ArrowException:
            return None
        if found != rows:
            return None
        while texts.num_rows:
            try:
                arrays = [
                    column.values(text)
                    for column, text in zip(self._columns, texts.columns, strict=True)
                ]
            except BadRowError as bad:
                texts = texts.slice(0, bad.row)
                continue
            return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return None

    def _texts(self, data: bytes) -> tuple[Any, int]:
        """All fields as texts, up to the first row with another number of them; and how many rows
        there are at all."""
        options, wrong = self._options, list[int]()

        def skip(row: Any) -> str:
            wrong.append(row.number)
            return "skip"

        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(
                use_threads=False, block_size=len(data) + 1, column_names=self._names
            ),
            pa_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                double_quote=True,
                invalid_row_handler=skip,
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.string()),
                null_values=[] if options.null is None else [options.null],
                strings_can_be_null=options.null is not None,
                quoted_strings_can_be_null=False,
            ),
        )
        batch = record_batch(table)
        # Rows are counted from 1.
        return batch.slice(0, wrong[0] - 1 if wrong else None), batch.num_rows + len(wrong)


def _plain_rows(options: ReadOptions) -> re.Pattern[bytes] | None:
    """What plain rows look like where there are quotes; None: the files have none."""
    if options.quote is None:
        return None
    quote, delimiter = re.escape(options.quote), re.escape(options.delimiter)
    inside, outside = rf"[^\r\n{quote}]*+", rf"[^\r\n{quote}{delimiter}]*+"
    field = rf"(?:{quote}(?:{inside}{quote}{quote})*+{inside}{quote}|{outside})"
    rows = rf"(?:{field}(?:{delimiter}{field})*+\r?\n)*+"
    return re.compile(rows.encode())
