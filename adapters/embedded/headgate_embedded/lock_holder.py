"""Finding the process that holds the write lock of the file, and killing it if it is suspended.

SQLite's write lock in WAL mode is a POSIX lock on byte 120 of the ``-shm`` file, or 122 while the
write-ahead log is recovered after a crash. The kernel names its holder.
"""

import fcntl
import os
import signal
import struct
from pathlib import Path
from typing import Final

from headgate_embedded.descriptors import kept_open
from headgate_embedded.machine import boot_id, command_line, start_ticks
from headgate_embedded.private import make_private, make_private_folder

_LOCK_BYTES: Final = (120, 122)
_FLOCK: Final = struct.Struct("hhqqi4x")
"""The struct flock of 64-bit Linux: type, whence, start, length, pid."""


class LockHolders:
    """The processes of one cluster, each registered under its pid and start time.

    A process registers by a small file before its first write, so that every holder of the lock is
    known. The next process that registers removes the files of processes that have ended.
    """

    def __init__(self, path: Path) -> None:
        self._shared = path.with_name(path.name + "-shm")
        self._folder = path.with_name("processes")

    def register(self) -> None:
        make_private_folder(self._folder)
        pid = os.getpid()
        entry = self._folder / _name(pid, start_ticks(pid))
        entry.write_text(command_line(pid) + "\n", encoding="utf-8")
        make_private([entry])
        for other in self._folder.iterdir():
            number, _, _ = other.name.partition("-")
            if other.name != _name(int(number), start_ticks(int(number))):
                other.unlink(missing_ok=True)

    def holder(self) -> int | None:
        """Return the pid of the process that holds the lock. None: no process holds it, or this
        one does."""
        try:
            descriptor = kept_open(self._shared)
        except FileNotFoundError:
            return None
        for byte in _LOCK_BYTES:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
            if kind != fcntl.F_UNLCK:
                return int(pid)
        return None

    def end(self, pid: int, waited_ms: float) -> str:
        """Kill process `pid` if it is registered, is not this process, and still holds the lock.

        Return a text that says what was done, or why nothing was.
        """
        finding = f"process {pid} has held the write lock of {self._shared} for {waited_ms:.0f} ms"
        if pid <= 0 or pid == os.getpid():
            return f"{finding} and cannot be named from here: end it by hand"
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return f"{finding} and has ended"
        try:
            # The handle keeps naming this process even if its pid is used again.
            command = command_line(pid)
            if not (self._folder / _name(pid, start_ticks(pid))).exists():
                return f"{finding} and is none of this cluster ({command}): end it by hand"
            if self.holder() != pid:
                return f"{finding} and has let it go"
            try:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            except ProcessLookupError:
                return f"{finding} and has ended"
            except PermissionError:
                return f"{finding} and may not be killed by this user ({command}): end it by hand"
        finally:
            os.close(handle)
        return f"{finding} without a commit: killed it ({command})"


def _name(pid: int, ticks: int | None) -> str:
    return f"{pid}-{ticks}-{boot_id()}"
