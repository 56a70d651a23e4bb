"""Tasks that work on Spark are killed at each step of a commit, and so are Spark's executors and
its driver.

Zombies of them wake up with stale and with fresh views. Every row comes out once.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.commands.processes import signal_if_alive
from support.spark import task_process
from support.spark.shared import Losses, executors, make_server, spark_server  # noqa: F401
from support.spark.task_process import KINDS, OUTAGES, SINK_STEPS

from headgate_spark.server import SparkServer
from headgate_spark.sessions import Sessions, executors_lost, first_line, session_is_over

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.timeout(1200)]

SECONDS = 180.0
EXTRA_S = 5
GIVEN_S = 1.0
"""Until a job that a task gives to Spark has got there."""
LOSSES = 4
EXIT = "java_method('java.lang.System', 'exit', 3)"
STALE, FRESH, AFTER = "stale", "fresh", "after the commit"
OF_SINKS = dict(zip(SINK_STEPS, (FRESH, STALE, STALE, STALE, AFTER, AFTER), strict=True))
VIEWS = {
    "SparkSource": {
        "init": FRESH,
        "started": STALE,
        "polled": STALE,
        "staged": STALE,
        "commit": STALE,
        "committed": AFTER,
    },
    "SparkFileSink": OF_SINKS,
    "SparkSink": OF_SINKS,
}
"""What a zombie knows that stands still at a step, when others have committed meanwhile."""
Say = Callable[[str], None]


class Task:
    """One process of the task."""

    def __init__(
        self, which: str, folder: Path, remote: str, stops: Sequence[tuple[str, int]], wanted: int
    ) -> None:
        given = {"which": which, "remote": remote, "folder": str(folder)}
        given |= {"stops": stops, "wanted": wanted}  # type: ignore[dict-item]
        self._process = subprocess.Popen(
            [sys.executable, task_process.__file__, json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """Return the next line of the process's output."""
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


class Tasks:
    """Processes of one task and its input."""

    def __init__(self, which: str, folder: Path, server: SparkServer) -> None:
        self.which, self.kind, self.server = which, KINDS[which], server
        self._folder = folder
        self._made: list[Task] = []
        self.wanted = self.kind.rows
        self.kind.given(folder, self.wanted)

    def start(
        self, *stops: tuple[str, int], more: int = 0, server: SparkServer | None = None
    ) -> Task:
        """`more`: rows to wait for that are not there. `server`: another Spark than the others'."""
        wanted = self.wanted + more
        address = (server or self.server).address
        made = Task(self.which, self._folder, address, stops, wanted)
        self._made.append(made)
        return made

    def rows(self) -> int:
        """Return the number of rows in the output, and assert that each is there once."""
        found = Counter(self.kind.ids(self._folder))
        assert found.total() == len(found), found.most_common(3)
        return len(found)

    def finish(self) -> None:
        """A task that nobody hurts; then each row is there once, and another finds no more."""
        assert self.start().line().startswith("ended STOPPED")
        extra = self.start(more=1)
        time.sleep(EXTRA_S)
        extra.kill()
        assert Counter(self.kind.ids(self._folder)) == Counter(range(self.wanted))

    def outages(self) -> list[str]:
        """Return the outages for which tasks have waited, as they reported them."""
        file = self._folder / OUTAGES
        return file.read_text().splitlines() if file.exists() else []

    def kill_executors(self) -> None:
        """All, once Spark has replaced those that were killed before."""
        deadline = time.monotonic() + SECONDS
        while not (found := executors(self.server)):
            assert time.monotonic() < deadline, "Spark brings no executors"
            time.sleep(0.1)
        for pid in found:
            signal_if_alive(pid, signal.SIGKILL)

    def kill_driver(self) -> None:
        assert self.server.pid is not None
        os.kill(self.server.pid, signal.SIGKILL)

    def close(self) -> None:
        for task in self._made:
            task.kill()


@pytest.fixture
def tasks(
    request: pytest.FixtureRequest,
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> Iterator[Tasks]:
    made = Tasks(request.param, tmp_path, spark_server)
    yield made
    made.close()


@pytest.mark.parametrize("tasks", KINDS, indirect=True)
def test_its_process_is_killed_at_each_step(tasks: Tasks, say: Say) -> None:
    killed: Counter[str] = Counter()
    for step in tasks.kind.steps:
        for count in (1,) if step in ("init", "started") else (1, 3):
            task = tasks.start((step, count))
            assert task.line() == f"at {step}"
            task.kill()
            killed[step] += 1
    assert 0 < tasks.rows() < tasks.wanted
    tasks.finish()
    say(f"process killed at: {dict(killed)}; {tasks.wanted} rows once each")
    assert set(killed) == set(tasks.kind.steps)


@pytest.mark.parametrize("tasks", KINDS, indirect=True)
@pytest.mark.parametrize("victim", ["executors", "driver"])
def test_spark_is_killed_at_each_step(tasks: Tasks, victim: str, say: Say) -> None:
    """Spark is killed while the task stands at the step. The task then goes on, and nobody starts
    it again."""
    killed: Counter[str] = Counter()
    task = tasks.start(*((step, 1) for step in tasks.kind.steps))
    for step in tasks.kind.steps:
        assert task.line() == f"at {step}"
        if victim == "driver":
            tasks.kill_driver()
            task.go()
            tasks.server.restart()
        else:
            tasks.kill_executors()
            task.go()
        killed[step] += 1
    assert task.line().startswith("ended STOPPED")
    tasks.finish()
    told = Counter(text.partition(":")[0] for text in tasks.outages())
    say(f"{victim} killed at: {dict(killed)}; outages: {dict(told)}; {tasks.wanted} rows once each")
    assert set(killed) == set(tasks.kind.steps)
    assert told or victim == "executors"


@pytest.mark.parametrize("tasks", KINDS, indirect=True)
def test_zombies_wake_up(tasks: Tasks, say: Say) -> None:
    """Each stands still at a step while another goes on behind it."""
    woken: Counter[str] = Counter()
    for step, view in VIEWS[tasks.which].items():
        zombie = tasks.start((step, 1), ("committed", 1))
        assert zombie.line() == f"at {step}"
        # A second one of a sink drops what the zombie has staged, unless it can still commit.
        for others in range(1 if tasks.which == "SparkSource" else 2, 0, -1):
            owner = tasks.start(("committed", 1))
            assert owner.line() == "at committed"
            if others > 1:
                owner.kill()
        before = tasks.rows()
        zombie.go()
        if tasks.which == "SparkSource" and view != FRESH:
            assert zombie.line().startswith("ended FENCED"), step
            assert tasks.rows() == before, step
        else:
            assert zombie.line() == "at committed", step
            assert tasks.rows() >= before, step
        owner.go()
        if tasks.which == "SparkSource" and view == FRESH:
            assert owner.line().startswith("ended FENCED"), "the zombie is the task now"
        owner.kill()
        zombie.kill()
        woken[view] += 1
    assert 0 < tasks.rows() < tasks.wanted
    tasks.finish()
    say(f"zombies woken, by view: {dict(woken)}; {tasks.wanted} rows once each")
    assert set(woken) == {STALE, FRESH, AFTER}


@pytest.mark.parametrize("tasks", KINDS, indirect=True)
def test_a_frozen_driver_wakes_up_with_the_work_of_a_zombie_or_of_a_dead_task(
    tasks: Tasks, tmp_path_factory: pytest.TempPathFactory, say: Say
) -> None:
    """The driver has work that was planned before other tasks, on another Spark, committed."""
    first = "started" if tasks.which == "SparkSource" else "stage"
    frozen = make_server(tmp_path_factory.mktemp("frozen"), "local[2]")
    woken: Counter[str] = Counter()
    try:
        frozen.start()
        for end in ("zombie", "dead"):
            task = tasks.start((first, 1), ("committed", 1), server=frozen)
            assert task.line() == f"at {first}"
            assert frozen.pid is not None
            os.kill(frozen.pid, signal.SIGSTOP)
            task.go()
            time.sleep(GIVEN_S)
            if end == "dead":
                task.kill()
            for _ in range(1 if tasks.which == "SparkSource" else 2):
                owner = tasks.start(("committed", 1))
                assert owner.line() == "at committed"
                owner.kill()
            before = tasks.rows()
            os.kill(frozen.pid, signal.SIGCONT)
            if end == "zombie":
                fenced = tasks.which == "SparkSource"
                said = task.line()
                assert said.startswith("ended FENCED") if fenced else said == "at committed", said
                task.kill()
            else:
                time.sleep(EXTRA_S)
                assert tasks.rows() == before
            woken[end] += 1
        assert 0 < tasks.rows() < tasks.wanted
        tasks.finish()
    finally:
        frozen.stop()
    say(f"drivers woken, by their task: {dict(woken)}; {tasks.wanted} rows once each")


@pytest.mark.parametrize("tasks", ["SparkFileSink", "SparkSource"], indirect=True)
def test_a_driver_that_stands_still_and_that_nobody_ends_is_tried_again(
    tasks: Tasks, say: Say
) -> None:
    """Such a driver may belong to someone else. Spark's client gives up a call after 80 s."""
    first = "polled" if tasks.which == "SparkSource" else "stage"
    task = tasks.start((first, 1))
    assert task.line() == f"at {first}"
    assert tasks.server.pid is not None
    os.kill(tasks.server.pid, signal.SIGSTOP)
    try:
        task.go()
        deadline = time.monotonic() + SECONDS
        while not tasks.outages():
            assert time.monotonic() < deadline, "its call goes on"
            time.sleep(0.5)
    finally:
        os.kill(tasks.server.pid, signal.SIGCONT)
    assert task.line().startswith("ended STOPPED")
    tasks.finish()
    say(f"{tasks.outages()[0][:300]}; {tasks.wanted} rows once each")


@pytest.mark.parametrize("tasks", KINDS, indirect=True)
def test_executors_are_lost_one_after_another_until_none_is_left(tasks: Tasks, say: Say) -> None:
    """All of them, again and again, while one has work. Spark brings others, and waits itself."""
    first = "polled" if tasks.which == "SparkSource" else "stage"
    task = tasks.start((first, 1))
    assert task.line() == f"at {first}"
    with Losses(tasks.server) as losses:
        task.go()
        deadline = time.monotonic() + SECONDS
        while losses.times < LOSSES:
            assert time.monotonic() < deadline, f"{losses.times} times without executors"
            time.sleep(0.2)
    assert task.line().startswith("ended STOPPED")
    tasks.finish()
    say(f"{losses.times} times without executors; {len(tasks.outages())} outages that it told")


def test_spark_tells_in_words_that_are_known_what_it_gives_up_for_its_executors(
    spark_server: SparkServer,  # noqa: F811
    say: Say,
) -> None:
    """Spark does not count executors that were killed. It counts those that end by their work."""
    sessions = Sessions(spark_server.address)
    try:
        with pytest.raises(Exception, match="failed 4 times") as caught:
            sessions.get().range(1).selectExpr(EXIT).collect()
    finally:
        sessions.close()
    say(first_line(caught.value)[:500])
    assert executors_lost(caught.value) and not session_is_over(caught.value)
