"""SparkSource is killed at each step of a commit, and zombies of it wake up with stale views. Every
row is in the log once."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.spark import source_process
from support.spark.shared import spark_server  # noqa: F401
from support.spark.source_process import STEPS, TOPIC, records
from support.task.body_bench import visible

from headgate_embedded import open_transport, transport_settings
from headgate_spark.server import SparkServer

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(1200)]

FILES, ROWS, BATCH = 4, 2_500, 50
WANTED = FILES * ROWS
SECONDS = 180.0
Say = Callable[[str], None]


class Task:
    """One process of the task."""

    def __init__(
        self, folder: Path, remote: str, stops: Sequence[tuple[str, int]], wanted: int = WANTED
    ) -> None:
        config = {"format": "parquet", "mode": "files", "path": str(folder / "in")}
        config |= {"batch.rows": str(BATCH), "poll.interval.ms": "50", "files.settle.ms": "0"}
        given = {"remote": remote, "data": str(folder / "log"), "config": config}
        given |= {"stops": stops, "wanted": wanted}  # type: ignore[dict-item]
        self._process = subprocess.Popen(
            [sys.executable, source_process.__file__, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """What it says next."""
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        timer.cancel()
        return said

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


Start = Callable[..., Task]


@pytest.fixture
def start(spark_server: SparkServer, tmp_path: Path) -> Iterator[Start]:  # noqa: F811
    """Starts a process of the task, which reads `WANTED` rows of files."""
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        ids = range(file * ROWS, (file + 1) * ROWS)
        pq.write_table(pa.table({"id": ids}), tmp_path / "in" / f"{file}.parquet")
    log = open_transport(transport_settings(tmp_path / "log"))
    log.record_log.create_topic(TOPIC, 1)
    log.close()
    made: list[Task] = []

    def started(*stops: tuple[str, int], wanted: int = WANTED) -> Task:
        made.append(Task(tmp_path, spark_server.address, stops, wanted))
        return made[-1]

    yield started
    for task in made:
        task.kill()


def finish(start: Start, folder: Path) -> None:
    """A task that nobody hurts; then each row is there once, and another finds no more."""
    assert start().line().startswith("ended STOPPED")
    extra = start(wanted=WANTED + 1)
    time.sleep(10)
    extra.kill()
    found = Counter(json.loads(value)["id"] for value in visible(folder / "log", TOPIC))
    assert found == Counter(range(WANTED))


def test_its_process_is_killed_at_each_step(start: Start, tmp_path: Path, say: Say) -> None:
    killed: Counter[str] = Counter()
    for step in STEPS:
        for count in (1,) if step in ("init", "started") else (1, 3):
            task = start((step, count))
            assert task.line() == f"at {step}"
            task.kill()
            killed[step] += 1
    assert 0 < records(tmp_path / "log") < WANTED
    finish(start, tmp_path)
    say(f"process killed at: {dict(killed)}; {WANTED} rows once each")
    assert set(killed) == set(STEPS)


def test_zombies_with_a_stale_view_write_nothing(start: Start, tmp_path: Path, say: Say) -> None:
    """Each has read, and stands still at a step while another goes on behind it."""
    woken: Counter[str] = Counter()
    for step in ("started", "polled", "staged", "commit", "committed"):
        zombie = start((step, 1))
        assert zombie.line() == f"at {step}"
        owner = start(("committed", 4))
        assert owner.line() == "at committed"
        before = records(tmp_path / "log")
        zombie.go()
        assert zombie.line().startswith("ended FENCED"), step
        assert records(tmp_path / "log") == before, step
        owner.go()
        owner.kill()
        woken[step] += 1
    assert 0 < records(tmp_path / "log") < WANTED
    finish(start, tmp_path)
    say(f"zombies with a stale view woken at: {dict(woken)}; {WANTED} rows once each")
