"""Checks for free disk space in the data folder. A log that cannot be written stops everything."""

import errno
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from headgate_runtime.config.private_files import private_opener

LOW_BYTES: Final = 1_048_576
"""Below this free space, a probe file is written to see whether the disk is full."""
PROBE: Final = ".space"
PROBE_BYTES: Final = 65_536
"""Size of the probe. The log needs space for a page and its write-ahead log."""
GRACE_S: Final = 10.0
"""Time for somebody to free some space, in seconds."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """Watch over the file system of a data folder, which looks at it with each beat."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._full_since: float | None = None
        self.full: tuple[str, ...] = ()
        """What the last look saw that makes a stop now a failure."""
        self.news = ""
        """What there is to report since the last look. Empty: nothing."""

    def look(self) -> str:
        """Return why the run must end. Empty: it need not."""
        self.news = ""
        now = time.monotonic()
        if not is_full(self._data):
            if self._full_since is not None:
                self.news = f"there is space again for {self._data}"
            self._full_since, self.full = None, ()
            return ""
        if self._full_since is None:
            self._full_since, self.full = now, (full_text(self._data),)
            self.news = f"{full_text(self._data)}; this ends in {GRACE_S:.0f} s"
        return full_text(self._data) if now - self._full_since >= GRACE_S else ""


def full_text(data: Path) -> str:
    return f"the disk of the data folder {data} is full: free some space, then start again"


def unusable(data: Path, error: Exception) -> str:
    """Return the message for a data folder that cannot be used for this reason."""
    if getattr(error, "errno", None) in _FULL or is_full(data):
        return full_text(data)
    return f"the data folder {data} cannot be used: {error}"


def is_full(data: Path) -> bool:
    """Return whether nothing more can be written there."""
    try:
        found = os.statvfs(data)
    except OSError:
        return False
    if found.f_bavail * found.f_frsize >= LOW_BYTES:
        return False
    probe = data / PROBE
    try:
        with open(probe, "wb", opener=private_opener) as file:
            file.write(b"\0" * PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in _FULL
    finally:
        with suppress(OSError):
            probe.unlink()
    return False
