"""A file system that is soon full."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_file_system(folder: Path, mebibytes: int) -> Iterator[Path]:
    """`folder`, which is made, as a file system of its own. Only root may mount one: for others the
    test is skipped, with that reason."""
    folder.mkdir()
    size = f"size={mebibytes}m"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
