"""States of a task as its worker's herder sees it: one table of transitions.

    idle ──> starting ──> awaiting fencing ──> initialising ──> rechecking ──> opening ──> running
      │         └> parked ──────^                                                ^ └> paused <─┘
      └──────────────────(not exactly-once)──────────────────────────────────────┘

    any of these ──stop──> stopping ──┐
    any of these ──ended──────────────┴> ending ──released──> idle
    idle ──> confirming (was fenced) ──> backing off ──> idle          idle ──> failed

*Idle* means that nothing of the task is alive on this worker: it waits to be started, or to be
revoked. A task is started from *idle* alone, so a run never begins before the one before it was
released. `headgate.task.source` and `headgate.task.sink` have the body's side of these states.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from headgate.errors import IllegalTransitionError
from headgate.ids import State


class TaskState(StrEnum):
    IDLE = "idle"
    STARTING = "starting"
    PARKED = "parked"
    """The task was started paused, and has not asked for fencing yet."""
    AWAITING_FENCING = "awaiting fencing"
    INITIALISING = "initialising"
    """Older producers are fenced, and the body initialises its own."""
    RECHECKING = "rechecking"
    """The config topic is read to its end. Until then the body may not go on to read its
    offsets."""
    OPENING = "opening"
    """The body calls `start()`. If it is not exactly-once, it reads its offsets first."""
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    ENDING = "ending"
    """The run's last report has come. Something of the run may still be alive."""
    CONFIRMING = "confirming"
    """The run was fenced. The log is read to its end, and the membership is confirmed."""
    BACKING_OFF = "backing off"
    FAILED = "failed"


class TaskInput(StrEnum):
    START_EXACTLY_ONCE = "start exactly-once"
    START = "start"
    STOP = "stop"
    FENCING_REQUESTED = "fencing requested"
    FENCING_ANSWERED = "fencing answered"
    PRODUCER_INITIALISED = "producer initialised"
    RECHECK_ANSWERED = "recheck answered"
    RUNNING_REPORTED = "running"
    PAUSED_REPORTED = "paused"
    PROGRESS_REPORTED = "progress"
    ENDED = "ended"
    RELEASED = "released"
    FAIL = "fail"
    CONFIRM = "confirm"
    BACK_OFF = "back off"
    WAKE = "wake"
    """The backoff is over."""


ALIVE: Final = (
    TaskState.STARTING,
    TaskState.PARKED,
    TaskState.AWAITING_FENCING,
    TaskState.INITIALISING,
    TaskState.RECHECKING,
    TaskState.OPENING,
    TaskState.RUNNING,
    TaskState.PAUSED,
)
"""States in which a run is under way that nobody has asked to stop."""

NOTHING_ALIVE: Final = (
    TaskState.IDLE,
    TaskState.CONFIRMING,
    TaskState.BACKING_OFF,
    TaskState.FAILED,
)
"""States in which the task can be given up at once."""

SETTLED: Final = (TaskState.PARKED, TaskState.RUNNING, TaskState.PAUSED, TaskState.FAILED)
"""States that last until something else is asked for."""


def _transitions() -> dict[tuple[TaskState, TaskInput], TaskState]:
    s, i = TaskState, TaskInput
    table = {
        (s.IDLE, i.START_EXACTLY_ONCE): s.STARTING,
        (s.IDLE, i.START): s.OPENING,
        (s.IDLE, i.FAIL): s.FAILED,
        (s.IDLE, i.CONFIRM): s.CONFIRMING,
        (s.IDLE, i.BACK_OFF): s.BACKING_OFF,
        (s.STARTING, i.FENCING_REQUESTED): s.AWAITING_FENCING,
        (s.STARTING, i.PAUSED_REPORTED): s.PARKED,
        (s.PARKED, i.FENCING_REQUESTED): s.AWAITING_FENCING,
        (s.AWAITING_FENCING, i.FENCING_ANSWERED): s.INITIALISING,
        (s.INITIALISING, i.PRODUCER_INITIALISED): s.RECHECKING,
        (s.RECHECKING, i.RECHECK_ANSWERED): s.OPENING,
        (s.OPENING, i.RUNNING_REPORTED): s.RUNNING,
        (s.OPENING, i.PAUSED_REPORTED): s.PAUSED,
        (s.RUNNING, i.RUNNING_REPORTED): s.RUNNING,
        (s.RUNNING, i.PAUSED_REPORTED): s.PAUSED,
        (s.PAUSED, i.RUNNING_REPORTED): s.RUNNING,
        (s.PAUSED, i.PAUSED_REPORTED): s.PAUSED,
        (s.ENDING, i.STOP): s.ENDING,
        (s.ENDING, i.RELEASED): s.IDLE,
        (s.CONFIRMING, i.BACK_OFF): s.BACKING_OFF,
        (s.BACKING_OFF, i.WAKE): s.IDLE,
    }
    for state in ALIVE:
        table[state, i.STOP] = s.STOPPING
        table[state, i.ENDED] = s.ENDING
        table[state, i.PROGRESS_REPORTED] = state
    # Reports that a body sent before the stop reached it.
    for crossing in (
        i.FENCING_REQUESTED,
        i.PRODUCER_INITIALISED,
        i.RUNNING_REPORTED,
        i.PAUSED_REPORTED,
        i.PROGRESS_REPORTED,
        i.STOP,
    ):
        table[s.STOPPING, crossing] = s.STOPPING
    table[s.STOPPING, i.ENDED] = s.ENDING
    for state in NOTHING_ALIVE:
        table[state, i.STOP] = s.IDLE
    return table


TASK_TRANSITIONS: Final[Mapping[tuple[TaskState, TaskInput], TaskState]] = MappingProxyType(
    _transitions()
)
"""(state, input) -> state after it. A missing pair is illegal."""

SHOWN: Final[Mapping[TaskState, State]] = MappingProxyType(
    {
        TaskState.PARKED: State.PAUSED,
        TaskState.RUNNING: State.RUNNING,
        TaskState.PAUSED: State.PAUSED,
        TaskState.FAILED: State.FAILED,
    }
)
"""State that a worker's view shows. All others show UNASSIGNED, as the status topic does."""


def next_state(state: TaskState, given: TaskInput) -> TaskState:
    """Return the state after an input.

    Raises:
        IllegalTransitionError: the table has no such pair.
    """
    found = TASK_TRANSITIONS.get((state, given))
    if found is None:
        expected = ", ".join(i.value for s, i in TASK_TRANSITIONS if s is state)
        raise IllegalTransitionError(
            f"a task that is {state} was given '{given}': expected {expected}"
        )
    return found
