"""Tasks that share a Python worker of Spark keep the contract of runners."""

import contextlib
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.spark.shared import spark_server  # noqa: F401
from support.task import runner_contract
from support.task.runner_contract import SESSION_TIMEOUT_MS, RunnerBench, is_alive

from headgate.ids import TaskId
from headgate.task.messages import TaskEnded, TaskOutcome, TaskReleased
from headgate_runtime.tasks.select import BODY, make_runner
from headgate_spark.launcher import SparkLauncher
from headgate_spark.server import SparkServer

ROOM = 3
SETTINGS = {
    "session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "headgate.tasks.per.process": str(ROOM),
}

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture
def bench(spark_server: SparkServer, tmp_path: Path) -> Iterator[RunnerBench]:  # noqa: F811
    made = RunnerBench(
        lambda report: make_runner(
            "spark",
            SETTINGS,
            report,
            spark_launcher=SparkLauncher(spark_server.address, BODY, 60.0),
        ),
        tmp_path,
    )
    yield made
    made.close()


@pytest.mark.parametrize(
    "check",
    [
        runner_contract.check_start_running_stop,
        runner_contract.check_pause_and_resume,
        runner_contract.check_failing_poll,
        runner_contract.check_hanging_stop_is_killed,
        runner_contract.check_killed_body,
    ],
    ids=lambda check: check.__name__,
)
def test_contract(check: Callable[[RunnerBench], None], bench: RunnerBench) -> None:
    check(bench)


def test_a_killed_python_worker_costs_its_tasks_which_go_on_in_another(bench: RunnerBench) -> None:
    runs, pids = zip(*(start(bench, number) for number in range(ROOM + 1)), strict=True)
    assert len(set(pids[:ROOM])) == 1
    assert pids[ROOM] not in pids[:ROOM]
    os.kill(pids[0], signal.SIGKILL)
    for run in runs[:ROOM]:
        told = ended(bench, run)
        assert told[-1] == TaskReleased()
        assert isinstance(told[-2], TaskEnded) and told[-2].outcome is TaskOutcome.LOST
    assert is_alive(pids[ROOM])
    again, pid = start(bench, 0)
    assert pid not in pids[:ROOM]
    for run in (again, runs[ROOM]):
        bench.runner.stop(run, 10_000)
        told = ended(bench, run)
        assert isinstance(told[-2], TaskEnded) and told[-2].outcome is TaskOutcome.STOPPED
    values = bench.values("numbers-0")
    assert values == [str(n) for n in range(len(values))]


def start(bench: RunnerBench, number: int) -> tuple[str, int]:
    """The run of a task that counts into a topic of its own, and its process."""
    pid_file = bench.folder / f"pid-{number}"
    pid_file.unlink(missing_ok=True)
    config = {"pid.file": str(pid_file), "topic": f"numbers-{number}", "pause.s": "0.01"}
    run = bench.start(
        "CountingSource",
        {**config, "task": str(number)},
        task=TaskId("c", number),
        transactional_id=f"g-c-{number}",
    )
    deadline = time.monotonic() + 120
    while not bench.values(f"numbers-{number}") or not pid_file.exists():
        assert time.monotonic() < deadline, bench.seen
        time.sleep(0.05)
    return run, int(pid_file.read_text())


def ended(bench: RunnerBench, run: str) -> list[object]:
    """All that was told of a run, to its release."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        told: list[object] = [report for of, report in bench.seen if of == run]
        if told and isinstance(told[-1], TaskReleased):
            return told
        with contextlib.suppress(queue.Empty):
            bench.seen.append(bench.reports.get(timeout=0.2))
    raise AssertionError(f"{run} does not end: {bench.seen}")
