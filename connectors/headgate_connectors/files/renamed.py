"""Renamed files of a DirectorySource, which are read on from where they were."""

from collections.abc import Mapping
from typing import Any

from headgate.connector.api import OffsetUpdate, Partition
from headgate_connectors.files.known_files import BEGUN, File, inode_of, partition_of
from headgate_connectors.files.reader import (
    FileFault,
    NotReady,
    ReadOptions,
    ReplacedError,
    ShrunkError,
)
from headgate_connectors.formats.readers import open_reader


class RenamedFiles:
    """Renamed files that have not been read on yet.

    Args:
        files: all files of the task, by name.
        options: how files are read.
    """

    def __init__(self, files: Mapping[str, File], options: ReadOptions) -> None:
        self._files = files
        self._options = options
        self._waiting: dict[str, File] = {}
        """Files by the name before."""
        self.let_go: dict[tuple[str, str], Mapping[str, Any]] = {}
        """Offsets of source partitions that have none of the task's files now, by name and first
        name: what the task has said last of each. It may not be committed yet."""

    def add(self, file: File) -> None:
        self._waiting[file.was_last] = file

    def comes_from(self, name: str) -> bool:
        """Whether a file that had this name is to be read on under another one. Until then the name
        does not begin anew."""
        return name in self._waiting

    def look(self, inodes: Mapping[str, int]) -> None:
        """Files by name as they are now: what has moved on meanwhile is still known by the name
        under which it was read."""
        for file in list(self._waiting.values()):
            if inodes.get(file.name) != file.inode:
                self.reject(file)

    def reject(self, file: File) -> None:
        """It only has an inode that another file had."""
        if self._waiting.get(file.was_last) is file:
            del self._waiting[file.was_last]
        file.offset, file.own, file.renamed = file.own, None, False

    def forget(self, file: File) -> None:
        """Another file has its name."""
        file.close()
        if file.offset_of_name is not None:
            self.let_go[file.name, file.was or file.name] = file.offset_of_name

    def begin_anew(self, partition: Partition) -> OffsetUpdate:
        """The next record of a source partition is the first of its file."""
        name = partition["file"]
        self.let_go[name, partition.get("was", name)] = BEGUN
        return OffsetUpdate(partition, BEGUN)

    def taken_over(self, file: File) -> list[OffsetUpdate]:
        """What says in one transaction that a file is read on under its new name, and that its old
        name begins anew.

        Where another file had the new name before, and has a third one now, that is said with it:
        what is known of it would be overwritten. Logs are rotated so.
        """
        chain = [file]
        self._waiting.pop(file.was_last, None)
        while (other := self._waiting.pop(chain[-1].name, None)) is not None:
            chain.append(other)
        found: list[OffsetUpdate] = []
        for one in chain:
            if one is file or self._is_the_one(one):
                self._carry(one, found)
        return found

    def _carry(self, file: File, found: list[OffsetUpdate]) -> None:
        file.own, file.renamed = None, False
        assert file.offset is not None
        found.append(OffsetUpdate(file.partition, file.offset))
        partition = partition_of(file.was_last, file.was)
        old = self._files.get(file.was_last)
        if old is not None and old.offset_of_name is not None:
            if inode_of(old.offset_of_name) == file.inode:
                old.forget()
            elif old.partition == partition:
                return  # it has the offset of another file already
        found.append(self.begin_anew(partition))

    def _is_the_one(self, file: File) -> bool:
        """Whether a renamed file is the one that its offset is of; True where nobody can tell, as
        where it has moved on: then the next look finds it by this offset."""
        place = file.kind.format, file.path, file.offset
        try:
            open_reader(*place, file.kind.compression, self._options).close()
        except (ReplacedError, ShrunkError):
            if file.is_as_listed:
                self.reject(file)
                return False
        except (FileFault, NotReady, OSError):
            pass  # told when it is read
        return True
