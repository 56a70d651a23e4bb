"""Renamed files of a DirectorySource. Reading continues at the position under the old name."""

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
    """Renamed files whose reading has not continued yet.

    Args:
        files: all files of the task, by name.
        options: settings for reading files.
    """

    def __init__(self, files: Mapping[str, File], options: ReadOptions) -> None:
        self._files = files
        self._options = options
        self._waiting: dict[str, File] = {}
        """Renamed files by the name before the present one."""
        self.let_go: dict[tuple[str, str], Mapping[str, Any]] = {}
        """The last source offset of each partition for which the task has no file now, by name and
        first name. It may not be committed yet."""

    def add(self, file: File) -> None:
        self._waiting[file.was_last] = file

    def comes_from(self, name: str) -> bool:
        """Return whether reading of a file that had this name must still continue under another
        one. Until then, the file that has the name now is not read."""
        return name in self._waiting

    def look(self, inodes: Mapping[str, int]) -> None:
        """Drop the renamed files that do not have the name any more at which they were found.

        Such a file keeps the offset under the name at which it was read.

        Args:
            inodes: inodes of all files in the directory, by name.
        """
        for file in list(self._waiting.values()):
            if inodes.get(file.name) != file.inode:
                self.reject(file)

    def reject(self, file: File) -> None:
        """Treat a file as not renamed: it only has an inode that another file had before."""
        if self._waiting.get(file.was_last) is file:
            del self._waiting[file.was_last]
        file.offset, file.own, file.renamed = file.own, None, False

    def forget(self, file: File) -> None:
        """Forget a file of the task, since another file has its name."""
        file.close()
        if file.offset_of_name is not None:
            self.let_go[file.name, file.was or file.name] = file.offset_of_name

    def begin_anew(self, partition: Partition) -> OffsetUpdate:
        """Return an update by which the next record of a partition is the first one of its file."""
        name = partition["file"]
        self.let_go[name, partition.get("was", name)] = BEGUN
        return OffsetUpdate(partition, BEGUN)

    def taken_over(self, file: File) -> list[OffsetUpdate]:
        """Return updates by which a file goes on under its new name, and its old name begins anew.
        They must be in one transaction.

        If another file had the new name before, and has a third name now, its updates are included,
        since its offset would be overwritten otherwise. Log rotation renames files in this way.
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
                return  # the partition already has the offset of another file
        found.append(self.begin_anew(partition))

    def _is_the_one(self, file: File) -> bool:
        """Return whether a renamed file is the one that its offset belongs to. True also if that
        cannot be found out, for example if it was renamed again: the next look finds it by this
        offset."""
        place = file.kind.format, file.path, file.offset
        try:
            open_reader(*place, file.kind.compression, self._options).close()
        except (ReplacedError, ShrunkError):
            if file.is_as_listed:
                self.reject(file)
                return False
        except (FileFault, NotReady, OSError):
            pass  # reported when the file is read
        return True
