"""The runner of threads keeps the contract of runners, and reports what it cannot do."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.task import connectors as task_connectors
from support.task import runner_contract
from support.task.runner_contract import SESSION_TIMEOUT_MS, RunnerBench

from headgate.task.messages import TaskEnded, TaskKind, TaskOutcome, TaskReleased, TaskRunning
from headgate_runtime.tasks import thread_runner
from headgate_runtime.tasks.select import make_runner, runner_refusal

SETTINGS = {"session.timeout.ms": str(SESSION_TIMEOUT_MS)}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RunnerBench]:
    made = RunnerBench(lambda report: make_runner("thread", SETTINGS, report), tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("check", runner_contract.COMMON, ids=lambda check: check.__name__)
def test_contract(check: Callable[[RunnerBench], None], bench: RunnerBench) -> None:
    check(bench)


def test_no_thread_is_left(bench: RunnerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    runner_contract.check_no_thread_is_left(bench, monkeypatch)


def test_a_thread_that_does_not_stop_is_abandoned(bench: RunnerBench) -> None:
    run = bench.start("HangingSource")
    bench.wait_for_records(run, 10)
    time.sleep(0.3)
    bench.runner.stop(run, 100)
    ended = bench.wait_for(run, TaskEnded)
    assert ended.outcome is TaskOutcome.LOST
    assert "did not stop within 100 ms" in ended.reason
    assert bench.wait_for(run, TaskReleased) == TaskReleased(abandoned=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_body_that_breaks_lets_nobody_wait(
    bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise SystemExit("not even a last word")

    monkeypatch.setattr(thread_runner, "run_body", breaks)
    before = threading.enumerate()
    run = bench.start("CountingSource")
    assert bench.wait_for(run, TaskReleased) == TaskReleased(abandoned=False)
    for thread in threading.enumerate():
        if thread not in before and thread.name.startswith("task-"):
            thread.join(10)  # else what it ends with is seen in the next test


def test_an_exactly_once_sink_is_refused(bench: RunnerBench) -> None:
    run = bench.start("PlannedSink", {"topics": "numbers"}, kind=TaskKind.SINK)
    ended = bench.wait_for_end(run)
    assert ended.outcome is TaskOutcome.FAILED
    assert "cannot be killed" in ended.reason
    refusal = runner_refusal(task_connectors.PlannedSink, "thread")
    assert refusal is not None
    assert "PlannedSink is an exactly-once sink" in refusal
    assert runner_refusal(task_connectors.PlannedSink, "process") is None


def test_a_connector_of_another_runner_is_refused() -> None:
    class OnlySpark(task_connectors.CountingSource):
        REQUIRES_RUNNER = "spark"

    assert runner_refusal(OnlySpark, "spark") is None
    refusal = runner_refusal(OnlySpark, "process")
    assert refusal is not None
    assert "OnlySpark needs the task runner 'spark'" in refusal


def test_tasks_of_a_worker_that_is_not_served_end(tmp_path: Path) -> None:
    """The process lives, but its herder does not: its membership may have ended."""
    served = [True]
    made = RunnerBench(
        lambda report: make_runner(
            "thread", {"session.timeout.ms": "600"}, report, alive=lambda: served[0]
        ),
        tmp_path,
    )
    try:
        run = made.start("CountingSource", {"pause.s": "0.01"})
        made.wait_for(run, TaskRunning)
        time.sleep(0.6)
        assert not made.reports.empty()
        served[0] = False
        ended = made.wait_for_end(run)
        assert ended.outcome is TaskOutcome.LOST
        assert "nothing heard" in ended.reason
    finally:
        made.close()
