"""Machine of a sink task of planned batches, which itself plans, runs and commits whole batches.

    new -> starting -> running <-> paused
      \\-> waiting (paused from birth)

The manifest guards the progress of the task (`specs/sink/manifest.md`), so this machine decides
only when the next batch may begin.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar

from headgate.ids import TargetState
from headgate.task.machine import RETRY_DELAY_MS, Table, TaskMachine, retry_delay_ms
from headgate.task.messages import (
    BatchDone,
    PauseTask,
    ResumeTask,
    StopTask,
    TaskRunning,
)
from headgate.task.steps import (
    BatchRetriable,
    BatchRun,
    Begin,
    BodyEffect,
    CallStart,
    Closed,
    Failed,
    LifelineLost,
    RecordsSkipped,
    Report,
    RunBatch,
    Started,
)


class PlannedState(StrEnum):
    NEW = "new"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    CLOSING = "closing"
    ENDED = "ended"


class PlannedMachine(TaskMachine):
    CLOSING = PlannedState.CLOSING
    ENDED = PlannedState.ENDED
    AT_REST: ClassVar[frozenset[StrEnum]] = frozenset(
        {PlannedState.NEW, PlannedState.WAITING, PlannedState.PAUSED}
    )

    def __init__(self, target_state: TargetState) -> None:
        # The task itself applies `errors.tolerance`, since only it knows its records.
        super().__init__(PlannedState.NEW, target_state, tolerate=True)
        self._tries = 0

    def _on_begin(self, _now_ms: int, _given: Begin) -> list[BodyEffect]:
        return self._paused(PlannedState.WAITING) if self._pause_wanted else self._start_up()

    def _start_up(self) -> list[BodyEffect]:
        self.state = PlannedState.STARTING
        return [CallStart()]

    def _on_started(self, now_ms: int, _given: Started) -> list[BodyEffect]:
        if self._ending is None and not self._pause_wanted:
            return self._run()
        return self._next(now_ms, 0)

    def _run(self) -> list[BodyEffect]:
        self.state = PlannedState.RUNNING
        return [Report(TaskRunning()), RunBatch()]

    def _on_resume_task(self, now_ms: int, given: ResumeTask) -> list[BodyEffect]:
        super()._on_resume_task(now_ms, given)
        if self.state is PlannedState.WAITING:
            return self._start_up()
        return self._run() if self.state is PlannedState.PAUSED else []

    def _on_batch_run(self, now_ms: int, given: BatchRun) -> list[BodyEffect]:
        self._tries = 0
        self._error_text = ""
        self._count_commit(given.records)
        if given.records:
            number = 1 if self._batch is None else self._batch.number + 1
            self._batch = BatchDone(
                number, given.records, given.files, given.took_ms, given.next_ms
            )
        return self._next(now_ms, 0 if given.records else RETRY_DELAY_MS)

    def _on_batch_retriable(self, now_ms: int, given: BatchRetriable) -> list[BodyEffect]:
        self._error_text = given.reason
        self._tries += 1
        return self._next(now_ms, retry_delay_ms(self._tries - 1))

    def _on_records_skipped(self, _now_ms: int, given: RecordsSkipped) -> list[BodyEffect]:
        self._count_skipped(given.records, given.detail)
        return []

    def _next(self, now_ms: int, delay_ms: int) -> list[BodyEffect]:
        if self._ending is not None:
            return self._close(now_ms, self._ending)
        if self._pause_wanted:
            return self._paused(PlannedState.PAUSED)
        return [*self._progress(now_ms), RunBatch(delay_ms)]


def _table() -> Table:
    s = PlannedState
    out: dict[tuple[StrEnum, type], tuple[StrEnum, ...]] = {
        (s.NEW, Begin): (s.WAITING, s.STARTING),
        (s.WAITING, ResumeTask): (s.STARTING,),
        (s.PAUSED, ResumeTask): (s.RUNNING,),
        (s.STARTING, Started): (s.RUNNING, s.PAUSED, s.CLOSING),
        (s.STARTING, RecordsSkipped): (s.STARTING,),
        (s.RUNNING, BatchRun): (s.RUNNING, s.PAUSED, s.CLOSING),
        (s.RUNNING, BatchRetriable): (s.RUNNING, s.PAUSED, s.CLOSING),
        (s.RUNNING, RecordsSkipped): (s.RUNNING,),
        (s.CLOSING, RecordsSkipped): (s.CLOSING,),
        (s.CLOSING, Closed): (s.ENDED,),
    }
    for state in s:
        at_rest = state in PlannedMachine.AT_REST
        for command in (PauseTask, ResumeTask):
            out.setdefault((state, command), (state,))
        for ending in (StopTask, LifelineLost):
            out[state, ending] = (s.CLOSING,) if at_rest else (state,)
        if state not in (s.NEW, s.CLOSING, s.ENDED):
            out[state, Failed] = (s.CLOSING,)
    return MappingProxyType(out)


PLANNED_TRANSITIONS: Mapping[tuple[StrEnum, type], tuple[StrEnum, ...]] = _table()
PlannedMachine.TABLE = PLANNED_TRANSITIONS
