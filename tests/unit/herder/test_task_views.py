"""The view of a task that ends."""

import pytest

from headgate.herder.held_task import HeldTask, task_view
from headgate.herder.task_table import TaskState
from headgate.ids import TaskId
from headgate.task.messages import TaskEnded, TaskOutcome


@pytest.mark.parametrize(
    ("state", "outcome", "detail"),
    [
        (TaskState.ENDING, TaskOutcome.FAILED, ""),  # it comes with FAILED, and is told once
        (TaskState.FAILED, TaskOutcome.FAILED, "boom"),
        (TaskState.ENDING, TaskOutcome.LOST, "boom"),  # no status tells it
    ],
)
def test_a_failure_has_its_reason_once_it_is_shown_as_one(
    state: TaskState, outcome: TaskOutcome, detail: str
) -> None:
    held = HeldTask(TaskId("a", 0), state, ended=TaskEnded(outcome, "boom"))
    assert task_view(held).detail == detail
