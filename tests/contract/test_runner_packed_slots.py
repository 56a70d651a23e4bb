"""Where a launch waits for a slot, as on Spark, the packing runner uses no more processes than
there are slots."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.task.runner_contract import RunnerBench

from headgate.ids import TaskId
from headgate.task.company import TOGETHER_MS
from headgate.task.messages import TaskEnded, TaskOutcome, TaskReleased, TaskRunning
from headgate_runtime.tasks.launchers import ProcessLauncher
from headgate_runtime.tasks.packed_runner import PackedRunner
from headgate_runtime.tasks.server import LOOPBACK, LifelineServer
from headgate_spark.slots import slots_wanted

ROOM = 4
TASKS = 2 * ROOM
SLOTS = slots_wanted(1, [TASKS], ROOM) - 2
"""Without those for planned batches and for what still ends."""
LIMIT_MS = 5_000

pytestmark = pytest.mark.slow


class SlotLauncher:
    """Processes of this machine, `SLOTS` at a time: the others are queued, as Spark does it."""

    def __init__(self) -> None:
        self._launcher = ProcessLauncher()
        self._lock = threading.Lock()
        self._free = SLOTS
        self._queue: list[tuple[str, str, Callable[[str | None], None]]] = []
        self.waited = 0

    def launch(self, run: str, argument: str, ended: Callable[[str | None], None]) -> None:
        with self._lock:
            self._queue.append((run, argument, ended))
            self.waited += self._free == 0
        self._next()

    def kill(self, run: str) -> None:
        self._launcher.kill(run)

    def close(self) -> None:
        with self._lock:
            self._queue.clear()
        self._launcher.close()

    def _next(self) -> None:
        with self._lock:
            if not self._queue or not self._free:
                return
            self._free -= 1
            run, argument, ended = self._queue.pop(0)

        def over(error: str | None) -> None:
            with self._lock:
                self._free += 1
            ended(error)
            self._next()

        self._launcher.launch(run, argument, over)


@pytest.fixture
def launcher() -> SlotLauncher:
    return SlotLauncher()


@pytest.fixture
def bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: SlotLauncher
) -> Iterator[RunnerBench]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    server = LifelineServer(LIMIT_MS, LOOPBACK)
    made = RunnerBench(
        lambda report: PackedRunner(
            launcher, report, server, ROOM, silence_limit_ms=LIMIT_MS, spare=1
        ),
        tmp_path,
    )
    yield made
    made.close()
    server.close()


def test_tasks_of_processes_that_die_one_after_another_all_run_again(
    bench: RunnerBench, launcher: SlotLauncher
) -> None:
    """Each crash halves the company of the tasks that were in it. With a process for each half,
    the slots would be used up, and tasks would be RESTARTING as long as the others run."""
    pids = {number: start(bench, number) for number in range(TASKS)}
    assert len({pid for _, pid in pids.values()}) == 2
    for crash in range(4):
        killed = pids[crash % TASKS][1]
        lost = [number for number, (_, pid) in pids.items() if pid == killed]
        os.kill(killed, signal.SIGKILL)
        for number in lost:
            end(bench, pids[number][0])
        pids.update({number: start(bench, number) for number in lost})
        time.sleep(TOGETHER_MS / 1000 + 0.2)  # the next is no accident of the machine
    assert launcher.waited == 0
    assert len({pid for _, pid in pids.values()}) == TASKS // ROOM + 1


def start(bench: RunnerBench, number: int) -> tuple[str, int]:
    pid_file = bench.folder / f"pid-{number}"
    pid_file.unlink(missing_ok=True)
    config = {"pid.file": str(pid_file), "topic": f"numbers-{number}", "task": str(number)}
    run = bench.start(
        "CountingSource",
        {**config, "pause.s": "0.01"},
        task=TaskId("c", number),
        transactional_id=f"g-c-{number}",
    )
    bench.wait_for(run, TaskRunning, 30.0)
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return run, int(pid_file.read_text())


def end(bench: RunnerBench, run: str) -> None:
    while not any(of == run and isinstance(each, TaskReleased) for of, each in bench.seen):
        bench.seen.append(bench.reports.get(timeout=30))
    told = [each for of, each in bench.seen if of == run and isinstance(each, TaskEnded)]
    assert [each.outcome for each in told] == [TaskOutcome.LOST]
