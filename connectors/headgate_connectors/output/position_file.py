"""The position file: a small file beside a text file that a sink appends to.

It says how far the text file was written when consumer offsets were last committed. So a task that
starts can see that the text file was cut or replaced since. All tasks that append to one text file
share its position file.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headgate_connectors.output.text_file import Position, TextOutput


class PositionFile:
    """The position file of the text file at `output`."""

    def __init__(self, output: Path) -> None:
        self._path = output.with_name(f".{output.name}.position")

    def read(self) -> Position | None:
        """Return the noted position. None: there is no position file, or a crash of the machine
        has torn it.

        Raises:
            OSError: the position file cannot be read.
        """
        if not self._path.exists():
            return None
        with self._locked(os.O_RDONLY, fcntl.LOCK_SH) as handle:
            try:
                found = json.loads(os.pread(handle, 4096, 0))
                return Position(int(found["size"]), str(found["tail"]))
            except (ValueError, KeyError, TypeError):
                return None

    def write(self, output: TextOutput) -> Position:
        """Note where `output` ends, and return that position.

        Raises:
            OSError: the position file cannot be written.
        """
        # The end is looked up under the lock. Otherwise a slower task could overwrite a later
        # position with an earlier one.
        with self._locked(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as handle:
            position = output.position()
            text = json.dumps({"size": position.size, "tail": position.tail})
            data = f"{text}\n".encode()
            os.pwrite(handle, data, 0)
            os.ftruncate(handle, len(data))
            os.fsync(handle)
        return position

    @contextmanager
    def _locked(self, flags: int, kind: int) -> Iterator[int]:
        handle = os.open(self._path, flags, 0o644)
        try:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(handle, kind)
            yield handle
        finally:
            os.close(handle)
