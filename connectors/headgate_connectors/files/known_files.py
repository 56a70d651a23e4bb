"""What a task of a DirectorySource knows of each file, and which task a file belongs to."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from headgate.connector.api import OffsetReader, Partition
from headgate_connectors.files.file_tree import FilePath, Stat
from headgate_connectors.files.input import changed_of, stat_of
from headgate_connectors.files.reader import Reader
from headgate_connectors.files.server import UnreachableError
from headgate_connectors.files.source_config import Kind


class State(Enum):
    """What is known of a file as it was when it was last read."""

    NEW = "new"
    READ = "read"
    """To its end."""
    TAIL = "tail"
    """To its end but for a last line without a newline."""
    UNFINISHED = "unfinished"
    """It cannot be opened yet."""
    ASIDE = "aside"
    """It is bad, or another file that is to be left alone."""
    GONE = "gone"


TEXT_FORMATS = ("jsonl", "lines", "csv", "tsv")
RAW_MAX = 1_000_000
"""Most bytes of a bad line that are kept."""
WAITING = (State.TAIL, State.UNFINISHED)


@dataclass(slots=True)
class File:
    name: str
    """Path relative to the directory, with slashes."""
    path: FilePath
    kind: Kind
    offset: Mapping[str, Any] | None
    was: str = ""
    """First name of the file, empty if it was never renamed."""
    renamed: bool = False
    """`offset` is that of `was_last`, and not committed under the new name yet."""
    was_last: str = ""
    """The name before this one, where `renamed`."""
    topic: str = ""
    partition: Partition = field(default_factory=dict)
    header: tuple[str, str] = ("", "")
    state: State = State.NEW
    signature: tuple[int, int, int] = (-1, 0, 0)
    """Size, time of change, inode."""
    still_since: float = 0.0
    settled: bool = False
    reader: Reader | None = None

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def raw(self, start: int, end: int) -> bytes | None:
        """The bytes of a bad line without its end, for a dead letter. None: they cannot be had, or
        are too many."""
        text = self.kind.format in TEXT_FORMATS and self.kind.compression is None
        if not text or end - start > RAW_MAX:
            return None
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return file.read(end - start).removesuffix(b"\n").removesuffix(b"\r")
        except (OSError, UnreachableError):
            return None

    @property
    def is_parquet(self) -> bool:
        return self.kind.format == "parquet"


@dataclass(frozen=True, slots=True)
class Known:
    """A name as it was met for the first time."""

    owner: int
    """Number of the task that reads the file."""
    offset: Mapping[str, Any] | None
    was: str = ""
    renamed: bool = False
    was_last: str = ""


class Owners:
    """Which task reads which file: that whose number is the CRC-32 of the name modulo the count of
    tasks. A file that was renamed stays with the task of its first name, which knows how far it
    was read. All tasks come to the same result, each by itself."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._known: dict[str, Known] = {}
        self._inodes: dict[str, int] = {}
        """Files of the look before, by name."""

    def learn(
        self, inodes: Mapping[str, int], offsets: OffsetReader, mine: Mapping[str, File]
    ) -> Sequence[tuple[str, Known]]:
        """The names that are met for the first time.

        Args:
            inodes: all files that are there now, by name; 0 for symbolic links.
            mine: what this task reads, with the source offsets that it has reached.
        """
        new = [name for name in inodes if name not in self._known]
        if new:
            committed = {
                partition["file"]: offset
                for partition, offset in offsets.committed()
                if isinstance(partition.get("file"), str)
            }
            before = self._moved(inodes, committed)
            for name in new:
                self._known[name] = self._first_sight(name, inodes, committed, before, mine)
        self._inodes = dict(inodes)
        return [(name, self._known[name]) for name in new]

    def _moved(
        self, inodes: Mapping[str, int], committed: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[int, str]:
        """Names that a file had before, by its inode: another file, or none, has the name now."""
        found: dict[int, str] = {}
        # Of several names the last one: an inode is used again after its file was deleted.
        for name, offset in sorted(committed.items(), key=lambda one: changed_of(one[1])):
            stat = stat_of(offset)
            if stat is not None and inodes.get(name) != stat[0]:
                found[stat[0]] = name
        seen = {inode: name for name, inode in self._inodes.items() if inodes.get(name) != inode}
        return {**found, **seen}

    def _first_sight(
        self,
        name: str,
        inodes: Mapping[str, int],
        committed: Mapping[str, Mapping[str, Any]],
        before: Mapping[int, str],
        mine: Mapping[str, File],
    ) -> Known:
        offset = committed.get(name)
        if offset is not None:
            was = offset.get("was")
            was = was if isinstance(was, str) else ""
            return Known(self._hash(was or name), offset, was)
        old = before.get(inodes[name]) if inodes[name] else None
        if old is None:
            return Known(self._hash(name), None)
        first = self._known.get(old)
        was = (first.was if first is not None else "") or str(
            committed.get(old, {}).get("was") or old
        )
        reached = mine[old].offset if old in mine else committed.get(old)
        return Known(self._hash(was), reached, was, reached is not None, old)

    def _hash(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._tasks


def may_be_renamed(stat: Stat, offset: Mapping[str, Any] | None) -> bool:
    """Whether a file of the same inode can be the one that `offset` was taken of. An inode is used
    again after a file was deleted: a new file of the same length is told by its time."""
    known = stat_of(offset)
    if known is None or offset is None:
        return False
    _, size, written = known
    return stat.st_size > size or (stat.st_size == size and stat.st_mtime_ns == written)
