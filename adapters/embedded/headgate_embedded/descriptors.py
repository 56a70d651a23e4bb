"""Descriptors of files that SQLite has open too.

POSIX locks belong to a process and a file. Closing *any* descriptor of the file drops them all,
also those that SQLite holds through another one. So descriptors opened here are never closed (one
per file and process).
"""

import os
import threading
from pathlib import Path

_kept: dict[Path, tuple[int, int, int]] = {}
_mutex = threading.Lock()


def kept_open(path: Path) -> int:
    """Return a read-only descriptor of the file that is at `path` now. It is never closed.

    Raises:
        OSError: the file does not exist or cannot be read.
    """
    with _mutex:
        now = path.stat()
        known = _kept.get(path)
        if known is None or known[1:] != (now.st_dev, now.st_ino):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            opened = os.fstat(descriptor)
            known = _kept[path] = (descriptor, opened.st_dev, opened.st_ino)
        return known[0]
