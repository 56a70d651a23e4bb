"""A file to which lines are appended all the time, for a source to read."""

import threading
from pathlib import Path


class GrowingFile:
    """A file that grows on a thread of its own until `stop`.

    Args:
        at_once: number of lines in one write.
    """

    def __init__(self, path: Path, per_second: int, at_once: int = 10) -> None:
        self.path = path
        self.lines: list[str] = []
        self._at_once = at_once
        self._pause_s = at_once / per_second
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        path.touch()
        self._thread.start()

    def _write(self) -> None:
        with self.path.open("a") as file:
            while not self._over.wait(self._pause_s):
                new = [f"line {len(self.lines) + n}" for n in range(self._at_once)]
                self.lines += new
                file.write("".join(f"{line}\n" for line in new))
                file.flush()

    def stop(self) -> list[str]:
        """Stop, and return all lines of the file."""
        self._over.set()
        self._thread.join()
        return self.lines
