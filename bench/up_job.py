"""A running `headgate up`, and what new files cost from its source's directory to its sink."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from bench.processes import cpu_seconds
from headgate.ports import TransportError
from headgate_embedded import open_reader
from headgate_embedded.schema import RefusedError

TIMEOUT_S = 300.0
LOOK_S = 0.02


def headgate() -> str:
    """Return the path of the command that is installed beside this interpreter."""
    return str(Path(sys.executable).parent / "headgate")


class UpJob:
    """Runs `pipeline` in `folder`. The pipeline's data folder is ``state``, and its source reads
    ``in``.

    Args:
        sink: name of the connector whose commits count.
    """

    def __init__(self, folder: Path, pipeline: str, sink: str) -> None:
        self.folder = folder
        self._group = f"connect-{sink}"
        self._total = 0
        (folder / "in").mkdir(parents=True)
        (folder / "pipeline.toml").write_text(pipeline, encoding="utf-8")

    def __enter__(self) -> Self:
        with (self.folder / "up.log").open("wb") as log:
            self._process = subprocess.Popen(
                [headgate(), "up", "pipeline.toml"], cwd=self.folder, stdout=log, stderr=log
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def move(self, files: Iterable[Path], records: int, prefix: str = "") -> tuple[float, float]:
        """Rename `files` into the directory, and wait until the sink has committed their `records`.
        Returns the seconds and CPU seconds from one to the other.

        Raises:
            RuntimeError: the records are not committed in time, or the run has ended. The message
                has its log.
        """
        self._total += records
        began, cpu = time.perf_counter(), cpu_seconds(self._process.pid)
        for path in sorted(files):
            path.rename(self.folder / "in" / f"{prefix}{path.name}")
        while self._committed() < self._total:
            time.sleep(LOOK_S)
            if self._process.poll() is not None or time.perf_counter() - began > TIMEOUT_S:
                said = (self.folder / "up.log").read_text("utf-8", "replace")
                raise RuntimeError(f"{records} records are not committed; it said:\n{said}")
        return time.perf_counter() - began, cpu_seconds(self._process.pid) - cpu

    def _committed(self) -> int:
        try:
            reader = open_reader(self.folder / "state")
        except (RefusedError, TransportError):
            return 0  # the log was not created yet
        try:
            return sum(reader.record_log.committed(self._group).values())
        finally:
            reader.close()


@contextmanager
def temporary_job(pipeline: str, sink: str) -> Iterator[UpJob]:
    """Run a job in a temporary folder, which is removed with it."""
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder,
        UpJob(Path(folder), pipeline, sink) as job,
    ):
        yield job
