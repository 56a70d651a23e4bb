"""A task of a study: it takes time to start and to stop, and moves no records.

It stands for a thread of its worker, as Java's tasks are: it is frozen with its worker and dies
with it.
"""

from collections.abc import Callable
from typing import Protocol

from headgate.ids import TargetState
from headgate.simulation.schedule import Schedule
from headgate.simulation.sleeper import Sleeper
from headgate.simulation.study.model import Span
from headgate.task.messages import (
    BodyReport,
    PauseTask,
    ResumeTask,
    StopTask,
    TaskCommand,
    TaskEnded,
    TaskOutcome,
    TaskPaused,
    TaskRunning,
    TaskSpec,
)


class Told(Protocol):
    """Whoever is to know that a task runs."""

    def __call__(self, spec: TaskSpec, *, runs: bool) -> None: ...


class StudyBody(Sleeper):
    """One run of one task. `told` learns when it begins to run and when it does not any more."""

    def __init__(
        self,
        spec: TaskSpec,
        schedule: Schedule,
        report: Callable[[BodyReport], None],
        told: Told,
        start_ms: Span,
        stop_ms: Span,
    ) -> None:
        super().__init__()
        self.spec = spec
        self._schedule = schedule
        self._report = report
        self._told = told
        self._start_ms, self._stop_ms = start_ms, stop_ms
        self._paused = spec.target_state is TargetState.PAUSED
        self._started = False
        self._stopping = False
        self._runs = False

    def begin(self) -> None:
        self._after(self._start_ms, self._has_started)

    def command(self, command: TaskCommand) -> None:
        self.when_awake(lambda: self._obey(command))

    def die(self) -> None:
        self.dead = True
        self._tell()

    def freeze(self) -> None:
        self.frozen = True
        self._tell()

    def thaw(self, frozen_ms: int, silence_ms: int) -> None:
        """It goes on where it stood: as a thread, it does not notice that time has passed."""
        self.frozen = False
        self._tell()
        self.wake()

    def silence(self, reason: str) -> None:
        """A thread of the worker hears no silence: both stand still together."""

    def orphan(self) -> None:
        """The worker has crashed; so has its task."""
        self.die()

    def _after(self, span: Span, action: Callable[[], None]) -> None:
        delay_ms = self._schedule.chance.randint(*span)
        self._schedule.after(delay_ms, lambda: self.when_awake(action))

    def _has_started(self) -> None:
        if self._stopping:
            return
        self._started = True
        self._report(TaskPaused() if self._paused else TaskRunning())
        self._tell()

    def _obey(self, command: TaskCommand) -> None:
        match command:
            case StopTask() if not self._stopping:
                self._stopping = True
                self._after(self._stop_ms, self._has_stopped)
            case PauseTask() | ResumeTask():
                self._paused = isinstance(command, PauseTask)
                if self._started and not self._stopping:
                    self._report(TaskPaused() if self._paused else TaskRunning())
            case _:
                pass
        self._tell()

    def _has_stopped(self) -> None:
        self._report(TaskEnded(TaskOutcome.STOPPED))

    def _tell(self) -> None:
        away = self.dead or self.frozen or self._paused or self._stopping
        runs = self._started and not away
        if runs is not self._runs:
            self._runs = runs
            self._told(self.spec, runs=runs)
