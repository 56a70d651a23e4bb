"""The task body, which serves a task machine. It is the same on a Spark executor, in a process and
on a thread.

One thread runs everything of the task: connector code, log and machine. Other threads only wait for
the log: for a first look at the offsets topic, and for the end of a transaction during which the
task is polled. The body's thread awaits both, unless a thread of the connector that asks for source
offsets does.

The lifeline's reader only queues commands. The body never raises. Its last report says what
happened to the task.
"""

import sys
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from headgate.connector.api import PlannedSinkTask, SinkTask, SourceTask
from headgate.connector.config_providers import HiddenValues
from headgate.ports import FencedError, RefusedError, TransportError
from headgate.task.held_error import as_exception
from headgate.task.machine import MachineInput, TaskMachine
from headgate.task.messages import (
    BodyReport,
    Measured,
    TaskClosing,
    TaskEnded,
    TaskOutcome,
    TaskPaused,
    TaskProgress,
    TaskRunning,
    TaskSpec,
)
from headgate.task.steps import (
    Begin,
    BodyEffect,
    BodyInput,
    Close,
    Closed,
    Failed,
    LifelineLost,
    Report,
    SendFailed,
)
from headgate_runtime.config.hidden_values import hide_in_logs
from headgate_runtime.tasks.first_reach import await_brokers
from headgate_runtime.tasks.lifeline import BodyLifeline, LifelineGone
from headgate_runtime.tasks.long_calls import watched
from headgate_runtime.tasks.planned_body import PlannedPerformer
from headgate_runtime.tasks.progress import ProgressLog
from headgate_runtime.tasks.quietly import quietly
from headgate_runtime.tasks.sink_body import SinkPerformer
from headgate_runtime.tasks.source_body import SourcePerformer
from headgate_runtime.tasks.tools import BodyTools, PluginTools
from headgate_runtime.worker.log_format import work_on

REST_S = 1.0
"""Longest wait without a look at the lifeline while the machine is at rest."""
MEASURE_MS = 5_000
"""How often measurements are reported while the machine has nothing to report."""


class Performer(Protocol):
    """Performs the effects of one kind of task."""

    @property
    def machine(self) -> TaskMachine: ...

    def perform(self, effect: BodyEffect) -> Sequence[BodyInput]:
        """Perform an effect. Return inputs for the machine, possibly none. May raise what connector
        code and the log raise."""
        ...

    def measured(self) -> Measured: ...

    def close(self) -> None:
        """Stop the task, close what is open, abort what is not committed. Does not raise."""
        ...


def run_body(lifeline: BodyLifeline, tools: BodyTools | None = None) -> TaskEnded:
    """Run the task of `lifeline.spec` to its end and return how it ended. Never raises."""
    hide_in_logs(lifeline.spec.hidden)
    work_on(lifeline.spec.task)
    performer: Performer | None = None
    try:
        await_brokers(lifeline)
        performer = _performer(lifeline, tools or PluginTools())
        with watched(lifeline.spec.task, lifeline.report):
            ended = _Body(lifeline, performer).run()
    except:  # noqa: E722  the outermost edge of a task
        ended = _shown_end(_ended(_failed(as_exception(sys.exc_info()[1]))), lifeline.spec)
        if performer is not None:
            lifeline.report(TaskClosing(ended))
            # After its last report the task may run elsewhere, so this run must not act after it.
            quietly(performer.close, lifeline.spec)
        lifeline.report(ended)
    lifeline.close()
    work_on(None)  # the thread may go back to its caller
    return ended


def _performer(lifeline: BodyLifeline, tools: BodyTools) -> Performer:
    found = tools.task_class(lifeline.spec)
    if issubclass(found, SourceTask):
        return SourcePerformer(lifeline, tools, found)
    if issubclass(found, SinkTask):
        return SinkPerformer(lifeline, tools, found)
    assert issubclass(found, PlannedSinkTask)
    return PlannedPerformer(lifeline, tools, found)


class _Body:
    def __init__(self, lifeline: BodyLifeline, performer: Performer) -> None:
        self._lifeline = lifeline
        self._performer = performer
        self._machine = performer.machine
        self._inputs: deque[BodyInput] = deque()
        self._told_lost = False
        lag = getattr(performer, "lag", None)
        sent = lambda: getattr(self._machine, "open_records", 0)  # noqa: E731
        now_ms = lifeline.now_ms()
        self._progress = ProgressLog(lifeline.spec, now_ms, lag or (lambda: None), sent)
        self._told = TaskProgress(0, 0, False)
        """The progress reported last."""
        self._measured_ms: int | None = None
        """When the performer's measurements were last looked at. None: the task was never running
        or paused."""
        self._ended = TaskEnded(TaskOutcome.FAILED, "the body ended without a word")
        bind = getattr(performer, "bind", None)
        if bind is not None:
            bind(self._interrupt)

    def run(self) -> TaskEnded:
        # Before any command: a command may have come while the body was made.
        self._handle(Begin())
        while not self._machine.ended:
            idle = not self._inputs and self._machine.at_rest
            for command in self._lifeline.take(REST_S if idle else 0.0):
                self._handle(command)
            if not self._told_lost and (reason := self._lifeline.lost):
                self._told_lost = True
                self._handle(LifelineLost(reason))
            if self._inputs:
                self._handle(self._inputs.popleft())
            self._progress.look(self._lifeline.now_ms())
            self._tell_measured()
        return self._ended

    def _tell_measured(self) -> None:
        """Report measurements that changed although the machine had nothing to report, such as a
        lag."""
        now_ms = self._lifeline.now_ms()
        if self._measured_ms is None or now_ms - self._measured_ms < MEASURE_MS:
            return
        self._measured_ms = now_ms
        self._tell_changed()

    def _tell_changed(self) -> None:
        progress = replace(self._told, measured=self._performer.measured())
        if progress != self._told and not self._machine.ended:
            self._told = progress
            self._lifeline.report(progress)

    def _handle(self, given: MachineInput) -> None:
        self._perform(self._machine.handle(self._lifeline.now_ms(), given))

    def _interrupt(self, given: BodyInput) -> None:
        """Serve an input from inside an effect (partitions that come and go) at once, with all that
        follows from it. An exception passes up through that effect."""
        for effect in self._machine.handle(self._lifeline.now_ms(), given):
            for outcome in self._performer.perform(effect):
                self._interrupt(outcome)

    def _perform(self, effects: Sequence[BodyEffect]) -> None:
        """Perform effects in order, up to the first that fails or makes the machine change
        course."""
        for effect in effects:
            if isinstance(effect, Report):
                report = _shown(effect.report, self._lifeline.spec)
                if isinstance(report, TaskEnded):
                    self._ended = report
                if isinstance(report, TaskProgress):
                    self._progress.reported(report)
                    self._told = report = replace(report, measured=self._performer.measured())
                if isinstance(report, TaskRunning | TaskPaused) and self._measured_ms is None:
                    self._measured_ms = self._lifeline.now_ms()
                self._lifeline.report(report)
                continue
            if isinstance(effect, Close):
                if self._measured_ms is not None:
                    self._tell_changed()  # such as the error that ends the task
                self._performer.close()
                self._inputs.append(Closed())
                continue
            self._progress.begun(effect)
            try:
                outcomes = self._performer.perform(effect)
            except BaseException as error:  # connector code may raise anything
                self._inputs.append(_failed(error))
                return
            for outcome in outcomes:
                self._progress.done(outcome)
                if not isinstance(outcome, SendFailed):
                    self._inputs.append(outcome)
                elif aside := self._machine.handle(self._lifeline.now_ms(), outcome):
                    self._perform(aside)
                    return


def _failed(error: BaseException) -> Failed:
    """Return the outcome for a task that raised `error`.

    Differs in `TransportError`: whether an unanswered commit happened is unknown. So the task ends
    as lost and is started anew, which finds out. A refusal for good ends it as failed.
    """
    trace = "".join(traceback.format_exception(error)).rstrip()
    reason = _one_line(error)
    if isinstance(error, FencedError):
        return Failed(TaskOutcome.FENCED, reason, trace)
    if isinstance(error, LifelineGone):
        return Failed(TaskOutcome.LOST, reason)
    if isinstance(error, TransportError) and not isinstance(error, RefusedError):
        return Failed(TaskOutcome.LOST, f"the log could not be reached: {reason}", trace)
    return Failed(TaskOutcome.FAILED, reason, trace)


def _shown(report: BodyReport, spec: TaskSpec) -> BodyReport:
    """Return a report with references in place of the values that they stand for in the task's
    configs."""
    match report:
        case TaskEnded():
            return _shown_end(report, spec)
        case TaskClosing(ending):
            return TaskClosing(_shown_end(ending, spec))
        case TaskProgress(detail=detail, quarantined=aside) if detail or aside:
            hide = HiddenValues(spec.hidden.items()).hide
            return replace(report, detail=hide(detail), quarantined=tuple(map(hide, aside)))
        case _:
            return report


def _shown_end(ended: TaskEnded, spec: TaskSpec) -> TaskEnded:
    hide = HiddenValues(spec.hidden.items()).hide
    trace = None if ended.trace is None else hide(ended.trace)
    return TaskEnded(ended.outcome, hide(ended.reason), trace)


def _one_line(error: BaseException) -> str:
    text = str(error).strip()
    name = type(error).__name__
    return f"{name}: {text.splitlines()[0]}" if text else name


def _ended(failed: Failed) -> TaskEnded:
    return TaskEnded(failed.outcome, failed.reason, failed.trace)
