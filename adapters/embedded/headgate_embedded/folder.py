"""The lock on a data folder, which the supervisor of a cluster holds while it runs.

It is an flock on a file, so the kernel frees it however the holder ends. The file's content names
the holder, for the error message of a second process.
"""

import fcntl
import os
from datetime import datetime
from pathlib import Path
from typing import Final

from headgate_embedded.machine import command_line, start_ticks, wall_ms
from headgate_embedded.private import FILE_MODE, make_private, make_private_folder

LOCK_NAME: Final = "headgate.lock"


class FolderHeldError(Exception):
    """Another process runs a cluster on this data folder."""


class FolderLock:
    """A lock that this process holds until `close`, or until it ends."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Free the folder. The file remains: if it were removed, two processes could lock two
        different files of the same name."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hold_folder(path: str | Path) -> FolderLock:
    """Lock the data folder `path`, which is created if it does not exist. Other users lose access
    to it. Child processes do not inherit the lock.

    Raises:
        FolderHeldError: another process holds it. The message names the process, its command, and
            since when it holds the folder.
    """
    folder = Path(path)
    make_private_folder(folder)
    lock = folder / LOCK_NAME
    make_private([lock])
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held = os.pread(descriptor, 4096, 0).decode("utf-8", "replace").splitlines()
        os.close(descriptor)
        pid, since, command = (held + ["?"] * 3)[:3]
        raise FolderHeldError(
            f"{folder} is in use by process {pid} ({command}) since {since}: end that one, or join "
            "its cluster"
        ) from None
    since = datetime.fromtimestamp(wall_ms() // 1000).astimezone().isoformat(sep=" ")
    text = f"{os.getpid()}\n{since}\n{command_line(os.getpid())}\n".encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
    return FolderLock(lock, descriptor)


def is_held(path: str | Path) -> bool:
    """Return whether a process holds the data folder. No file is created.

    The lock itself is tried only if the process that the file names is alive. Otherwise the try
    could make a process fail that is taking the lock at this moment.
    """
    try:
        descriptor = os.open(Path(path) / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if _lives(os.pread(descriptor, 4096, 0)):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lives(held: bytes) -> bool:
    pid = held.partition(b"\n")[0]
    return pid.isdigit() and start_ticks(int(pid)) is not None
