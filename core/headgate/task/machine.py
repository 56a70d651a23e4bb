"""Base of the machines of the three kinds of task: table, shutdown, and counts.

A table says for each (state, input) which states may follow; a missing pair is illegal. The method
named after the input's class decides which of them follows.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, TypeAlias

from headgate.errors import IllegalTransitionError
from headgate.ids import TargetState
from headgate.task.messages import (
    BatchDone,
    PauseTask,
    ResumeTask,
    StopTask,
    TaskClosing,
    TaskCommand,
    TaskEnded,
    TaskOutcome,
    TaskPaused,
    TaskProgress,
    TaskSpec,
)
from headgate.task.steps import BodyEffect, BodyInput, Close, Closed, Failed, LifelineLost, Report

PROGRESS_INTERVAL_MS = 500
IDLE_POLL_DELAY_MS = 5
RETRY_DELAY_MS = 100
RETRY_DELAY_MAX_MS = 10_000

MachineInput: TypeAlias = BodyInput | TaskCommand
Table: TypeAlias = Mapping[tuple[StrEnum, type], tuple[StrEnum, ...]]


class TaskMachine:
    """Base of the task machines. `handle` takes an input and returns what the body must do, in
    order."""

    TABLE: ClassVar[Table]
    CLOSING: ClassVar[StrEnum]
    ENDED: ClassVar[StrEnum]
    AT_REST: ClassVar[frozenset[StrEnum]]
    """States in which no effect is being performed: the body waits for a command."""

    def __init__(self, state: StrEnum, target: TargetState, *, tolerate: bool) -> None:
        self.state = state
        self._pause_wanted = target is TargetState.PAUSED
        self._tolerate = tolerate
        self._ending: TaskEnded | None = None
        """How the task will end once the effect being performed is over."""
        self._records = self._commits = 0
        self._skipped = 0
        self._skip_detail = ""
        self._error_text = ""
        """Error that the task is waiting out; empty if it waits for nothing."""
        self._idle = False
        self._quarantined: tuple[str, ...] = ()
        self._batch: BatchDone | None = None
        self._told = TaskProgress(0, 0, False)
        self._told_ms: int | None = None

    def _count_commit(self, records: int) -> None:
        """Count a commit of `records`. A commit without records is not counted."""
        self._records += records
        self._commits += records > 0

    @property
    def ended(self) -> bool:
        return self.state is self.ENDED

    @property
    def at_rest(self) -> bool:
        return self.state in self.AT_REST

    def handle(self, now_ms: int, given: MachineInput) -> list[BodyEffect]:
        """Return what the body must do about `given`, in order.

        Raises:
            IllegalTransitionError: The table does not allow `given` in the present state.
        """
        before = self.state
        allowed = self.TABLE.get((before, type(given)))
        if allowed is None:
            known = sorted(kind.__name__ for state, kind in self.TABLE if state is before)
            raise IllegalTransitionError(
                f"{type(given).__name__} in state {before}, expected one of {', '.join(known)}"
            )
        effects: list[BodyEffect] = getattr(self, _method(type(given)))(now_ms, given)
        assert self.state in allowed, f"{type(given).__name__}: {before} -> {self.state}"
        return effects

    # -- the way out, the same for all --

    def _on_failed(self, now_ms: int, given: Failed) -> list[BodyEffect]:
        return self._close(now_ms, TaskEnded(given.outcome, given.reason, given.trace))

    def _on_lifeline_lost(self, now_ms: int, given: LifelineLost) -> list[BodyEffect]:
        return self._end_soon(now_ms, TaskEnded(TaskOutcome.LOST, given.reason))

    def _on_stop_task(self, now_ms: int, _given: StopTask) -> list[BodyEffect]:
        return self._end_soon(now_ms, TaskEnded(TaskOutcome.STOPPED))

    def _on_closed(self, _now_ms: int, _given: Closed) -> list[BodyEffect]:
        assert self._ending is not None
        self.state = self.ENDED
        return [*self._progress(None), Report(self._ending)]

    def _end_soon(self, now_ms: int, ending: TaskEnded) -> list[BodyEffect]:
        """End at once if no effect is being performed, else after it. A lost lifeline overrides a
        stop: then there is no final commit."""
        if self.state in (self.CLOSING, self.ENDED):
            return []
        if self._ending is None or ending.outcome is TaskOutcome.LOST:
            self._ending = ending
        return self._rest_ended(now_ms) if self.at_rest else []

    def _rest_ended(self, now_ms: int) -> list[BodyEffect]:
        """End a machine that was at rest when it was stopped or lost its lifeline."""
        assert self._ending is not None
        return self._close(now_ms, self._ending)

    def _close(self, now_ms: int, ending: TaskEnded) -> list[BodyEffect]:
        self._ending = ending
        self._idle = False
        self.state = self.CLOSING
        if ending.outcome is TaskOutcome.STOPPED:
            return [Close()]  # the worker that asked has set the deadline
        return [Report(TaskClosing(ending)), Close()]

    @property
    def _must_drop(self) -> bool:
        """Whether the lifeline is lost. Then the task only ends, whatever the last effect's outcome
        was."""
        return self._ending is not None and self._ending.outcome is TaskOutcome.LOST

    # -- pause and resume: remembered, looked at when the step under way is over --

    def _on_pause_task(self, _now_ms: int, _given: PauseTask) -> list[BodyEffect]:
        self._pause_wanted = True
        return []

    def _on_resume_task(self, _now_ms: int, _given: ResumeTask) -> list[BodyEffect]:
        self._pause_wanted = False
        return []

    def _paused(self, state: StrEnum) -> list[BodyEffect]:
        self.state = state
        self._idle = False
        return [*self._progress(None), Report(TaskPaused())]

    # -- counts --

    def _progress(self, now_ms: int | None) -> list[BodyEffect]:
        """Return a report of the counts if it is due: `idle` changed, or the last report is
        `PROGRESS_INTERVAL_MS` old. With `now_ms` None the age does not matter."""
        aside = self._quarantined[-1] if self._quarantined else ""
        detail = self._error_text or self._skip_detail or aside
        present = TaskProgress(
            self._records,
            self._skipped,
            self._idle,
            detail,
            self._quarantined,
            self._batch,
            self._commits,
        )
        if present == self._told:
            return []
        if (
            now_ms is not None
            and present.idle is self._told.idle
            and self._told_ms is not None
            and now_ms - self._told_ms < PROGRESS_INTERVAL_MS
        ):
            return []
        self._told, self._told_ms = present, now_ms if now_ms is not None else self._told_ms
        return [Report(present)]

    def _count_skipped(self, count: int, detail: str) -> None:
        self._skipped += count
        self._skip_detail = detail


def retry_delay_ms(tries: int) -> int:
    """Return the delay before the next try. It doubles with each try, up to
    `RETRY_DELAY_MAX_MS`."""
    return int(min(RETRY_DELAY_MS << min(tries, 20), RETRY_DELAY_MAX_MS))


def start_paused(spec: TaskSpec) -> bool:
    return spec.target_state is TargetState.PAUSED


def _method(kind: type) -> str:
    """Return the handler's name for an input: ``_on_stop_task`` for ``StopTask``."""
    name = _METHODS.get(kind)
    if name is None:
        name = _METHODS[kind] = "_on_" + re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    return name


_METHODS: dict[type, str] = {}
