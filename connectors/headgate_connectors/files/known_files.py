"""What a task of a DirectorySource knows of each file."""

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
OPEN_BYTES: Final = 1 << 20
"""Bytes of an open row from which on it is not parsed anew at each growth."""
OPEN_SECONDS: Final = 30.0
BEGUN: Final[Mapping[str, Any]] = {"position": 0}
"""Source offset of a name under which the next record is the first of its file."""
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
    own: Mapping[str, Any] | None = None
    """Where `renamed`: the offset of what stood under this name before."""
    topic: str = ""
    partition: Partition = field(default_factory=dict)
    """See `partition_of`."""
    header: tuple[str, str] = ("", "")
    state: State = State.NEW
    signature: tuple[int, int, int] = (-1, 0, 0)
    """Size, time of change, inode."""
    still_since: float = 0.0
    settled: bool = False
    tried: tuple[int, float] = (0, 0.0)
    """Size and time when it was last read to its end, or its tail."""
    deferred: bool = False
    """Whether its open row is not parsed anew yet, though it has grown: see `awaits_growth`."""
    reader: Reader | None = None

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    @property
    def inode(self) -> int | None:
        """Inode of the file that `offset` was taken of."""
        return inode_of(self.offset)

    @property
    def offset_of_name(self) -> Mapping[str, Any] | None:
        """The source offset that stands under the present name."""
        return self.own if self.renamed else self.offset

    def forget(self) -> None:
        """What stood under the present name goes on under another one."""
        if self.renamed:
            self.own = None
        else:
            self.offset = None

    def awaits_growth(self, signature: tuple[int, int, int], now: float) -> bool:
        """Whether a CSV file that has grown to `signature` is left for a while. A row whose quote
        is open is parsed from its beginning each time: at every growth, a lost quote would cost the
        square of the file. So a long one waits for a quarter more, or for `OPEN_SECONDS`. Whoever
        asks lets it wait no longer than until the file is still."""
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
        """Whether the file that is open, or has the name now, is the one that the last look found.
        A remote file is nothing but its name."""
        if not isinstance(self.path, Path):
            return True
        if self.reader is not None and (stat := stat_of(self.reader.marks)) is not None:
            return stat[0] == self.signature[2]
        try:
            return self.path.stat().st_ino == self.signature[2]
        except OSError:
            return False

    def look_again(self) -> bool:
        """The next look tells which file has the name now. True: until then nothing is read."""
        self.close()
        self.signature = (-1, 0, 0)
        return True

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
    def may_be_header_alone(self) -> bool:
        return self.kind.format in ("csv", "tsv") and self.kind.compression is None

    @property
    def counts_rows(self) -> bool:
        """Whether positions in it are rows; else they are bytes."""
        return self.kind.format in BY_ROWS


def partition_of(name: str, was: str) -> dict[str, str]:
    """The source partition of a file. That of a renamed one has its first name, too: by that all
    tasks know whose file it is, so each partition is written by one task alone."""
    return {"file": name, "was": was} if was and was != name else {"file": name}


def check_altered(offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]]) -> None:
    """
    Raises:
        ConfigError: an offset without a position of 0 or more, or a partition without file; or
            inferred types that are none.
    """
    for partition, offset in offsets:
        if offset is None:
            continue  # anything may be forgotten
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
    """Inode of the file that a source offset was taken of."""
    stat = stat_of(offset)
    return None if stat is None else stat[0]


def may_be_renamed(stat: Stat, offset: Mapping[str, Any] | None) -> bool:
    """Whether a file of the same inode can be the one that `offset` was taken of. An inode is used
    again after a file was deleted: a new file of the same length is told by its time."""
    known = stat_of(offset)
    if known is None or offset is None:
        return False
    _, size, written = known
    return stat.st_size > size or (stat.st_size == size and stat.st_mtime_ns == written)
