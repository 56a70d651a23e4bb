"""A job that runs: lines for its source, its log as seen from outside, and recovery from a blow.

The job is a pipeline of a source `SOURCE`, which reads lines in ``in`` and writes `TOPIC`, and of a
sink `SINK`.
"""

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from bench.up_job import UpJob
from headgate.ids import State
from headgate.topics.status import StatusView, decode_status, fold_statuses
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
    """Four files of lines, not in the job's directory yet."""
    written = job.folder / "_written"
    written.mkdir(exist_ok=True)
    paths = [written / f"{name}-{number}.jsonl" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(b"".join(LINE % n for n in range(number, records, 4)))
    return paths


def warm(job: UpJob) -> None:
    job.move(write_lines(job, "warm", WARM_RECORDS), WARM_RECORDS)


class Steady:
    """Appends a line to a file in `in` every `STEADY_EVERY_S`, as a thread."""

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

    def grows(self) -> float:
        """The time at which it was seen to have more records than at the call."""
        return _more(self.records)

    def commits(self) -> float:
        """The time at which the sink was seen to have committed more than at the call."""
        return _more(self.committed)

    def owner(self) -> str | None:
        """Name of the worker that runs the source's task."""
        records, _ = self._reader.status_log.read(0)
        told = [decode_status(one.key or b"", one.value) for one in records]
        view = fold_statuses(StatusView(), told)
        for status in view.tasks.get(SOURCE, {}).values():
            if status.state is State.RUNNING:
                return status.worker_id
        return None


def _more(measure: Callable[[], int]) -> float:
    before, until = measure(), time.perf_counter() + PATIENCE_S
    while measure() <= before:
        if time.perf_counter() > until:
            raise RuntimeError(f"nothing new within {PATIENCE_S:.0f} s")
        time.sleep(LOOK_S)
    return time.perf_counter()


def recoveries(name: str, log: JobLog, blow: Callable[[], None]) -> str:
    """A report line: seconds from each of `BLOWS` blows to new records, and to the sink's next
    commit; medians, least and most."""
    took = [_recovered(log, blow) for _ in range(BLOWS)]
    source, sink = zip(*took, strict=True)
    return f"{name:40}{_spread(source)}  {_spread(sink)}"


def _recovered(log: JobLog, blow: Callable[[], None]) -> tuple[float, float]:
    log.grows()
    log.commits()
    time.sleep(2.0)
    blow()
    began = time.perf_counter()
    time.sleep(0.2)  # what was sent before the blow has arrived
    source = log.grows() - began
    return source, log.commits() - began


def _spread(seconds: tuple[float, ...]) -> str:
    return f"{statistics.median(seconds):>6.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
