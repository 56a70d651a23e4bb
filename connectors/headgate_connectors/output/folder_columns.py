"""The columns of a sink's folder: each column has the same type in all files.

Readers of a folder of files take it for one table. So the first value with a column pins the
column's type in ``_headgate/columns.json``. A later value with another type is refused, and the
error names the column. New columns are added as optional ones. A column that some values lack
becomes optional. A name that differs from another in case only is refused, because Spark, Hive and
DuckDB would refuse the folder.
"""

import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from headgate.connector.data_error import DataError
from headgate.connector.json_schema import read_schema, schema_text
from headgate.connector.json_values import DecimalFormat
from headgate.connector.schema import Field, Schema, SchemaType
from headgate_arrow import arrow_types
from headgate_arrow.widening import may_widen
from headgate_connectors.output.column_names import clash
from headgate_connectors.output.manifest import FOLDER, read_json, sync_folder, write_durably

_COLUMNS: Final = f"{FOLDER}/columns.json"
_LOCK: Final = f"{FOLDER}/columns.lock"


class SinkColumns:
    """The pinned columns of one folder, shared by the tasks that write to it."""

    def __init__(self, root: Path, *, widens: bool = False) -> None:
        """
        Args:
            widens: accept values of a narrower type than that of the column.
        """
        self._root = root
        self._widens = widens

    def take(self, schema: Schema) -> Schema:
        """Add the columns of the STRUCT `schema`, and return the STRUCT of all columns.

        Raises:
            DataError: a column has another type than before, or a name that differs from another
                in case only. The message names both.
        """
        with self._locked():
            known = self.known()
            merged = schema if known is None else merge(known, schema, widens=self._widens)
            if merged != known:
                _check_spelling(merged)
            if merged != known:
                self._save(merged)
        return merged

    def known(self) -> Schema | None:
        """Return the STRUCT of all columns. None: no column was pinned yet."""
        document = read_json(self._root / _COLUMNS)
        return None if document is None else read_schema(document["schema"])

    def _save(self, schema: Schema) -> None:
        text = f'{{"schema":{schema_text(schema, DecimalFormat.BASE64, False)}}}\n'
        json.loads(text)
        draft = self._root / f"{FOLDER}/.draft-{uuid.uuid4().hex}"
        try:
            write_durably(draft, text.encode())
            draft.rename(self._root / _COLUMNS)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self._root / FOLDER)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        handle = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _check_spelling(schema: Schema) -> None:
    """Raise `DataError` if the names of two columns, or of two fields of a struct, differ in case
    only."""
    found = clash(arrow_types.arrow_schema(schema))
    if found is not None:
        raise DataError(
            f"column {found[1]} differs from column {found[0]} of this folder in case only, "
            "and readers take both for one: rename it by a transform (ReplaceField)"
        )


def merge(known: Schema, new: Schema, *, widens: bool = False) -> Schema:
    """Return the STRUCT that holds values of both schemas. Raises `DataError` if a column has
    different types in them, unless `widens` is set and the new type is narrower."""
    given = {found.name: found.schema for found in new.fields}
    fields: list[Field] = []
    for found in known.fields:
        other = given.pop(found.name, None)
        if other is None:
            fields.append(Field(found.name, found.schema.as_optional()))
            continue
        was = arrow_types.arrow_type(found.schema, found.name)
        now = arrow_types.arrow_type(other, found.name)
        narrower = was != now and may_widen(now, was)
        if was != now and not (narrower and widens):
            advice = "set schema.evolution = widen to have it widened" if narrower else "cast it"
            anew = "another path"
            if may_widen(was, now) and not narrower:
                anew = f"{anew}, with the wider type in columns.types from its first file on"
            raise DataError(
                f"column {found.name} is of type {now}, expected {was}, the type it has in the "
                f"files of this folder: {advice}, or give the sink {anew}"
            )
        optional = found.schema.optional or other.optional
        fields.append(Field(found.name, replace(found.schema, optional=optional, default=None)))
    fields += [Field(name, schema.as_optional()) for name, schema in given.items()]
    return Schema(SchemaType.STRUCT, fields=tuple(fields))
