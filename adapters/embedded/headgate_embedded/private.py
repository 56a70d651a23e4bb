"""Files and folders that only their owner can access. The log holds configs, and so passwords."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can access. An existing folder is changed so, if this
    user owns it.

    Raises:
        OSError: it cannot be created.
    """
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    make_private([folder])


def make_private(paths: Iterable[Path]) -> None:
    """Remove other users' access to these paths, which earlier versions gave them. Paths that do
    not exist, or that another user owns, are left as they are."""
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):
            mode = path.stat().st_mode & 0o777
            if mode & ~FOLDER_MODE:
                path.chmod(mode & FOLDER_MODE)


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can access.

    Raises:
        FileExistsError: it exists already.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
