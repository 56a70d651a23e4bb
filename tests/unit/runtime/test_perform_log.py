"""How statuses are logged."""

import pytest

from headgate.ids import State, TaskId
from headgate.topics.status import Status, TopicActivity, encode_task_status, encode_topic_activity
from headgate_runtime.worker.perform import _has_failed


@pytest.mark.parametrize("state", list(State))
def test_only_failures_are_errors(state: State) -> None:
    _, value = encode_task_status(TaskId("c", 0), Status(state, "w", 1))
    assert _has_failed(value) is (state is State.FAILED)


def test_records_that_are_no_statuses_are_no_failures() -> None:
    _, value = encode_topic_activity(TopicActivity("t", "c", 0, 1))
    assert not _has_failed(value)
    assert not _has_failed(None)
