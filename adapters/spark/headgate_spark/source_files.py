"""What SparkSource reads in the mode files: each file by itself, including those that come later.

The source partition is the file. Its offset is the number of rows read, with the file's length and
time of change. A file that has changed after some of its rows were written, or that Spark cannot
read, is quarantined with the reason. Other files are read.
"""

import fnmatch
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.connector.api import (
    DataError,
    OffsetUpdate,
    Partition,
    SourceItem,
    SourceRecord,
    SourceTaskContext,
)
from headgate_spark.arrow_rows import RowReader, check_columns, tables
from headgate_spark.sessions import executors_lost, session_is_over, with_cause
from headgate_spark.sink_target import FILE_FORMATS
from headgate_spark.source_config import Settings

_OF_FILES: Final = (*FILE_FORMATS, "binaryfile")
"""Formats whose rows are those of the files below the path. Tables have lists of their own."""
_LISTING_OPTIONS: Final = ("pathglobfilter", "modifiedbefore", "modifiedafter")
_HIDDEN: Final = ("_", ".")
"""Beginnings of names that Spark skips."""
_LOSSES: Final = 3
"""Queries of one file that may lose all their executors before other files have their turn."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was listed."""

    path: str
    length: int
    modified_ms: int


class FilesReader:
    def __init__(self, settings: Settings, context: SourceTaskContext) -> None:
        self._settings = settings
        self._context = context
        self._listed_at = float("-inf")
        self._queue: list[Seen] = []
        self._done: dict[str, Seen] = {}
        """Files that were read to their end, as they were then."""
        self._aside: dict[str, tuple[Seen | None, str]] = {}
        self._unread: list[str] = []
        """Files that Spark leaves out of its listing, each with the reason."""
        self._file: Seen | None = None
        self._rows = 0
        self._losses = 0
        """How often executors were lost over the current file since it gave rows."""
        self._passed = 0
        self._stream: Iterator[Any] | None = None
        self._reader = RowReader()

    def next_batch(self, session: Any) -> list[SourceItem]:
        """Return the next rows of the current file, or of the next one. Empty: there are none now.

        Raises:
            Exception: as Spark's client raises it if the server is out of reach.
        """
        if self._file is None and not self._queue:
            self._list(session)
        while self._file is not None or self._queue:
            if self._file is None:
                self._file, self._rows, self._losses = self._queue.pop(0), -1, 0
            try:
                items = self._of_file(session, self._file)
            except Exception as error:
                if session_is_over(error) or self._may_be_tried(error):
                    raise
                self._set_aside(self._file, _reason(error), again=executors_lost(error))
                self._close()
                continue
            if items:
                self._losses = 0
                return items
        aside = [f"{path}: {why}" for path, (_, why) in self._aside.items()]
        self._context.quarantine([*aside, *self._unread])
        return []

    def _may_be_tried(self, error: Exception) -> bool:
        """Return whether to try a file again, because others may be to blame: executors die for
        many reasons. But the file may be one."""
        if not executors_lost(error):
            return False
        self._losses += 1
        return self._losses <= _LOSSES

    def rewind(self) -> None:
        """Forget the query under way. The count of the file's rows is kept."""
        self._stream = None

    # -- listing --

    def _list(self, session: Any) -> None:
        now = time.monotonic()
        if now - self._listed_at < self._settings.interval_s:
            return
        listed = self._listing(session)
        self._listed_at = now
        self._look_for_unread()
        fresh_after_ms = time.time() * 1000 - self._settings.files_settle_s * 1000
        for seen in listed:
            if self._done.get(seen.path) == seen:
                continue
            if seen.path in self._aside and self._aside[seen.path][0] == seen:
                continue
            if seen.modified_ms > fresh_after_ms:
                self._context.await_input()
                self._listed_at = float("-inf")
                continue
            self._aside.pop(seen.path, None)
            self._queue.append(seen)

    def _listing(self, session: Any) -> list[Seen]:
        """Return the files of this task."""
        reader = session.read.format("binaryFile").option("recursiveFileLookup", "true")
        for name, value in self._settings.options.items():
            if name.lower() in _LISTING_OPTIONS:
                reader = reader.option(name, value)
        frame = reader.load(self._settings.path).selectExpr(
            "path", "length", "unix_millis(modificationTime) as modified"
        )
        found = [Seen(row["path"], row["length"], row["modified"]) for row in frame.collect()]
        return sorted((one for one in found if self._is_mine(one)), key=lambda one: one.path)

    def _look_for_unread(self) -> None:
        """Log files whose names are not UTF-8. Java cannot open them, so Spark takes them for
        deleted."""
        found = unread(self._settings)
        for line in found:
            if line not in self._unread:
                self._context.log(f"set aside {line}")
        self._unread = found

    def _is_mine(self, seen: Seen) -> bool:
        return zlib.crc32(seen.path.encode()) % self._settings.tasks == self._settings.task

    # -- one file --

    def _of_file(self, session: Any, seen: Seen) -> list[SourceItem]:
        """Return the next rows of the file. Empty: it is read to its end."""
        if self._rows < 0 and not self._begin(seen):
            return []
        if self._stream is None:
            self._passed = 0
            frame = self._settings.reader(session).load(_escaped(seen.path))
            check_columns(frame)
            self._stream = tables(session, frame)
        for table in self._stream:
            if items := self._items(seen, table):
                return items
        self._check_unchanged(session, seen)
        if self._passed < self._rows:
            raise DataError(f"has {self._passed} rows, but {self._rows} of it were written")
        self._done[seen.path] = seen
        end = OffsetUpdate(_partition(seen), self._offset(seen, done=True))
        self._close()
        return [end]

    def _begin(self, seen: Seen) -> bool:
        """Go on where the file's offset says. Return False if it is read to its end."""
        self._rows = 0
        offset = self._context.offsets.offset(_partition(seen))
        if offset is None:
            return True
        if (offset["length"], offset["modified"]) != (seen.length, seen.modified_ms):
            raise DataError(
                f"has {seen.length} bytes and was changed after {offset['rows']} rows of it were "
                f"written, when it had {offset['length']}: give what is new in it as another file"
            )
        if offset.get("done"):
            self._done[seen.path] = seen
            self._close()
            return False
        self._rows = int(offset["rows"])
        return True

    def _items(self, seen: Seen, table: Any) -> list[SourceItem]:
        skip = min(self._rows - self._passed, table.num_rows)
        if skip > 0:
            self._passed += skip
            table = table.slice(skip)
        schema, values = self._reader.values(table)
        partition, topic = _partition(seen), self._settings.topic
        items: list[SourceItem] = []
        for value in values:
            self._rows += 1
            offset = self._offset(seen)
            items.append(SourceRecord(partition, offset, topic, value, value_schema=schema))
        self._passed += len(values)
        return items

    def _offset(self, seen: Seen, done: bool = False) -> Mapping[str, Any]:
        offset = {"rows": self._rows, "length": seen.length, "modified": seen.modified_ms}
        return {**offset, "done": True} if done else offset

    def _check_unchanged(self, session: Any, seen: Seen) -> None:
        """Check that the file is as it was listed.

        Raises:
            DataError: the file was changed while it was read.
        """
        frame = session.read.format("binaryFile").load(_escaped(seen.path))
        rows = frame.selectExpr("length", "unix_millis(modificationTime) as modified").collect()
        if [(row["length"], row["modified"]) for row in rows] != [(seen.length, seen.modified_ms)]:
            raise DataError("was changed while it was read")

    def _set_aside(self, seen: Seen, reason: str, *, again: bool) -> None:
        """Quarantine a file. With `again`, it is tried again after the next listing."""
        self._aside[seen.path] = (None if again else seen, reason)
        self._context.log(f"{seen.path} is set aside: {reason}")

    def _close(self) -> None:
        self._file = self._stream = None


def unread(settings: Settings) -> list[str]:
    """Return what Spark would leave out of what the settings name, each with the reason. The first
    task reports it for all."""
    if settings.task or settings.format.lower() not in _OF_FILES:
        return []
    options = {name.lower(): value for name, value in settings.options.items()}
    return sorted(not_utf8(settings.path, options.get("pathglobfilter", "*")))


def not_utf8(path: str, names: str = "*") -> Iterator[str]:
    """Yield files below a path of this machine whose names are not UTF-8, each with what that
    means.

    Args:
        path: the path as Spark takes it, with patterns. On other machines nothing is found.
        names: a pattern for the names of files.
    """
    local = path.removeprefix("file://").removeprefix("file:")
    known: set[str] = set()
    pattern = local.strip("/")
    for root in Path("/").glob(pattern) if local.startswith("/") and pattern else ():
        folder, name = str(root.parent), root.name
        if not _is_utf8(name):
            if not name.startswith(_HIDDEN):
                yield _not_read(folder, name)
            continue
        for folder, folders, files in os.walk(root, followlinks=True):
            real = os.path.realpath(folder)
            bad = [name for name in folders if not _is_utf8(name)]
            bad += [name for name in files if not _is_utf8(name) and fnmatch.fnmatch(name, names)]
            yield from (_not_read(folder, name) for name in bad if not name.startswith(_HIDDEN))
            # A link may lead back.
            inside = [name for name in folders if name not in bad and not name.startswith(_HIDDEN)]
            folders[:] = inside if real not in known else []
            known.add(real)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_read(folder: str, name: str) -> str:
    return f"{folder}/{name!r} is not read: no UTF-8 in its name"


def _partition(seen: Seen) -> Partition:
    return {"file": seen.path}


def _escaped(path: str) -> str:
    """Return `path` for `load`, which takes some characters for a pattern."""
    return "".join(f"\\{mark}" if mark in "*?[]{}\\" else mark for mark in path)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, DataError) else with_cause(error)
