"""Types of CSV columns that a connector infers once, for all of its files and tasks.

Task 0 infers them from the first CSV file that has rows, and commits them as a source offset of
their own with the first records. From then on they are as if ``csv.types`` had declared them: a
task that starts anew, another task and a later file have the same.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.connector.api import OffsetUpdate, Partition, SourceTaskContext
from headgate_connectors.files.file_tree import Tree
from headgate_connectors.files.reader import FileFault, NotReady, ReadOptions
from headgate_connectors.files.source_config import Choice, Kind
from headgate_connectors.formats.csv_inference import inferred
from headgate_connectors.formats.readers import open_reader

PARTITION: Final[Partition] = {"csv.types": "inferred"}
TYPES: Final = "types"
"""Member of that source offset: a type by column, as JSON."""
ROWS: Final = 1000
"""Rows that are looked at."""
CSV_FORMATS: Final = ("csv", "tsv")


class InferredTypes:
    """What one task knows of them."""

    def __init__(self, options: ReadOptions, choice: Choice, tree: Tree, task: int) -> None:
        self._options, self._choice, self._tree, self._task = options, choice, tree, task
        self.awaited = False
        """Rows are there, and task 0 has not committed their types yet."""

    def look(
        self, context: SourceTaskContext, names: Iterable[str], result: list[Any]
    ) -> ReadOptions:
        """The options with the types, if they are known by now. `result` gets what is to be
        committed with them.

        Args:
            names: of all files that are there.
        """
        known = context.offsets.offset(PARTITION)
        if known is not None and isinstance(text := known.get(TYPES), str):
            return self._with(json.loads(text))
        # An end of a file without a newline is its end only if nothing more is awaited.
        types = self._sampled(names, context.until_idle)
        self.awaited = types is not None and self._task != 0
        if types is None or self.awaited:
            return self._options
        text = json.dumps(types, ensure_ascii=False)
        result.append(OffsetUpdate(PARTITION, {TYPES: text}))
        context.log(f"types of CSV columns were inferred, and are kept: {text}")
        return self._with(types)

    def _with(self, types: Mapping[str, str]) -> ReadOptions:
        return replace(self._options, types=types, infers=False, inferred=True)

    def _sampled(self, names: Iterable[str], settled: bool) -> Mapping[str, str] | None:
        """From the first file with rows; None: there is none."""
        for name in sorted(names):
            kind = self._choice.kind(name)
            if isinstance(kind, str) or kind.format not in CSV_FORMATS:
                continue
            if rows := self._rows(name, kind, settled):
                return inferred(list(rows[0]), [list(row.values()) for row in rows], None)
        return None

    def _rows(self, name: str, kind: Kind, settled: bool) -> list[dict[str, Any]]:
        """Texts of the first rows by column; none where the file cannot be read yet, or at all."""
        place = kind.format, self._tree.path(name), None
        try:
            reader = open_reader(*place, kind.compression, self._options)
        except (FileFault, NotReady, OSError):
            return []
        try:
            rows = reader.read(ROWS, settled)
        except (FileFault, NotReady, OSError):
            return []
        finally:
            reader.close()
        return [json.loads(row.value) for row in rows if row.reason is None]
