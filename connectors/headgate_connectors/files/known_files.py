"""The state that a task of DirectorySource keeps for each file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from headgate.connector.api import Partition
from headgate.connector.config import ConfigError
from headgate_connectors.files.file_tree import FilePath, Stat
from headgate_connectors.files.input import stat_of
from headgate_connectors.files.reader import Reader
from headgate_connectors.files.server import UnreachableError
from headgate_connectors.files.source_config import BY_ROWS, Kind
from headgate_connectors.formats.csv_inference import PARTITION, types_of


class State(Enum):
    """State of a file after it was last read."""

    NEW = "new"
    READ = "read"
    """Read to its end."""
    TAIL = "tail"
    """Read to its end except for a last line without a newline."""
    UNFINISHED = "unfinished"
    """The file is not complete enough to be read yet."""
    ASIDE = "aside"
    """Set aside: the file is bad, or it replaced another one and is to be skipped."""
    GONE = "gone"


TEXT_FORMATS = ("jsonl", "lines", "csv", "tsv")
RAW_MAX = 1_000_000
"""Maximum bytes of a bad line that is kept."""
OPEN_BYTES: Final = 1 << 20
"""An open row of this many bytes is not parsed again at each growth of the file."""
OPEN_SECONDS: Final = 30.0
BEGUN: Final[Mapping[str, Any]] = {"position": 0}
"""Source offset of a partition whose next record is the first one of its file."""
WAITING = (State.TAIL, State.UNFINISHED)


@dataclass(slots=True)
class File:
    """One file of a task, by its present name."""

    name: str
    """Path relative to the directory, with slashes."""
    path: FilePath
    kind: Kind
    offset: Mapping[str, Any] | None
    was: str = ""
    """First name of the file. Empty: it was never renamed."""
    renamed: bool = False
    """The file was renamed, and `offset` was reached under the name `was_last`. It is not committed
    under the new name yet."""
    was_last: str = ""
    """If `renamed`: the name before the present one."""
    own: Mapping[str, Any] | None = None
    """If `renamed`: the source offset of the file that had the present name before."""
    topic: str = ""
    partition: Partition = field(default_factory=dict)
    """Source partition, as `partition_of` makes it."""
    header: tuple[str, str] = ("", "")
    state: State = State.NEW
    signature: tuple[int, int, int] = (-1, 0, 0)
    """Size in bytes, time of the last change in nanoseconds, and inode."""
    still_since: float = 0.0
    settled: bool = False
    tried: tuple[int, float] = (0, 0.0)
    """Size of the file, and time by the monotonic clock, when it was last read to its end or
    tail."""
    deferred: bool = False
    """Whether the file has grown but its open row is not parsed again yet: see `awaits_growth`."""
    reader: Reader | None = None

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    @property
    def inode(self) -> int | None:
        """Inode of the file that `offset` belongs to."""
        return inode_of(self.offset)

    @property
    def offset_of_name(self) -> Mapping[str, Any] | None:
        """The source offset that belongs to the present name."""
        return self.own if self.renamed else self.offset

    def forget(self) -> None:
        """Forget the offset of the present name: the file it belongs to goes on under another
        name."""
        if self.renamed:
            self.own = None
        else:
            self.offset = None

    def awaits_growth(self, signature: tuple[int, int, int], now: float) -> bool:
        """Return whether a CSV file that has grown to `signature` is not read for a while.

        A row with an open quote is parsed from its beginning each time. If that happened at every
        growth, a lost quote would cost time quadratic in the size of the file. So a long open row
        waits until it is a quarter longer, or for `OPEN_SECONDS`. The caller ends the wait once the
        file does not change any more.
        """
        if not self.may_be_header_alone or self.state is not State.TAIL:
            return False
        size, since = self.tried
        begin = 0 if self.offset is None else self.offset["position"]
        if size - begin < OPEN_BYTES or now - since >= OPEN_SECONDS:
            return False
        same = signature[2] == self.signature[2] and signature[0] >= size
        return same and signature[0] - begin < (size - begin) * 5 // 4

    @property
    def is_as_listed(self) -> bool:
        """Whether the open file, or else the one that has the name now, is the one that the last
        look found. A remote file has no inode, so it always counts as the same."""
        if not isinstance(self.path, Path):
            return True
        if self.reader is not None and (stat := stat_of(self.reader.marks)) is not None:
            return stat[0] == self.signature[2]
        try:
            return self.path.stat().st_ino == self.signature[2]
        except OSError:
            return False

    def look_again(self) -> bool:
        """Leave the file until the next look, which finds out which file has the name now. Returns
        True, which says that the file has nothing more to read until then."""
        self.close()
        self.signature = (-1, 0, 0)
        return True

    def raw(self, start: int, end: int) -> bytes | None:
        """Return the bytes of a bad line without its line end, for the dead letter queue. None:
        they cannot be read, or are too many."""
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
    def may_be_header_alone(self) -> bool:
        return self.kind.format in ("csv", "tsv") and self.kind.compression is None

    @property
    def counts_rows(self) -> bool:
        """Whether positions in the file count rows. Otherwise they count bytes."""
        return self.kind.format in BY_ROWS


def partition_of(name: str, was: str) -> dict[str, str]:
    """Return the source partition of a file.

    That of a renamed file also has its first name, `was`. By the first name all tasks know which
    task the file belongs to, so only one task writes the partition.
    """
    return {"file": name, "was": was} if was and was != name else {"file": name}


def check_altered(offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]]) -> None:
    """Check source offsets that a user wants to set.

    Raises:
        ConfigError: an offset has no position of 0 or more, a partition has no file, or inferred
            types are malformed.
    """
    for partition, offset in offsets:
        if offset is None:
            continue  # any partition may be reset, so a bad one can be removed
        if partition == PARTITION:
            try:
                types_of(offset)
            except ValueError as error:
                raise ConfigError(f"offset of partition {json.dumps(partition)}: {error}") from None
            continue
        if not isinstance(partition.get("file"), str):
            raise ConfigError(
                f"Partition objects should contain the key 'file', or be {json.dumps(PARTITION)}: "
                f"leave {json.dumps(dict(partition))} out, or give null to have it forgotten"
            )
        position = offset.get("position")
        if not isinstance(position, int) or isinstance(position, bool) or position < 0:
            raise ConfigError(
                "Offset objects should either be null or contain the key 'position' with a "
                f"whole number of 0 or more, not {position!r}"
            )


def inode_of(offset: Mapping[str, Any] | None) -> int | None:
    """Return the inode of the file that a source offset belongs to. None: the offset has none."""
    stat = stat_of(offset)
    return None if stat is None else stat[0]


def may_be_renamed(stat: Stat, offset: Mapping[str, Any] | None) -> bool:
    """Return whether a file with the same inode can be the one that `offset` belongs to.

    The file system uses an inode again after its file was deleted. A new file of the same size is
    told from the old one by its time of the last write.
    """
    known = stat_of(offset)
    if known is None or offset is None:
        return False
    _, size, written = known
    return stat.st_size > size or (stat.st_size == size and stat.st_mtime_ns == written)
