"""Decides which task of a DirectorySource reads which file."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from headgate.connector.api import OffsetReader, Partition
from headgate_connectors.files.input import changed_of, stat_of
from headgate_connectors.files.known_files import File, inode_of, partition_of


class Claims(Protocol):
    """Claims on files that this task reads and of which nothing is committed yet. See
    `headgate_connectors.files.claims`."""

    held: set[int]

    def claim(self, inodes: Collection[int]) -> Collection[int]:
        """Claim files by inode. Returns those that no other task has claimed."""
        ...

    def release(self, inodes: Collection[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a name when it is first seen, or when another file got it. The fields
    besides `owner` are those of `File`."""

    owner: int
    """Number of the task that reads the file."""
    offset: Mapping[str, Any] | None
    was: str = ""
    renamed: bool = False
    was_last: str = ""
    own: Mapping[str, Any] | None = None


Key: TypeAlias = tuple[str, str]
"""Name of a file and its first name, which stand for a source partition."""
LetGo: TypeAlias = dict[Key, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was read, as source offsets show it."""

    name: str
    was: str
    """The first name of the file."""
    offset: Mapping[str, Any] | None
    mine: bool = False
    """This task has read the file."""


class Owners:
    """Assigns files to tasks.

    A file belongs to the task whose number is the CRC-32 of its name modulo the number of tasks. A
    renamed file stays with the task of its first name, which knows how far the file was read.

    Each task computes the same result by itself from the committed source offsets. It does not see
    what other tasks have read and not committed. So a task claims a file before it first reads it,
    and holds the claim until something is committed. A task that finds a file claimed by another
    looks again later.
    """

    def __init__(self, task: int, tasks: int, claims: Claims | None) -> None:
        """
        Args:
            claims: claims of this task. None: the connector has only one task.
        """
        self._task = task
        self._tasks = tasks
        self._claims = claims
        self._known: dict[str, Known] = {}
        self._inodes: dict[str, int] = {}
        """Inodes by name, as of the look before."""
        self._unsettled: set[str] = set()
        """Names of renamed files of other tasks. Such a name is looked at again each time, since
        the task that takes the file over may find that it is another file."""
        self.awaited: Collection[str] = ()
        """Names of files that another task has claimed."""

    def learn(
        self,
        inodes: Mapping[str, int],
        offsets: OffsetReader,
        mine: Mapping[str, File],
        let_go: LetGo,
    ) -> Sequence[tuple[str, Known]]:
        """Return the names that are seen for the first time, and those that another file has now.

        Args:
            inodes: inodes of all files in the directory, by name. 0 stands for a symbolic link.
            offsets: the committed source offsets.
            mine: files that this task reads, with the source offsets that it has reached.
            let_go: last source offsets of partitions for which this task has no file now. They may
                not be committed yet.
        """
        self._release(inodes, offsets, mine, let_go)
        for name in self._inodes.keys() - inodes.keys():
            self._known.pop(name, None)
        met = [
            name
            for name, inode in inodes.items()
            if name not in self._known or self._inodes.get(name) != inode or name in self._unsettled
        ]
        found: dict[str, Known] = {}
        denied: Collection[str] = ()
        if met:
            found = self._found(met, inodes, offsets, mine, let_go)
            if self._claims is not None:
                new = [name for name in met if self._is_new(inodes[name], found.get(name), name)]
                if new:
                    granted = self._claims.claim({inodes[name] for name in new})
                    denied = {name for name in new if inodes[name] not in granted}
                    # A task that had claimed a file before may have committed meanwhile.
                    found = self._found(met, inodes, offsets, mine, let_go)
                    self._claims.release(
                        {
                            inodes[name]
                            for name in new
                            if not self._is_new(inodes[name], found.get(name), name)
                        }
                    )
        for name in denied:
            found.pop(name, None)
        self._known.update(found)
        self._unsettled = {
            name for name, each in found.items() if each.renamed and each.owner != self._task
        }
        self._inodes = {**inodes, **dict.fromkeys(denied, -1)}
        self.awaited = denied
        return list(found.items())

    def _release(
        self,
        inodes: Mapping[str, int],
        offsets: OffsetReader,
        mine: Mapping[str, File],
        let_go: LetGo,
    ) -> None:
        """Release the claims on files of which something is committed, since all tasks see that.
        Also release those on files that were renamed or removed before anything was read."""
        if self._claims is None or not self._claims.held:
            return
        held = self._claims.held
        gone = {key: inode_of(offset) for key, offset in let_go.items()}
        read: list[Partition] = [file.partition for file in mine.values() if file.inode in held]
        read += [partition_of(*key) for key, inode in gone.items() if inode in held]
        committed = {inode_of(offset) for offset in offsets.offsets(read)}
        pending = {*(file.inode for file in mine.values()), *gone.values()}
        pending |= {inodes[name] for name in mine if inodes.get(name) == self._inodes.get(name, -1)}
        self._claims.release({one for one in held if one in committed or one not in pending})

    def _is_new(self, inode: int, known: Known | None, name: str) -> bool:
        """Return whether this task is to read a file of which nothing is committed under its name.
        A renamed file counts as new, since it may turn out to be another file."""
        if inode == 0:
            return False
        known = known or self._known[name]
        is_read = inode_of(known.offset) == inode and not known.renamed
        return known.owner == self._task and not is_read

    def _found(
        self,
        met: Sequence[str],
        inodes: Mapping[str, int],
        offsets: OffsetReader,
        mine: Mapping[str, File],
        let_go: LetGo,
    ) -> dict[str, Known]:
        files = self._read(offsets, mine, let_go)
        moved = {
            inode: one
            for one in files
            if (inode := inode_of(one.offset)) is not None and inodes.get(one.name) != inode
        }
        by_name: dict[str, _Read] = {}
        for one in files:
            inode, before = inodes.get(one.name, 0), by_name.get(one.name)
            if before is None or _counts(one, inode) >= _counts(before, inode):
                by_name[one.name] = one
        untold = {
            inode
            for name, inode in inodes.items()
            if name not in by_name or not _counts(by_name[name], inode)
        }
        found: dict[str, Known] = {}
        for name in met:
            known = self._met(name, inodes[name], by_name.get(name), moved, untold)
            if known is not None:
                found[name] = known
        return found

    def _read(self, offsets: OffsetReader, mine: Mapping[str, File], let_go: LetGo) -> list[_Read]:
        """Return all files of which any task has read something, sorted by time of last change. The
        later one counts if two have the same inode, which is used again after a deletion."""
        committed: dict[Key, Mapping[str, Any]] = {}
        for partition, offset in offsets.committed():
            name = partition.get("file")
            if isinstance(name, str):
                committed[name, _first(partition) or name] = offset
        reached = [
            _Read(name, file.was or name, file.offset_of_name, True)
            for name, file in mine.items()
            if file.offset_of_name is not None
        ]
        for each in reached:
            let_go.pop((each.name, each.was), None)
            committed.pop((each.name, each.was), None)
        committed.update(let_go)
        # Earlier versions put the first name into the offset.
        others = [
            _Read(name, (_first(offset) or was) if was == name else was, offset)
            for (name, was), offset in committed.items()
        ]
        return sorted([*others, *reached], key=_order)

    def _met(
        self,
        name: str,
        inode: int,
        own: _Read | None,
        moved: Mapping[int, _Read],
        untold: Collection[int],
    ) -> Known | None:
        """Return what is known of a name. None: the task goes on with the file that it knows by
        this name."""
        old = moved.get(inode) if inode else None
        counts = 0 if own is None else _counts(own, inode)
        if old is not None and own is not None and counts == 1:
            # The file system uses an inode again after its file was deleted.
            counts = int(changed_of(own.offset or {}) >= changed_of(old.offset or {}))
        if old is not None and not counts:
            offset = None if own is None else own.offset
            return Known(self._hash(old.was), old.offset, old.was, True, old.name, offset)
        if own is not None and own.mine and name in self._known and (counts or own.was == name):
            return None
        if own is not None and counts:
            return Known(self._hash(own.was), own.offset, own.was if own.was != name else "")
        # Nothing is known of the file. The one read under this name was replaced or renamed.
        is_gone = own is not None and inode_of(own.offset) not in untold
        return Known(self._hash(name), own.offset if own is not None and is_gone else None)

    def _hash(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._tasks


def _order(read: _Read) -> tuple[int, int, bool]:
    position = (read.offset or {}).get("position")
    return changed_of(read.offset), position if isinstance(position, int) else 0, read.mine


def _first(found: Mapping[str, Any]) -> str:
    """Return the first name in a source partition, or in a source offset of an earlier version."""
    was = found.get("was")
    return was if isinstance(was, str) else ""


def _counts(read: _Read, inode: int) -> int:
    """Return whether the source offset of a name holds for the file that has the name now: 0 if
    not, 1 if that file was read, 2 if a user gave the offset."""
    if read.offset is None:
        return 0
    if stat_of(read.offset) is None:
        return 2 if read.offset.get("position") != 0 else 0
    return int(inode in (0, inode_of(read.offset)))
