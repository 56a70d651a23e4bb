"""Files and folders of the data folder, which are for their owner alone.

They tell of configs, which may hold passwords, and of a token that lets its holder run code. What
connectors write is not among them: its mode is the user's umask, as ever.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_private_folder(folder: Path) -> None:
    """Make the folder, or take others' rights from one that is there and is ours."""
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    with suppress(PermissionError):
        folder.chmod(FOLDER_MODE)


def private_opener(path: str, flags: int) -> int:
    """For `open`: a new file is made so, and one that is there becomes so before it is used."""
    descriptor = os.open(path, flags, FILE_MODE)
    with suppress(PermissionError):  # another user's, who lets us write
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def write_private(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)
