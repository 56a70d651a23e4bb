"""The runner that packs tasks into processes keeps the contract of runners for each task."""

import contextlib
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.task import runner_contract
from support.task.runner_contract import RunnerBench, is_alive, process_bench

from headgate.ids import TaskId
from headgate.task.messages import TaskEnded, TaskKind, TaskOutcome, TaskReleased, TaskRunning

ROOM = 3
PACKED = {"headgate.tasks.per.process": str(ROOM)}

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunnerBench]:
    with process_bench(tmp_path, monkeypatch, **PACKED) as made:
        yield made


@pytest.mark.parametrize(
    "check",
    [*runner_contract.COMMON, *runner_contract.OF_PROCESSES],
    ids=lambda check: check.__name__,
)
@pytest.mark.exhaustive
def test_contract(check: Callable[[RunnerBench], None], bench: RunnerBench) -> None:
    """A task that is alone in its process is killed like one that has it to itself."""
    check(bench)


def test_no_thread_is_left(bench: RunnerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    runner_contract.check_no_thread_is_left(bench, monkeypatch)


def started(bench: RunnerBench, number: int, plugin: str = "CountingSource") -> tuple[str, int]:
    """The run of a task of its own, which counts into a topic of its own, and its process."""
    pid_file = bench.folder / f"pid-{number}"
    config = {"pid.file": str(pid_file), "topic": f"numbers-{number}", "task": str(number)}
    run = bench.start(
        plugin,
        {**config, "pause.s": "0.01"},
        task=TaskId("c", number),
        transactional_id=f"g-c-{number}",
    )
    bench.wait_for(run, TaskRunning)
    deadline = time.monotonic() + 30
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return run, int(pid_file.read_text())


def end_of(bench: RunnerBench, run: str) -> tuple[TaskEnded, TaskReleased]:
    """Return the last two reports of a run, also if they came while the test waited for others."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        told = [report for of, report in bench.seen if of == run]
        if told and isinstance(told[-1], TaskReleased):
            assert [type(report) for report in told].count(TaskEnded) == 1
            ended = told[-2]
            assert isinstance(ended, TaskEnded)
            return ended, told[-1]
        with contextlib.suppress(queue.Empty):
            bench.seen.append(bench.reports.get(timeout=0.2))
    raise AssertionError(f"{run} does not end: {bench.seen}")


def test_tasks_fill_one_process_before_the_next(bench: RunnerBench) -> None:
    found = [started(bench, number) for number in range(ROOM + 1)]
    pids = [pid for _, pid in found]
    assert len(set(pids[:ROOM])) == 1
    assert pids[ROOM] not in pids[:ROOM]
    # There is room again where one has stopped.
    bench.runner.stop(found[0][0], 10_000)
    assert bench.wait_for_end(found[0][0]).outcome is TaskOutcome.STOPPED
    bench.runner.stop(found[ROOM][0], 10_000)
    assert bench.wait_for_end(found[ROOM][0]).outcome is TaskOutcome.STOPPED
    assert started(bench, ROOM + 1)[1] == pids[0]


def test_a_killed_process_costs_all_its_tasks_and_no_other(bench: RunnerBench) -> None:
    found = [started(bench, number) for number in range(ROOM + 1)]
    os.kill(found[0][1], signal.SIGKILL)
    for run, _ in found[:ROOM]:
        ended, released = end_of(bench, run)
        assert ended.outcome is TaskOutcome.LOST
        assert released == TaskReleased()
    other, pid = found[ROOM]
    assert is_alive(pid)
    bench.wait_for_records(other, len(bench.values(f"numbers-{ROOM}")) + 10)
    # They go on from what was committed. Any of them may have crashed its process: each is alone
    # now, for half of three is one.
    again, elsewhere = started(bench, 0)
    assert started(bench, 1)[1] not in (elsewhere, pid) and elsewhere != pid
    bench.wait_for_records(again, 10)
    bench.runner.stop(again, 10_000)
    assert bench.wait_for_end(again).outcome is TaskOutcome.STOPPED
    values = bench.values("numbers-0")
    assert values == [str(n) for n in range(len(values))]


def test_a_task_that_hangs_is_abandoned_and_its_process_goes_with_its_last_neighbour(
    bench: RunnerBench,
) -> None:
    hanging, pid = started(bench, 0, "HangingSource")
    neighbour, same = started(bench, 1)
    assert same == pid
    bench.wait_for_records(hanging, 10)
    time.sleep(0.3)
    bench.runner.stop(hanging, 200)
    ended, released = end_of(bench, hanging)
    assert ended.outcome is TaskOutcome.LOST
    assert "did not stop within 200 ms: abandoned" in ended.reason
    assert released == TaskReleased(abandoned=True)
    bench.wait_for_records(neighbour, len(bench.values("numbers-1")) + 10)
    # No task comes to it any more.
    assert started(bench, 2)[1] != pid
    bench.runner.stop(neighbour, 10_000)
    assert bench.wait_for_end(neighbour).outcome is TaskOutcome.STOPPED
    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < deadline, "only a task that was given up is in it"
        time.sleep(0.02)


def test_tasks_that_hang_together_are_killed_with_their_process(bench: RunnerBench) -> None:
    found = [started(bench, number, "HangingSource") for number in range(2)]
    for run, _ in found:
        bench.wait_for_records(run, 10)
    time.sleep(0.3)
    for run, _ in found:
        bench.runner.stop(run, 200)
    for run, pid in found:
        ended, released = end_of(bench, run)
        assert "did not stop within 200 ms: killed" in ended.reason
        assert released == TaskReleased()
        assert not is_alive(pid)


def test_an_exactly_once_sink_has_a_process_of_its_own(bench: RunnerBench) -> None:
    source, pid = started(bench, 0)
    bench.wait_for_records(source, 100)
    sink = bench.start("PlannedSink", {"topics": "numbers-0"}, kind=TaskKind.SINK)
    bench.wait_for_records(sink, 10)
    os.kill(pid, signal.SIGKILL)
    assert end_of(bench, source)[0].outcome is TaskOutcome.LOST
    bench.runner.stop(sink, 10_000)
    assert bench.wait_for_end(sink).outcome is TaskOutcome.STOPPED
