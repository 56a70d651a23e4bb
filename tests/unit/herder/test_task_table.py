"""The table of a task's life: every pair of state and input is legal, or raises the named error."""

import itertools

import pytest

from headgate.errors import IllegalTransitionError
from headgate.herder.task_table import (
    ALIVE,
    NOTHING_ALIVE,
    SETTLED,
    SHOWN,
    TASK_TRANSITIONS,
    TaskInput,
    TaskState,
    next_state,
)

PAIRS = list(itertools.product(TaskState, TaskInput))


@pytest.mark.parametrize(("state", "given"), PAIRS)
def test_every_pair_is_legal_or_the_named_error(state: TaskState, given: TaskInput) -> None:
    if (state, given) in TASK_TRANSITIONS:
        assert next_state(state, given) is TASK_TRANSITIONS[state, given]
    else:
        with pytest.raises(IllegalTransitionError, match="expected"):
            next_state(state, given)


def test_every_state_is_alive_on_its_way_out_or_at_rest() -> None:
    groups = [*ALIVE, TaskState.STOPPING, TaskState.ENDING, *NOTHING_ALIVE]
    assert sorted(groups) == sorted(TaskState)


def test_a_run_begins_only_where_nothing_is_alive() -> None:
    starts = (TaskInput.START, TaskInput.START_EXACTLY_ONCE)
    assert {state for state, given in TASK_TRANSITIONS if given in starts} == {TaskState.IDLE}


def test_what_was_alive_is_released_before_it_is_idle() -> None:
    for (state, given), after in TASK_TRANSITIONS.items():
        if state not in NOTHING_ALIVE and after in NOTHING_ALIVE:
            assert given is TaskInput.RELEASED


def test_exactly_once_runs_only_through_fencing_and_recheck() -> None:
    """No path from the exactly-once start to running leaves out one of the three steps."""
    steps = (
        TaskInput.FENCING_ANSWERED,
        TaskInput.PRODUCER_INITIALISED,
        TaskInput.RECHECK_ANSWERED,
    )
    for left_out in steps:
        reached = _reach(TaskState.STARTING, without={left_out, TaskInput.RELEASED})
        assert TaskState.RUNNING not in reached, f"RUNNING is reached without {left_out}"


def test_stop_is_taken_in_every_state() -> None:
    assert {state for state, given in TASK_TRANSITIONS if given is TaskInput.STOP} == set(TaskState)


def test_every_state_is_reached_from_idle_and_leads_back() -> None:
    assert _reach(TaskState.IDLE, without=set()) == set(TaskState)
    for state in TaskState:
        assert TaskState.IDLE in _reach(state, without=set())


def test_what_lasts_is_shown_and_nothing_else() -> None:
    assert set(SHOWN) == set(SETTLED)


def _reach(start: TaskState, *, without: set[TaskInput]) -> set[TaskState]:
    reached, frontier = {start}, [start]
    while frontier:
        state = frontier.pop()
        for (before, given), after in TASK_TRANSITIONS.items():
            if before is state and given not in without and after not in reached:
                reached.add(after)
                frontier.append(after)
    return reached
