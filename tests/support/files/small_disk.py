"""A small file system, which a test can fill."""

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FILLER = "_filler"
PAGE = 4096


@contextlib.contextmanager
def small_file_system(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Make `folder` and mount a file system of its own there. Only root may mount one; the test of
    another user is skipped."""
    folder.mkdir()
    size = f"size={mebibytes}m"
    command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        # Lazily: a Spark that wrote there may look at it a moment longer.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def leave_free(disk: Path, pages: int) -> None:
    """Write `FILLER` in `disk` so that exactly this many pages stay free."""
    filler = disk / FILLER
    filler.unlink(missing_ok=True)
    with filler.open("wb") as file:
        while (more := os.statvfs(disk).f_bavail - pages) > 0:
            file.write(b"x" * (more * PAGE))
            file.flush()
    assert os.statvfs(disk).f_bavail == pages


def is_about_space(error: BaseException) -> bool:
    """Return whether the text of `error` says that the disk is full."""
    text = str(error).lower()
    return os.strerror(errno.ENOSPC).lower() in text or "disk is full" in text
