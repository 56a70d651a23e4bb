"""Refill: deleted files of a topic-partition are written again from the records still in the log.

Each manifest entry that has lost a file is refilled by itself. The records from its first offset to
its last are read again and written to new files in place of those that are gone. Files that still
exist stay as they are. So each record is in exactly one file, even if the task is killed at any
time: a file either exists or is found missing at the next start.
"""

import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath
from typing import Final

from headgate.connector.api import SinkRecord, SinkTaskContext
from headgate.ports import TopicPartition, TransportError
from headgate_connectors.output.manifest import Entry, ManifestError, SinkManifest
from headgate_connectors.output.rows import at

LOOK_SECONDS: Final = 1.0
"""Time without a record after which the log is asked whether it has more records of an entry."""
WAYS_ON: Final = (
    "put back what is gone, or set on.missing.output = rewrite to write it anew from what the log "
    "still has, or on.missing.output = accept to go on without it"
)


def loss_text(root: Path, gone: Sequence[Entry], manifest: SinkManifest) -> str:
    """Return a message that files of the entries `gone` are missing, and how many records they
    had."""
    count = sum(len(manifest.missing(entry)) for entry in gone)
    seen = "1 committed file is" if count == 1 else f"{count:,} committed files are"
    rows = sum(entry.rows for entry in gone)
    some = "" if count == sum(len(entry.files) for entry in gone) else "some of "
    first = _first_gone(gone[0], manifest)
    return f"{seen} gone from {root}, with {some}{rows:,} records, such as {first}"


def _first_gone(entry: Entry, manifest: SinkManifest) -> str:
    """Return the first missing file of an entry. Other files of the entry may exist."""
    folders = manifest.missing(entry)
    gone = (file for file, _ in entry.files if file.rpartition("/")[0] in folders)
    return next(gone, entry.file)


def empty_text(root: Path, place: TopicPartition, committed: int) -> str:
    """Return a message that the consumer group has committed offsets but the folder has no files.

    The folder was deleted, or is another one. A sink that has read only tombstones, and skipped
    them, looks the same.
    """
    return (
        f"{root} has no file of {place[0]}-{place[1]}, but the sink has committed its records up "
        f"to offset {committed}"
    )


class Refill:
    """The entries of a topic-partition that are refilled, one after the other; at least one."""

    def __init__(self, manifest: SinkManifest, entries: Iterable[Entry], ending: str) -> None:
        """
        Args:
            entries: the entries that have lost a file, sorted by offset.
            ending: file name extension of the format that the sink writes.

        Raises:
            ManifestError: a missing file had another format than the sink writes now.
        """
        self._manifest = manifest
        self._entries = deque(entries)
        self._looked, self._seen_next = time.monotonic(), -1
        for entry in self._entries:
            if PurePath(entry.file).suffix != f".{ending}":
                raise ManifestError(
                    f"{_first_gone(entry, manifest)} is gone and cannot be written anew by a sink "
                    f"that writes .{ending} files: put it back, set format as it was, or set "
                    "on.missing.output = accept to go on without its records"
                )
        self._begin()

    def _begin(self) -> None:
        self.entry = self._entries.popleft()
        """The entry that is being refilled."""
        self.folders = frozenset(self._manifest.missing(self.entry))
        """Folders, relative to the root, in which a file of the entry is missing."""

    def go_on(self) -> bool:
        """Begin with the next entry. Returns False if there is none."""
        if not self._entries:
            return False
        self._begin()
        return True

    def is_due(self, next: int) -> bool:
        """Return whether it is time to ask the log whether it has more records of the entry. It is
        if `next`, the offset after the last record taken, did not change for `LOOK_SECONDS`."""
        now = time.monotonic()
        if next == self._seen_next and now - self._looked < LOOK_SECONDS:
            return False
        due = next == self._seen_next
        self._looked, self._seen_next = now, next
        return due

    def is_read(self, context: SinkTaskContext, next: int) -> bool:
        """Return whether the log has no more records of the entry from offset `next` on, since
        compaction or retention removed them. False also if the log cannot be asked now."""
        try:
            return self._first(context, max(next, self.entry.start)) is None
        except TransportError:
            return False

    def start(self, context: SinkTaskContext, after: int) -> int:
        """Return the offset at which to begin reading the entry. It is that of the first record
        still in the log, since a log may refuse to read from an offset that retention removed.

        Args:
            after: offset after all entries, which is returned if no record of the entry is left.
        """
        try:
            found = self._first(context, self.entry.start)
        except TransportError:
            return self.entry.start
        return after if found is None else found

    def _first(self, context: SinkTaskContext, start: int) -> int | None:
        place = self.entry.topic, self.entry.partition
        return context.first_record(*place, start, self.entry.end)

    def wants(self, record: SinkRecord, folder: str) -> bool:
        """Return whether a record of the entry belongs to a file that is missing.

        Raises:
            ManifestError: the entry has no file in `folder`, the record's folder.
        """
        if folder in self.folders:
            return True
        if any(file.rpartition("/")[0] == folder for file, _ in self.entry.files):
            return False
        raise ManifestError(
            f"{at(record)} is of folder {folder or '.'}, in which {self.entry.path} has no file: "
            "either the record was refused then and is a dead letter, and schema.evolution or "
            "columns.types was changed so that it is taken now, or the sink's transforms or its "
            "converter were changed. So the files of that commit cannot be written anew. Undo the "
            "change until they are written, put them back, or set on.missing.output = accept to "
            "go on without them"
        )
