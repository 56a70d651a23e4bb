"""Claims on files: a task tells the connector's other tasks on the machine which files it reads.

A claim covers the time until something of the file is committed. Each task has a file of its own in
a folder that all tasks of the connector know. The task holds a lock on its file as long as it
lives. It appends an inode to claim that file, and the negative inode to release it.

A task first writes its claim and then reads those of the others. So if two tasks claim the same
file at once, at least one of them withdraws. Tasks on other machines are not seen.
"""

import errno
import fcntl
import hashlib
import os
import secrets
import struct
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

_NUMBER: Final = struct.Struct("<q")
_MASK: Final = 2**63 - 1


def claims_folder(cluster: str, connector: str, directory: str) -> Path:
    """Return the folder that all tasks of a connector on this machine share for their claims."""
    name = hashlib.sha256(f"{cluster}\n{connector}\n{directory}".encode()).hexdigest()[:32]
    return Path(tempfile.gettempdir()) / f"headgate-claims-{os.getuid()}" / name


class FileClaims:
    """The claims of one task.

    Args:
        told: called once with a message if claims cannot be written.
    """

    def __init__(self, folder: Path, task: int, told: Callable[[str], None]) -> None:
        self._folder = folder
        self._task = task
        self._told = told
        self._file: int | None = None
        self._path = folder
        """The task's own file, once it was created."""
        self._others: dict[str, _Other] = {}
        self._works = True
        self.held: set[int] = set()

    def claim(self, inodes: Collection[int]) -> Collection[int]:
        """Claim files by inode. Returns those that no other task has claimed."""
        if not self._works:
            return inodes
        try:
            if self._file is None or not self._path.exists():  # temporary files are tidied up
                self._begin()
            self._write(inodes, 1)
            self.held.update(inodes)
            taken = self._of_others()
        except OSError as error:
            self._give_up(error)
            return inodes
        denied = {inode for inode in inodes if inode & _MASK in taken}
        self.release(denied)
        return set(inodes) - denied

    def release(self, inodes: Collection[int]) -> None:
        released = self.held.intersection(inodes)
        self.held -= released
        if released and self._works:
            try:
                self._write(released, -1)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Release all claims."""
        for other in self._others.values():
            os.close(other.file)
        self._others.clear()
        if self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def _give_up(self, error: OSError) -> None:
        """Make no claims any more, so that no task waits for a claim that cannot be released."""
        self._works = False
        self.held.clear()
        self.close()
        self._told(
            f"{self._folder}: tasks cannot tell each other what they read: {error}. A file that is "
            "renamed while it is read may be read twice"
        )

    def _write(self, inodes: Collection[int], sign: int) -> None:
        assert self._file is not None
        data = b"".join(_NUMBER.pack(sign * (inode & _MASK)) for inode in inodes)
        if os.write(self._file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _begin(self) -> None:
        """Create the task's own file, with the claims that it holds."""
        for folder in (self._folder.parent, self._folder):
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.stat().st_uid != os.getuid() or folder.is_symlink():
                raise PermissionError(f"{folder} belongs to another user")
        name = f"{self._task}-{secrets.token_hex(8)}"
        draft, former = self._folder / f".{name}", self._file
        self._file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        if former is not None:
            os.close(former)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._write(self.held, 1)
        self._path = draft.rename(self._folder / name)  # others see it with its lock

    def _of_others(self) -> set[int]:
        names = {
            path.name
            for path in self._folder.iterdir()
            if not path.name.startswith((".", f"{self._task}-"))
        }
        for name in self._others.keys() - names:
            os.close(self._others.pop(name).file)
        taken = set[int]()
        for name in names:
            path = self._folder / name
            if name not in self._others:
                try:
                    self._others[name] = _Other(os.open(path, os.O_RDONLY))
                except FileNotFoundError:
                    continue
            other = self._others[name]
            if other.has_ended():
                path.unlink(missing_ok=True)
                os.close(self._others.pop(name).file)
                continue
            taken |= other.claimed()
        return taken


class _Other:
    """The claims file of another task."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._position = 0
        self._claimed: set[int] = set()

    def has_ended(self) -> bool:
        try:
            fcntl.flock(self.file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def claimed(self) -> set[int]:
        size = os.fstat(self.file).st_size
        data = os.pread(self.file, size - self._position, self._position)
        whole = len(data) - len(data) % _NUMBER.size
        for (number,) in _NUMBER.iter_unpack(data[:whole]):
            if number > 0:
                self._claimed.add(number)
            else:
                self._claimed.discard(-number)
        self._position += whole
        return self._claimed
