"""Machine of one host of tasks, as its runner sees it: a launched process that runs several tasks
as threads.

A `RunMachine` stands for the process: it decides when the host is killed, and when nothing in it
can act any more. This module gives each task of the host one end and one release:

- A task whose thread has returned is released at once. So is a task that was never begun.
- When the host is given up, all its tasks have ended. They are released when the host is.
- A task that does not stop in time is killed with its host if no other task needs the host. Else it
is abandoned: the host is told that it must commit nothing more, and it is released as abandoned.
- A host with an abandoned task takes no new tasks. It is killed when only abandoned tasks are left.
- A host that has been empty for some time is told to end.
"""

from dataclasses import dataclass
from typing import TypeAlias

from headgate.task import run as life
from headgate.task.messages import (
    BodyReport,
    TaskClosing,
    TaskEnded,
    TaskOutcome,
    TaskReleased,
    TaskReport,
)

TOGETHER_MS = 250
"""Deadlines within this time of each other count as one: the tasks were stopped together."""


# -- inputs, besides those of the process --


@dataclass(frozen=True, slots=True)
class TaskPlaced:
    """A task was placed in this host, which has room. `stop_limit_ms` is the time for it to close
    what it opened if it ends without being asked to."""

    run: str
    stop_limit_ms: int


@dataclass(frozen=True, slots=True)
class TaskReported:
    """The host sent a report of one task. `TaskReleased` means that the task's thread has
    returned."""

    run: str
    report: BodyReport


@dataclass(frozen=True, slots=True)
class TaskStopRequested:
    run: str
    grace_ms: int


HostInput: TypeAlias = TaskPlaced | TaskReported | TaskStopRequested | life.RunInput


# -- outputs, besides those about the process --


@dataclass(frozen=True, slots=True)
class BeginTask:
    """Give the host the task's spec."""

    run: str


@dataclass(frozen=True, slots=True)
class AbandonTask:
    """Tell the host that the task was given up and must commit nothing more."""

    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class ForwardTask:
    """Pass a report on to the worker."""

    run: str
    report: TaskReport


@dataclass(frozen=True, slots=True)
class Retired:
    """Tell the host to end: it is empty, and nothing will be placed in it."""


HostOutput: TypeAlias = (
    BeginTask
    | AbandonTask
    | ForwardTask
    | Retired
    | life.Welcome
    | life.Refuse
    | life.KillLaunched
    | life.KillBody
    | life.Disconnect
)


@dataclass(slots=True)
class HostedTask:
    """A task that is not released yet."""

    run: str
    stop_limit_ms: int
    begun: bool = False
    ended: bool = False
    ending: TaskEnded | None = None
    """Ending that the body has announced."""
    deadline_ms: int | None = None
    why: str = ""
    """Reason to report if the task has not ended at its deadline."""

    def end_by(self, deadline_ms: int, why: str) -> None:
        """Set the deadline, unless an earlier one is set."""
        if self.deadline_ms is None or deadline_ms < self.deadline_ms:
            self.deadline_ms, self.why = deadline_ms, why


class HostMachine:
    """Life of one host. It reports `TaskEnded` once and then `TaskReleased` once for each placed
    task.

    Args:
        limit_ms: Silence after which the host is given up (and after which it gives itself up).
        start_limit_ms: Time for the host to connect.
        room: Number of tasks that it takes at a time.
        idle_ms: Time that an empty host is kept.
    """

    def __init__(
        self, now_ms: int, limit_ms: int, start_limit_ms: int, room: int, idle_ms: int
    ) -> None:
        self._life = life.RunMachine(now_ms, limit_ms, start_limit_ms, life.LINGER_MS)
        self._room = room
        self._idle_ms = idle_ms
        self._tasks: dict[str, HostedTask] = {}
        self._abandoned: set[str] = set()
        """Abandoned runs whose threads have not returned."""
        self._welcomed = False
        self._leaving = False
        """Whether no new task may begin: the host was told to end or given up, or the launched job
        is over."""
        self._given_up = False
        """Whether the host was given up: all its tasks have ended, and they are released with
        it."""
        self._empty_since_ms: int | None = now_ms
        self._retired = False
        self.crashed = False
        """Whether the host ended without being asked to, while it had tasks."""

    @property
    def is_open(self) -> bool:
        """Whether tasks may be placed while there is room."""
        return not self._leaving and not self._abandoned

    @property
    def has_room(self) -> bool:
        """Whether one more task may be placed."""
        return self.is_open and len(self._tasks) < self._room

    @property
    def released(self) -> bool:
        """Whether nothing of the host can act any more."""
        return self._life.released

    @property
    def watching_pid(self) -> bool:
        """Whether the end of the host's process is awaited."""
        return self._life.watching_pid

    @property
    def tasks(self) -> int:
        """Number of tasks that are not released."""
        return len(self._tasks)

    def handle(self, now_ms: int, given: HostInput) -> list[HostOutput]:
        match given:
            case TaskPlaced(run, stop_limit_ms):
                out = self._place(HostedTask(run, stop_limit_ms))
            case TaskReported(run, report):
                out = self._live(now_ms, life.Heard())
                out += self._on_report(now_ms, run, report)
            case TaskStopRequested(run, grace_ms):
                out = self._stop(now_ms, run, grace_ms)
            case life.LaunchOver():
                self._leaving = True
                out = self._live(now_ms, given)
            case _:
                out = self._live(now_ms, given)
        return out + self._overdue(now_ms) + self._settle(now_ms)

    # -- the process --

    def _live(self, now_ms: int, given: life.RunInput) -> list[HostOutput]:
        out: list[HostOutput] = []
        for output in self._life.handle(now_ms, given):
            match output:
                case life.Forward(TaskEnded(outcome=ended, reason=reason)):
                    asked = self._retired or isinstance(given, life.KillRequested)
                    self.crashed = self._welcomed and not asked and bool(self._tasks)
                    self._given_up = self._leaving = True
                    # FAILED means that another host would end the same way.
                    outcome = ended if ended is TaskOutcome.FAILED else TaskOutcome.LOST
                    for task in self._tasks.values():
                        out += self._end(task, outcome, reason or "its host has ended")
                case life.Forward(TaskReleased()):
                    for task in list(self._tasks.values()):
                        out += self._release(task)
                    self._abandoned.clear()
                case life.Forward():
                    pass  # a host makes no other reports about itself
                case life.Welcome():
                    self._welcomed = True
                    out.append(output)
                    for task in self._tasks.values():
                        out += self._begin(task)
                case _:
                    out.append(output)
        return out

    def _kill(self, now_ms: int, reason: str) -> list[HostOutput]:
        return self._live(now_ms, life.KillRequested(reason))

    def _settle(self, now_ms: int) -> list[HostOutput]:
        if self._tasks:
            self._empty_since_ms = None
            return []
        if self._empty_since_ms is None:
            self._empty_since_ms = now_ms
        if self._abandoned and not self._given_up:
            return self._kill(now_ms, "only abandoned tasks are left in it")
        idle = now_ms - self._empty_since_ms >= self._idle_ms
        if self._leaving or not self._welcomed or not idle:
            return []
        self._retired = self._leaving = True
        return [Retired(), *self._live(now_ms, life.StopRequested(life.LINGER_MS))]

    # -- its tasks --

    def _place(self, task: HostedTask) -> list[HostOutput]:
        assert self.has_room, f"no room for {task.run}"
        self._tasks[task.run] = task
        return self._begin(task) if self._welcomed else []

    def _begin(self, task: HostedTask) -> list[HostOutput]:
        task.begun = True
        return [BeginTask(task.run)]

    def _on_report(self, now_ms: int, run: str, report: BodyReport) -> list[HostOutput]:
        task = self._tasks.get(run)
        returned = isinstance(report, TaskReleased)
        if task is None:
            if returned:
                self._abandoned.discard(run)
            return []
        if isinstance(report, TaskClosing):
            task.ending = report.ending
            why = f"it did not stop within {task.stop_limit_ms} ms"
            task.end_by(now_ms + task.stop_limit_ms, why)
            return []
        if returned:
            out = self._end(task, TaskOutcome.LOST, "its thread ended without a last word")
            return out + self._release(task)
        if task.ended:
            return []
        if isinstance(report, TaskEnded):
            task.ended = True
            task.end_by(now_ms + life.LINGER_MS, "its thread did not end after its last word")
        return [ForwardTask(run, report)]

    def _stop(self, now_ms: int, run: str, grace_ms: int) -> list[HostOutput]:
        task = self._tasks.get(run)
        if task is None:
            return []
        if not task.begun:
            return self._end(task, TaskOutcome.STOPPED, "") + self._release(task)
        task.end_by(now_ms + grace_ms, f"it did not stop within {grace_ms} ms")
        return []

    def _overdue(self, now_ms: int) -> list[HostOutput]:
        due = [task for task in self._tasks.values() if _is_due(task, now_ms)]
        if not due or self._given_up:
            return []
        out: list[HostOutput] = []
        if len(due) == len(self._tasks):
            for task in due:
                out += self._end(task, TaskOutcome.LOST, f"{task.why}: killed")
            return out + self._kill(now_ms, due[0].why)
        if all(_is_due(task, now_ms + TOGETHER_MS) for task in self._tasks.values()):
            return []  # they are killed together in a moment
        for task in due:
            reason = f"{task.why}: abandoned, for other tasks run in its process"
            out += [*self._end(task, TaskOutcome.LOST, reason), AbandonTask(task.run, reason)]
            self._abandoned.add(task.run)
            out += self._release(task, abandoned=True)
        return out

    def _end(self, task: HostedTask, outcome: TaskOutcome, reason: str) -> list[HostOutput]:
        if task.ended:
            return []
        task.ended = True
        if task.ending is None:
            return [ForwardTask(task.run, TaskEnded(outcome, reason))]
        return [ForwardTask(task.run, life.cut_short(task.ending, reason))]

    def _release(self, task: HostedTask, *, abandoned: bool = False) -> list[HostOutput]:
        del self._tasks[task.run]
        return [ForwardTask(task.run, TaskReleased(abandoned))]


def _is_due(task: HostedTask, now_ms: int) -> bool:
    return task.deadline_ms is not None and task.deadline_ms <= now_ms
