"""Types of CSV columns that a connector infers once, for all of its files and tasks.

Task 0 infers the types from the first CSV file that has rows. It commits them with the first
records, as a source offset with a partition of its own. From then on the types hold as if
``csv.types`` had declared them, also for other tasks, later files and after a restart.
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
"""Maximum rows from which types are inferred."""
CSV_FORMATS: Final = ("csv", "tsv")


@dataclass(slots=True)
class _Sample:
    """The state of a file when it was last looked at for rows."""

    signature: tuple[int, int, int]
    """Size in bytes, time of the last change in nanoseconds, and inode."""
    still_since: float
    fruitless: bool | None = None
    """Whether the file counted as settled when it was read without finding rows. None: it was not
    read yet."""


class InferredTypes:
    """The inferred types as one task knows them.

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
        """Rows exist, but task 0 has not committed their types yet."""

    def look(
        self,
        context: SourceTaskContext,
        entries: Mapping[str, Entry],
        now: float,
        result: list[Any],
    ) -> ReadOptions:
        """Return the options, with the types if they are known by now.

        Args:
            entries: all files in the directory, by name.
            now: the present time by the monotonic clock, in seconds.
            result: gets the source offset with the types if they were inferred just now.
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
        """Infer types from the first file with rows. None: no file has rows yet."""
        self._samples = {name: one for name, one in self._samples.items() if name in entries}
        for name in sorted(entries):
            kind = self._choice.kind(name)
            if isinstance(kind, str) or kind.format not in CSV_FORMATS:
                continue
            sample = self._sample(name, entries[name], now)
            if sample is None:
                continue
            # A last line without a newline is complete only if the file is settled.
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
        """Return the sample of a file as it is now. None: the file cannot be looked at."""
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
        """Return the texts, by column, of the first good rows. None: the file could not be read
        now, and may be readable later without a change.

        Bad rows and faults of the file are not reported here, but by the task that reads it.
        """
        found: list[dict[str, Any]] = []
        place = kind.format, self._tree.path(name), None
        try:
            reader = open_reader(*place, kind.compression, self._options)
        except (FileFault, NotReady):
            return found
        except OSError:
            return None
        try:
            # One row at a time, because a fault loses the rows of the same call.
            while len(found) < ROWS and (rows := reader.read(1, settled)):
                (row,) = rows
                if row.reason is None:
                    found.append(json.loads(row.value))
                elif row.end == row.start:
                    break  # half written: each call would return it again
        except (FileFault, NotReady):
            pass
        except OSError:
            return found or None
        finally:
            reader.close()
        return found


def before_good(rows: Sequence[Row]) -> list[Row]:
    """Return the bad rows before the first good one."""
    return list(takewhile(lambda row: row.reason is not None, rows))
