"""Files and folders of the data folder, which only their owner may read.

They show configs, which may have passwords, and a token that lets its holder run code. Connectors'
output is not among them: its mode follows the user's umask, as usual.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def make_private_folder(folder: Path) -> None:
    """Make the folder, or take others' rights from an existing folder of ours."""
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    with suppress(PermissionError):
        folder.chmod(FOLDER_MODE)


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open`, private before it is used, whether it is new or exists."""
    descriptor = os.open(path, flags, FILE_MODE)
    with suppress(PermissionError):  # it is another user's, who lets us write
        os.fchmod(descriptor, FILE_MODE)
    return descriptor


def write_private(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)
