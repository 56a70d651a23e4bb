"""Descriptors on files that SQLite has open too.

POSIX locks belong to a process and a file: closing *any* descriptor drops them all, also those that
SQLite holds through another. So what is opened here is never closed (one per file and process).
"""

import os
import threading
from pathlib import Path

_kept: dict[Path, tuple[int, int, int]] = {}
_mutex = threading.Lock()


def kept_open(path: Path) -> int:
    """A read-only descriptor on the file that is at `path` now.

    Raises:
        OSError: it is not there or cannot be read.
    """
    with _mutex:
        now = path.stat()
        known = _kept.get(path)
        if known is None or known[1:] != (now.st_dev, now.st_ino):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            opened = os.fstat(descriptor)
            known = _kept[path] = (descriptor, opened.st_dev, opened.st_ino)
        return known[0]
