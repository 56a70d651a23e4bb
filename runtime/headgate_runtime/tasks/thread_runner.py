"""Runs task bodies as threads of the worker: there is no process to start, and none to kill.

A thread that does not return can only be abandoned. So exactly-once sinks are refused here (see
`select.runner_refusal`), and a task that hangs keeps its resources.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from headgate.ports import Reporter
from headgate.task.messages import (
    BodyReport,
    StopTask,
    TaskClosing,
    TaskCommand,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskSpec,
)
from headgate.task.run import cut_short, graceful_ms
from headgate_runtime.tasks.body import run_body
from headgate_runtime.tasks.lifeline import MemoryLifeline, monotonic_ms
from headgate_runtime.tasks.tools import BodyTools


@dataclass(slots=True)
class _ThreadRun:
    lifeline: MemoryLifeline
    thread: threading.Thread
    deadline_ms: int | None = None
    grace_ms: int = 0
    ending: TaskEnded | None = None
    """How the body will end, as it has announced."""
    ended: bool = False
    released: bool = False

    def end_within(self, grace_ms: int) -> None:
        """Set the deadline, unless an earlier one is set."""
        deadline_ms = monotonic_ms() + grace_ms
        if self.deadline_ms is None or deadline_ms < self.deadline_ms:
            self.deadline_ms, self.grace_ms = deadline_ms, grace_ms


class ThreadRunner:
    def __init__(
        self,
        report: Reporter,
        *,
        silence_limit_ms: int = 5_000,
        tools: BodyTools | None = None,
        alive: Callable[[], bool] | None = None,
    ) -> None:
        """Send beats only while `alive` returns True, that is, while the herder is served."""
        self._report = report
        self._limit_ms = silence_limit_ms
        self._tools = tools
        self._alive = alive or (lambda: True)
        self._lock = threading.RLock()
        self._runs: dict[str, _ThreadRun] = {}
        self._closed = threading.Event()
        self._beats = threading.Thread(target=self._beat, name="headgate-task-beats", daemon=True)
        self._beats.start()

    def start(self, spec: TaskSpec) -> None:
        lifeline = MemoryLifeline(
            spec, self._limit_ms, lambda report: self._reported(spec.run, report)
        )
        thread = threading.Thread(
            target=self._run, args=(spec.run, lifeline), name=f"task-{spec.task}", daemon=True
        )
        with self._lock:
            if spec.run in self._runs:
                raise ValueError(f"run {spec.run} was started before")
            self._runs[spec.run] = _ThreadRun(lifeline, thread)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many: the run did not begin
            reason = f"it could not be launched: {error}"
            self._reported(spec.run, TaskEnded(TaskOutcome.FAILED, reason))
            self._release(spec.run, abandoned=False)

    def send(self, run: str, command: TaskCommand) -> None:
        with self._lock:
            found = self._runs.get(run)
        if found is not None:
            found.lifeline.deliver(command)

    def stop(self, run: str, grace_ms: int) -> None:
        with self._lock:
            found = self._runs.get(run)
            if found is None:
                return
            found.end_within(grace_ms)
        found.lifeline.deliver(StopTask())

    def close(self) -> None:
        """Abandon all tasks that still run."""
        self._closed.set()
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            self._abandon(run, "the runner was closed")

    # -- from the body's thread --

    def _run(self, run: str, lifeline: MemoryLifeline) -> None:
        try:
            run_body(lifeline, self._tools)
        finally:  # in any case: otherwise the worker would wait for this run for ever
            self._release(run, abandoned=False)

    def _reported(self, run: str, report: BodyReport) -> None:
        with self._lock:
            found = self._runs.get(run)
            if found is None or found.ended:
                return
            if isinstance(report, TaskClosing):
                found.ending = report.ending
                found.end_within(graceful_ms(found.lifeline.spec))
                return
            found.ended = isinstance(report, TaskEnded)
            self._report(run, report)

    def _release(self, run: str, *, abandoned: bool) -> None:
        with self._lock:
            found = self._runs.pop(run, None)
            if found is not None:
                self._report(run, TaskReleased(abandoned))

    # -- from the thread that beats --

    def _beat(self) -> None:
        interval_s = min(self._limit_ms / 5_000, 0.05)
        while not self._closed.wait(interval_s):
            alive = self._alive()
            now_ms = monotonic_ms()
            with self._lock:
                runs = list(self._runs.items())
            for run, found in runs:
                if alive:
                    found.lifeline.heard()
                if found.deadline_ms is not None and now_ms >= found.deadline_ms:
                    self._abandon(run, f"it did not stop within {found.grace_ms} ms: abandoned")

    def _abandon(self, run: str, reason: str) -> None:
        with self._lock:
            found = self._runs.get(run)
            if found is None or not found.thread.is_alive():
                return
            found.lifeline.lose(reason)
            if not found.ended:
                found.ended = True
                ended = TaskEnded(TaskOutcome.LOST, reason)
                self._report(run, cut_short(found.ending, reason) if found.ending else ended)
            self._release(run, abandoned=True)
