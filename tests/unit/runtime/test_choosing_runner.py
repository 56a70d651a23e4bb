"""Which tasks run in processes. Where processes cannot be used, tasks run on threads (runner
`thread`)."""

from typing import Any

import pytest

from headgate.connector.api import PlannedSinkTask, SinkTask
from headgate.task.messages import TaskEnded, TaskOutcome, TaskReleased, TaskSpec
from headgate_connectors.delta_sink import DeltaSinkTask
from headgate_connectors.file_stream_sink import FileStreamSinkTask
from headgate_runtime.tasks.select import ChoosingRunner


class Started:
    def __init__(self) -> None:
        self.specs: list[TaskSpec] = []

    def start(self, spec: TaskSpec) -> None:
        self.specs.append(spec)


class Tools:
    def __init__(self, task: type[SinkTask]) -> None:
        self._task = task

    def task_class(self, _spec: TaskSpec) -> type[SinkTask]:
        return self._task


def chosen(task: type[SinkTask], processes: Started | None, spec: Any) -> tuple[int, list[Any]]:
    """Return how many tasks went to the other runner, and the reports."""
    others, reports = Started(), list[Any]()
    tools: Any = Tools(task)
    runner = ChoosingRunner(
        processes,  # type: ignore[arg-type]
        others,  # type: ignore[arg-type]
        lambda _run, report: reports.append(report),
        tools,
    )
    runner.start(spec)
    return len(others.specs), reports


class Spec:
    run = "r"


@pytest.mark.parametrize("task", [DeltaSinkTask, FileStreamSinkTask])
def test_without_processes_a_thread_runs_what_plans_no_batches(task: type[SinkTask]) -> None:
    """A table refuses the late commit of a thread that was left behind."""
    assert chosen(task, None, Spec()) == (1, [])


def test_a_thread_runs_no_sink_that_plans_batches() -> None:
    started, (ended, released) = chosen(PlannedSinkTask, None, Spec())
    assert started == 0
    assert isinstance(ended, TaskEnded) and ended.outcome is TaskOutcome.FAILED
    assert "use the task runner process or spark" in (ended.reason or "")
    assert isinstance(released, TaskReleased)


@pytest.mark.parametrize("task", [DeltaSinkTask, PlannedSinkTask])
def test_processes_run_what_works_beside_executors(task: type[SinkTask]) -> None:
    processes = Started()
    assert chosen(task, processes, Spec()) == (0, [])
    assert len(processes.specs) == 1
