"""A host, which runs the bodies of several tasks as threads of its process.

It decides nothing. The worker's `headgate.task.host.HostMachine` says what is started, abandoned
and ended. The tasks share the host's lifeline: whatever the host hears counts as heard by all of
them.
"""

import logging
import threading
from collections.abc import Callable
from typing import assert_never

from headgate.task.messages import (
    BodyReport,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskSpec,
)
from headgate_runtime.tasks.body import run_body
from headgate_runtime.tasks.lifeline import MemoryLifeline
from headgate_runtime.tasks.protocol import AbandonTask, EndHost, ForTask, HostCommand, StartTask
from headgate_runtime.tasks.socket_lifeline import HostLifeline
from headgate_runtime.tasks.tools import BodyTools, PluginTools

_log = logging.getLogger("headgate.task")

REST_S = 1.0
"""Longest wait without a look at the host's lifeline, in seconds."""


class TaskHost:
    """The host: its main thread takes commands, and each task has a thread of its own."""

    def __init__(self, line: HostLifeline, tools: BodyTools | None = None) -> None:
        self._line = line
        self._tools = tools or PluginTools()
        self._lock = threading.Lock()
        self._tasks: dict[str, MemoryLifeline] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._ending = False

    def run(self) -> TaskEnded:
        """Serve until the worker ends the host or is gone, and all threads have returned."""
        while not self._ending and self._line.lost is None:
            for command in self._line.take(REST_S):
                self._take(command)
        lost = self._line.lost
        for lifeline in self._running():
            lifeline.lose(lost or "its host was ended")
        for thread in list(self._threads.values()):
            # The watchdog of the lifeline ends the process if one does not return.
            thread.join()
        ended = TaskEnded(TaskOutcome.LOST, lost) if lost else TaskEnded(TaskOutcome.STOPPED)
        self._line.tell(ended)
        self._line.close()
        return ended

    def _take(self, command: HostCommand) -> None:
        match command:
            case StartTask(spec):
                self._start(spec)
            case ForTask(run, asked):
                self._of(run, lambda lifeline: lifeline.deliver(asked))
            case AbandonTask(run, reason):
                self._of(run, lambda lifeline: lifeline.lose(reason))
            case EndHost():
                self._ending = True
            case _:
                assert_never(command)

    def _of(self, run: str, do: Callable[[MemoryLifeline], object]) -> None:
        with self._lock:
            found = self._tasks.get(run)
        if found is not None:
            do(found)

    def _running(self) -> list[MemoryLifeline]:
        with self._lock:
            return list(self._tasks.values())

    def _start(self, spec: TaskSpec) -> None:
        silence = self._line.silence

        def report(said: BodyReport) -> None:
            self._line.report(spec.run, said)

        lifeline = MemoryLifeline(spec, silence.limit_ms, report, silence)
        thread = threading.Thread(
            target=self._run, args=(spec.run, lifeline), name=f"task-{spec.task}", daemon=True
        )
        with self._lock:
            self._tasks[spec.run], self._threads[spec.run] = lifeline, thread
        try:
            thread.start()
        except RuntimeError as error:  # there are too many: the run did not begin
            report(TaskEnded(TaskOutcome.FAILED, f"it could not be launched: {error}"))
            self._returned(spec.run)

    def _run(self, run: str, lifeline: MemoryLifeline) -> None:
        try:
            run_body(lifeline, self._tools)
        finally:  # in any case: otherwise the worker would wait for this run for ever
            self._returned(run)

    def _returned(self, run: str) -> None:
        with self._lock:
            del self._tasks[run], self._threads[run]
        self._line.report(run, TaskReleased())
