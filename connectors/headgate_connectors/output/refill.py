"""Files of a topic-partition that were deleted, and are written anew from what the log still has.

Each entry that has lost a file is filled by itself: its records are read again, from its first
offset to its last, and make the files that are gone. Files that are there stay as they are. So a
record is in one file, whenever the task is killed: the files are there or are found to be gone.
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
"""After so long without a record the log is asked whether it has more of an entry."""
WAYS_ON: Final = (
    "put back what is gone, or set on.missing.output = rewrite to write it anew from what the log "
    "still has, or on.missing.output = accept to go on without it"
)


def loss_text(root: Path, gone: Sequence[Entry], manifest: SinkManifest) -> str:
    """Files of `gone` are gone, and how much was in them."""
    count = sum(len(manifest.missing(entry)) for entry in gone)
    seen = "1 committed file is" if count == 1 else f"{count:,} committed files are"
    rows = sum(entry.rows for entry in gone)
    some = "" if count == sum(len(entry.files) for entry in gone) else "some of "
    first = _first_gone(gone[0], manifest)
    return f"{seen} gone from {root}, with {some}{rows:,} records, such as {first}"


def _first_gone(entry: Entry, manifest: SinkManifest) -> str:
    """The first file of an entry that is not there: others of it may be."""
    folders = manifest.missing(entry)
    gone = (file for file, _ in entry.files if file.rpartition("/")[0] in folders)
    return next(gone, entry.file)


def empty_text(root: Path, place: TopicPartition, committed: int) -> str:
    """The group has committed and the folder knows nothing: it was deleted, or is another one. A
    sink that has passed over nothing but tombstones looks the same."""
    return (
        f"{root} has no file of {place[0]}-{place[1]}, but the sink has committed its records up "
        f"to offset {committed}"
    )


class Refill:
    """Entries to fill, at least one, by their offsets."""

    def __init__(self, manifest: SinkManifest, entries: Iterable[Entry], ending: str) -> None:
        """
        Raises:
            ManifestError: a file was of another format than the sink writes now.
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
        """The entry that is filled now."""
        self.folders = frozenset(self._manifest.missing(self.entry))
        """Folders, below the root, in which a file of it is missing."""

    def go_on(self) -> bool:
        """Take the next entry. False: there is none."""
        if not self._entries:
            return False
        self._begin()
        return True

    def is_due(self, next: int) -> bool:
        """Whether the log is to be asked for more: for a while `next`, the offset after the last
        record that was taken, has been the same."""
        now = time.monotonic()
        if next == self._seen_next and now - self._looked < LOOK_SECONDS:
            return False
        due = next == self._seen_next
        self._looked, self._seen_next = now, next
        return due

    def is_read(self, context: SinkTaskContext, next: int) -> bool:
        """Whether the log has no more records of the entry from offset `next` on: compaction or
        retention took them. False where it is not known now."""
        try:
            return self._first(context, max(next, self.entry.start)) is None
        except TransportError:
            return False

    def start(self, context: SinkTaskContext, after: int) -> int:
        """Offset to read the entry from. A log may refuse to read from one that retention took.

        Args:
            after: offset after all entries, from which to go on where nothing of it is left.
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
        """Whether a record of the entry is of a file that is missing.

        Raises:
            ManifestError: the entry has no file in its folder.
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
