"""Files and folders that are for their owner alone: the log holds configs, passwords among them."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_private_folder(folder: Path) -> None:
    """Make the folder for its owner alone; one that is there becomes so, if it is ours.

    Raises:
        OSError: it cannot be made.
    """
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    make_private([folder])


def make_private(paths: Iterable[Path]) -> None:
    """Take from others what rights they have on these, which earlier versions left them. What is
    not there, or another user's, is left as it is."""
    for path in paths:
        with suppress(FileNotFoundError, PermissionError):
            mode = path.stat().st_mode & 0o777
            if mode & ~FOLDER_MODE:
                path.chmod(mode & FOLDER_MODE)


def create_private(path: Path) -> None:
    """Make an empty file. Raises `FileExistsError`."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
