"""Converts lines of JSON objects with declared types to Arrow batches.

pyarrow parses numbers, booleans and texts. Dates and times are read as texts and go through
`text_columns`. A block is read line by line instead if pyarrow refuses it, or might read it
differently from `JsonRows`.
"""

import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from headgate_arrow import arrow_types
from headgate_arrow.rows import record_batch
from headgate_connectors.files.reader import BOM
from headgate_connectors.formats.blocks import Block
from headgate_connectors.formats.json_rows import JsonRows
from headgate_connectors.formats.text_columns import BadRowError, TextColumn

_LONE_CR: Final = re.compile(rb"\r(?!\n)")
_TINY: Final = re.compile(rb"[eE]-[0-9]{2}|0{30}")
"""Matches part of any number that is not 0 but would become 0 as a float."""
_EXPONENT: Final = re.compile(rb'[:"\s][+-]?[0-9.]+[eE][+-]?[0-9]')
"""Matches a number with an exponent. Arrow reads decimals with large exponents wrongly."""


class JsonBatches:
    """Makes batches of lines, each of which is a JSON object that `rows` describes."""

    def __init__(self, rows: JsonRows) -> None:
        self._schema = arrow_types.arrow_schema(rows.schema)
        self._texts: dict[str, TextColumn] = {}
        given: list[Any] = []
        for field, parse in zip(self._schema, rows.parsers, strict=True):
            kind = rows.types[field.name]
            if kind in ("date", "time", "timestamp"):
                self._texts[field.name] = TextColumn(kind, parse, None, None, field.type)
                given.append(field.with_type(pa.string()))
            elif kind.startswith(("int", "float")):
                wide = pa.int64() if kind.startswith("int") else pa.float64()
                given.append(field.with_type(wide))
            elif kind.startswith("decimal"):
                # pyarrow does not check the precision when parsing. The cast does.
                given.append(field.with_type(pa.decimal128(38, field.type.scale)))
            else:
                given.append(field)
        self._parse = pa_json.ParseOptions(
            explicit_schema=pa.schema(given), unexpected_field_behavior="error"
        )

    def plain(self, data: bytes) -> bool:
        """Return whether pyarrow splits the data into the same lines as `LineReader`."""
        has_lone_cr = b"\r" in data and _LONE_CR.search(data)
        return not (data.startswith(BOM) or b"\0" in data or has_lone_cr)

    def batch(self, block: Block) -> Any:
        """Return the rows of the block as a RecordBatch. None: they must be read line by line."""
        data, rows = block.data, len(block)
        # Each line holds at least one object. If there are as many objects as lines, it holds one.
        if not rows or not block.are_objects:
            return None
        try:
            if not data.isascii():
                data.decode()
            table = pa_json.read_json(
                pa.BufferReader(data),
                pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                self._parse,
            )
            if table.num_rows != rows:
                return None
            found = record_batch(table.select(self._schema.names))
            arrays = [
                self._column(field, array, data)
                for field, array in zip(self._schema, found.columns, strict=True)
            ]
        except (pa.ArrowException, UnicodeDecodeError, BadRowError):
            return None
        if any(array is None for array in arrays):
            return None
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, field: Any, array: Any, data: bytes) -> Any:
        """Return the array of a column with its declared type. None: pyarrow may have read a number
        wrongly, or a number became infinite or 0."""
        texts = self._texts.get(field.name)
        if texts is not None:
            return texts.values(array)
        if pa.types.is_floating(field.type):
            found = array.cast(field.type)
            is_finite = pc.all(pc.is_finite(found)).as_py() is not False
            if not is_finite or (pc.any(pc.equal(found, 0)).as_py() and _TINY.search(data)):
                return None
            return found
        if pa.types.is_decimal(field.type) and _EXPONENT.search(data):
            return None
        return array.cast(field.type)
