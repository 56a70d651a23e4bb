"""Types of CSV columns that a connector infers once, for all of its files and tasks.

Task 0 infers them from the first CSV file that has rows, and commits them as a source offset of
their own with the first records. From then on they are as if ``csv.types`` had declared them: a
task that starts anew, another task and a later file have the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final

from headgate.connector.api import OffsetUpdate, SourceTaskContext
from headgate_connectors.files.file_tree import Entry, Tree
from headgate_connectors.files.reader import FileFault, NotReady, ReadOptions, Row
from headgate_connectors.files.source_config import Choice, Kind
from headgate_connectors.formats.csv_inference import ANEW, PARTITION, TYPES, inferred, types_of
from headgate_connectors.formats.readers import open_reader

ROWS: Final = 1000
"""Rows that are looked at."""
CSV_FORMATS: Final = ("csv", "tsv")


@dataclass(slots=True)
class _Sample:
    """A file as it was when it was looked at."""

    signature: tuple[int, int, int]
    """Size, time of change, inode."""
    still_since: float
    fruitless: bool | None = None
    """Whether nothing was found in it as settled, or not settled; None: nobody has looked."""


class InferredTypes:
    """What one task knows of them.

    Args:
        settle: seconds without a change after which a file counts as settled.
    """

    def __init__(
        self, options: ReadOptions, choice: Choice, tree: Tree, task: int, settle: float
    ) -> None:
        self._options, self._choice, self._tree, self._task = options, choice, tree, task
        self._settle = settle
        self._samples: dict[str, _Sample] = {}
        self.awaited = False
        """Rows are there, and task 0 has not committed their types yet."""

    def look(
        self,
        context: SourceTaskContext,
        entries: Mapping[str, Entry],
        now: float,
        result: list[Any],
    ) -> ReadOptions:
        """The options with the types, if they are known by now. `result` gets what is to be
        committed with them.

        Args:
            entries: all files that are there, by name.
            now: the time of the look.
        """
        known = context.offsets.offset(PARTITION)
        if known is not None:
            return self._with(types_of(known))
        types = self._sampled(entries, now, until_idle=context.until_idle)
        self.awaited = types is not None and self._task != 0
        if types is None or self.awaited:
            return self._options
        text = json.dumps(types, ensure_ascii=False)
        result.append(OffsetUpdate(PARTITION, {TYPES: text}))
        context.log(f"types of CSV columns were inferred, and are kept: {text}; {ANEW}")
        return self._with(types)

    def _with(self, types: Mapping[str, str]) -> ReadOptions:
        self.awaited = False
        return replace(self._options, types=types, infers=False, inferred=True)

    def _sampled(
        self, entries: Mapping[str, Entry], now: float, *, until_idle: bool
    ) -> Mapping[str, str] | None:
        """From the first file with rows; None: there is none."""
        self._samples = {name: one for name, one in self._samples.items() if name in entries}
        for name in sorted(entries):
            kind = self._choice.kind(name)
            if isinstance(kind, str) or kind.format not in CSV_FORMATS:
                continue
            sample = self._sample(name, entries[name], now)
            if sample is None:
                continue
            # An end without a newline is an end only if nothing more is awaited.
            settled = until_idle and now - sample.still_since >= self._settle
            if sample.fruitless is settled:
                continue
            rows = self._rows(name, kind, settled)
            if rows:
                return inferred(list(rows[0]), [list(row.values()) for row in rows], None)
            if rows is not None:
                sample.fruitless = settled
        return None

    def _sample(self, name: str, entry: Entry, now: float) -> _Sample | None:
        """None: the file cannot be looked at."""
        try:
            stat = entry.stat()
        except (OSError, NotReady):
            return None
        signature = (stat.st_size, stat.st_ctime_ns, stat.st_ino)
        sample = self._samples.get(name)
        if sample is None or sample.signature != signature:
            sample = self._samples[name] = _Sample(signature, now)
        return sample

    def _rows(self, name: str, kind: Kind, settled: bool) -> list[dict[str, Any]] | None:
        """Texts of the first good rows by column. Whoever reads the file tells of the others, and
        of a file that cannot be read. None: it may be read another time as it is."""
        found: list[dict[str, Any]] = []
        place = kind.format, self._tree.path(name), None
        try:
            reader = open_reader(*place, kind.compression, self._options)
        except (FileFault, NotReady):
            return found
        except OSError:
            return None
        try:
            # One by one, for a fault takes the rows of its call with it.
            while len(found) < ROWS and (rows := reader.read(1, settled)):
                (row,) = rows
                if row.reason is None:
                    found.append(json.loads(row.value))
                elif row.end == row.start:
                    break  # half written, and given again by each call
        except (FileFault, NotReady):
            pass
        except OSError:
            return found or None
        finally:
            reader.close()
        return found


def before_good(rows: Sequence[Row]) -> list[Row]:
    """The bad rows that stand before the first good one."""
    return list(takewhile(lambda row: row.reason is not None, rows))
