"""A running job: lines for its source, its log as seen from outside, and its recovery from kills.

The job is a pipeline of a source `SOURCE`, which reads lines in ``in`` and writes `TOPIC`, and of a
sink `SINK`.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from bench.up_job import UpJob
from headgate.ids import State
from headgate.topics.status import (
    StatusView,
    TaskStatusReported,
    decode_status,
    fold_statuses,
)
from headgate_embedded import open_reader
from headgate_embedded.transport import EmbeddedReader

SOURCE, SINK, TOPIC = "events", "lake", "events"
LINE = b'{"user": 1234567, "action": "click", "page": "/a/b/c", "at": 1795220025955, "n": %d}\n'
WARM_RECORDS = 20_000
BLOWS = 3
LOOK_S = 0.005
STEADY_EVERY_S = 0.005
PATIENCE_S = 180.0


def write_lines(job: UpJob, name: str, records: int) -> list[Path]:
    """Write four files of lines outside the job's directory. Returns their paths."""
    written = job.folder / "_written"
    written.mkdir(exist_ok=True)
    paths = [written / f"{name}-{number}.jsonl" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(LINE % n for n in range(number, records, 4)))
    return paths


def warm(job: UpJob) -> None:
    job.move(write_lines(job, "warm", WARM_RECORDS), WARM_RECORDS)


class Steady:
    """A thread that appends a line to a file in ``in`` every `STEADY_EVERY_S` during the
    context."""

    def __init__(self, job: UpJob) -> None:
        self._path = job.folder / "in" / "live.jsonl"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        with self._path.open("ab", buffering=0) as out:
            while not self._over.wait(STEADY_EVERY_S):
                out.write(LINE % number)
                number += 1


class JobLog:
    """The job's embedded log, read from outside."""

    def __init__(self, job: UpJob) -> None:
        self._reader: EmbeddedReader = open_reader(job.folder / "state")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def records(self) -> int:
        return sum(self._reader.record_log.end_offsets([TOPIC]).values())

    def committed(self) -> int:
        return sum(self._reader.record_log.committed(f"connect-{SINK}").values())

    def grows(self) -> float | None:
        """Wait for more records in the log than at the call. Returns the time at which they were
        seen. None: there were no more within `PATIENCE_S`."""
        return _more(self.records)

    def commits(self) -> float | None:
        """Wait until the sink has committed more than at the call. Returns the time at which that
        was seen. None: it committed nothing within `PATIENCE_S`."""
        return _more(self.committed)

    def owner(self) -> str | None:
        """Return the name of the worker that runs the source's task. None: none does."""
        records, _ = self._reader.status_log.read(0)
        told = [decode_status(one.key or b"", one.value) for one in records]
        view = fold_statuses(StatusView(), told)
        for status in view.tasks.get(SOURCE, {}).values():
            if status.state is State.RUNNING:
                return status.worker_id
        return None

    def run(self) -> int | None:
        """Return a number of the source's run: the offset of the status record that says its task
        is RUNNING. Another run has another offset. None: the task is not RUNNING."""
        records, _ = self._reader.status_log.read(0)
        told = [(one.offset, decode_status(one.key or b"", one.value)) for one in records]
        of_source = [
            (offset, status.status.state)
            for offset, status in told
            if isinstance(status, TaskStatusReported) and status.task.connector == SOURCE
        ]
        offset, state = of_source[-1] if of_source else (None, None)
        return offset if state is State.RUNNING else None


def _more(measure: Callable[[], int]) -> float | None:
    before = measure()
    return seen(lambda: measure() > before)


def seen(holds: Callable[[], bool], look_s: float = LOOK_S) -> float | None:
    """Wait until `holds` returns True. Returns the time of that. None: not within `PATIENCE_S`."""
    until = time.perf_counter() + PATIENCE_S
    while not holds():
        if time.perf_counter() > until:
            return None
        time.sleep(look_s)
    return time.perf_counter()


Recovery = tuple[float | None, float | None]
"""Seconds from a kill to new records, and to the sink's next commit. None: not in time."""


def recoveries(name: str, log: JobLog, blow: Callable[[], None]) -> str:
    """Return a report line: the recoveries from `BLOWS` calls of `blow`, which kills something."""
    return report(name, [_recovered(log, blow) for _ in range(BLOWS)])


def report(name: str, took: Sequence[Recovery]) -> str:
    """Return a line: median, minimum and maximum of those in time, and how many were not."""
    source, sink = zip(*took, strict=True)
    return f"{name:40}{_spread(source)}  {_spread(sink)}"


def _recovered(log: JobLog, blow: Callable[[], None]) -> Recovery:
    if log.grows() is None or log.commits() is None:
        return None, None  # the job did not recover from the kill before
    time.sleep(2.0)
    blow()
    began = time.perf_counter()
    time.sleep(0.2)  # until records that were sent before the kill have arrived
    return took(began, log.grows()), took(began, log.commits())


def took(began: float, ended: float | None) -> float | None:
    return None if ended is None else ended - began


def _spread(seconds: Sequence[float | None]) -> str:
    in_time = [each for each in seconds if each is not None]
    late = f"{len(seconds) - len(in_time)} of {len(seconds)} not within {PATIENCE_S:.0f} s"
    if not in_time:
        return late
    told = f"{statistics.median(in_time):>6.1f} ({min(in_time):.1f} to {max(in_time):.1f})"
    return told if len(in_time) == len(seconds) else f"{told}, {late}"
