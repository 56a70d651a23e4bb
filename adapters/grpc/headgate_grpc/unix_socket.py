"""Addresses of Unix sockets for gRPC.

The address of a Unix socket has room for a path of about 100 bytes, and data folders may have
longer paths. On Linux such a socket is reached through a descriptor of its folder.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PATH_MAX: Final = 100
_DESCRIPTORS: Final = Path("/proc/self/fd")


class PathTooLongError(OSError):
    """The path is too long for the address of a Unix socket on this system."""


@contextlib.contextmanager
def target_of(path: Path) -> Iterator[str]:
    """Yield gRPC's address of the socket at `path`. It is valid as long as the context is open.

    Raises:
        PathTooLongError: the path is too long, and this system has no ``/proc/self/fd``.
        OSError: the folder does not exist.
    """
    whole = path.absolute()
    if len(os.fsencode(whole)) <= PATH_MAX:
        yield f"unix:{whole}"
        return
    if not _DESCRIPTORS.is_dir():
        raise PathTooLongError(0, f"the path is longer than {PATH_MAX} bytes")
    folder = os.open(whole.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"unix:{_DESCRIPTORS}/{folder}/{whole.name}"
    finally:
        os.close(folder)
