"""One host of tasks as its runner sees it: a launched process that runs several tasks as threads.

The process as such is a `RunMachine`: it decides when the host is killed, and when nothing in it
can act any more. Here each task of the host gets its one end and its one release:

- A task whose thread has returned is released at once. So is one that was never begun.
- When the host is given up, all its tasks have ended. They are released when it is.
- A task that does not stop in time is killed with its host if no other task needs the host. Else it
  is abandoned: it is told to commit nothing more, and released as abandoned.
- A host with an abandoned task takes no other. It is killed when only abandoned tasks are left.
- A host that was empty for a while is let go.
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
"""Deadlines so close to each other are one: tasks that were stopped together."""


# -- inputs, besides those of the process --


@dataclass(frozen=True, slots=True)
class TaskPlaced:
    """A task is to run in this host, which has room. `stop_limit_ms`: time for it to close what it
    opened when it ends unasked."""

    run: str
    stop_limit_ms: int


@dataclass(frozen=True, slots=True)
class TaskReported:
    """The host reports this of one task. `TaskReleased`: the thread of the task has returned."""

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
    """Tell the host that the task was given up: it must commit nothing more."""

    run: str
    reason: str


@dataclass(frozen=True, slots=True)
class ForwardTask:
    """To the worker."""

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
    """A task that is not released."""

    run: str
    stop_limit_ms: int
    begun: bool = False
    ended: bool = False
    ending: TaskEnded | None = None
    """How the body says that it is about to end."""
    deadline_ms: int | None = None
    why: str = ""
    """What is wrong if the task is still there at its deadline."""

    def end_by(self, deadline_ms: int, why: str) -> None:
        """Never later than was said before."""
        if self.deadline_ms is None or deadline_ms < self.deadline_ms:
            self.deadline_ms, self.why = deadline_ms, why


class HostMachine:
    """Reports `TaskEnded` once and then `TaskReleased` once for each task that is placed.

    Args:
        limit_ms: silence after which the host is given up (and after which it gives itself up).
        start_limit_ms: time for the host to connect.
        room: number of tasks that it takes at a time.
        idle_ms: how long an empty host is kept.
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
        """Nothing more is begun in it: it was let go or given up, or what was launched is over."""
        self._given_up = False
        """All its tasks have ended, and are released with it."""
        self._empty_since_ms: int | None = now_ms
        self._retired = False
        self.crashed = False
        """The host went without having been asked to, with tasks in it."""

    @property
    def is_open(self) -> bool:
        """Whether tasks may be placed, as far as there is room."""
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
                    # FAILED: another host would end the same.
                    outcome = ended if ended is TaskOutcome.FAILED else TaskOutcome.LOST
                    for task in self._tasks.values():
                        out += self._end(task, outcome, reason or "its host has ended")
                case life.Forward(TaskReleased()):
                    for task in list(self._tasks.values()):
                        out += self._release(task)
                    self._abandoned.clear()
                case life.Forward():
                    pass  # a host has nothing else to say of itself
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
            return []  # then they are killed together
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
