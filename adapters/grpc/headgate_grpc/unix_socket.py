"""Paths of unix sockets as gRPC takes them.

The address of a unix socket has room for a path of about 100 bytes, and data folders may lie
deeper. Such a socket is reached through a descriptor of its folder, on Linux.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PATH_MAX: Final = 100
_DESCRIPTORS: Final = Path("/proc/self/fd")


class PathTooLongError(OSError):
    """The path is too long for the address of a unix socket, here."""


@contextlib.contextmanager
def target_of(path: Path) -> Iterator[str]:
    """What to give to gRPC for the socket at `path`; good for as long as the context is open.

    Raises:
        PathTooLongError: shorter paths work.
        OSError: the folder is not there.
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
