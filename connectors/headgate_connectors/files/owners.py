"""Which task of a DirectorySource reads which file."""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from headgate.connector.api import OffsetReader, Partition
from headgate_connectors.files.input import changed_of, stat_of
from headgate_connectors.files.known_files import File, inode_of, partition_of


class Claims(Protocol):
    """Files that this task reads and has not committed, see `headgate_connectors.files.claims`."""

    held: set[int]

    def claim(self, inodes: Collection[int]) -> Collection[int]:
        """Claim files by inode, and tell which of them no other task has claimed."""
        ...

    def release(self, inodes: Collection[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class Known:
    """A name as it was met for the first time, or when another file got it."""

    owner: int
    """Number of the task that reads the file."""
    offset: Mapping[str, Any] | None
    was: str = ""
    renamed: bool = False
    was_last: str = ""
    own: Mapping[str, Any] | None = None


Key: TypeAlias = tuple[str, str]
"""Name of a file and its first name: a source partition."""
LetGo: TypeAlias = dict[Key, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Read:
    """What is known of a file that was read."""

    name: str
    was: str
    """The first name of the file."""
    offset: Mapping[str, Any] | None
    mine: bool = False
    """This task has read it."""


class Owners:
    """A file belongs to the task whose number is the CRC-32 of its name modulo the count of tasks.
    One that was renamed stays with the task of its first name, which knows how far it was read.

    All tasks come to the same result, each by itself, from what is committed. What a task has read
    and not committed, others do not see. So a task claims a file before it reads it for the first
    time, and holds it until that is committed. Whoever finds it claimed looks again later.
    """

    def __init__(self, task: int, tasks: int, claims: Claims | None) -> None:
        """`claims`: None where there is one task."""
        self._task = task
        self._tasks = tasks
        self._claims = claims
        self._known: dict[str, Known] = {}
        self._inodes: dict[str, int] = {}
        """Files of the look before, by name."""
        self._unsettled: set[str] = set()
        """Names of renamed files that another task has not taken over yet. It may know better."""
        self.awaited: Collection[str] = ()
        """Names of files that another task has claimed."""

    def learn(
        self,
        inodes: Mapping[str, int],
        offsets: OffsetReader,
        mine: Mapping[str, File],
        let_go: LetGo,
    ) -> Sequence[tuple[str, Known]]:
        """The names that are met for the first time, or that another file of these got.

        Args:
            inodes: all files that are there now, by name; 0 for symbolic links.
            mine: what this task reads, with the source offsets that it has reached.
            let_go: the last offsets of source partitions of which this task has no file now; they
                may not be committed yet.
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
                    # Who had claimed a file before may have committed meanwhile.
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
        """Files of which something is committed, which all tasks see, and those that have another
        name before anything was read."""
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
        """Whether this task is to read a file of which nothing is committed under its name. One
        that seems to be renamed may turn out to be another one."""
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
        """All files of which something was read, by all tasks, in the order of their last changes:
        an inode is used again after its file was deleted."""
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
        # Earlier versions have the first name in the offset.
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
        """None: the task goes on with the file that it knows by the name."""
        old = moved.get(inode) if inode else None
        counts = 0 if own is None else _counts(own, inode)
        if old is not None and own is not None and counts == 1:
            # An inode is used again after its file was deleted.
            counts = int(changed_of(own.offset or {}) >= changed_of(old.offset or {}))
        if old is not None and not counts:
            offset = None if own is None else own.offset
            return Known(self._hash(old.was), old.offset, old.was, True, old.name, offset)
        if own is not None and own.mine and name in self._known and (counts or own.was == name):
            return None
        if own is not None and counts:
            return Known(self._hash(own.was), own.offset, own.was if own.was != name else "")
        # Nothing tells of the file. What was read under the name is replaced, or has another name.
        is_gone = own is not None and inode_of(own.offset) not in untold
        return Known(self._hash(name), own.offset if own is not None and is_gone else None)

    def _hash(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self._tasks


def _order(read: _Read) -> tuple[int, int, bool]:
    position = (read.offset or {}).get("position")
    return changed_of(read.offset), position if isinstance(position, int) else 0, read.mine


def _first(found: Mapping[str, Any]) -> str:
    """The first name that a source partition tells, or an offset of an earlier version."""
    was = found.get("was")
    return was if isinstance(was, str) else ""


def _counts(read: _Read, inode: int) -> int:
    """Above 0 if what was read under a name counts for the file that has it now: it was this file,
    or a user gave the offset."""
    if read.offset is None:
        return 0
    if stat_of(read.offset) is None:
        return 2 if read.offset.get("position") != 0 else 0
    return int(inode in (0, inode_of(read.offset)))
