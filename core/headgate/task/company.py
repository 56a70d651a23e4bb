"""How many tasks a task may share a process with after its last process crashed.

Any task of a crashed process may have caused the crash, and would crash its neighbours again and
again. So each of them next shares a process with half as many tasks, until the task that crashes is
alone. If several processes die at about the same time, no task is blamed.
"""

from collections.abc import Sequence

from headgate.ids import TaskId

TOGETHER_MS = 2_000
"""Processes that die within this time of each other have one cause: the machine, or Spark."""
FORGET_MS = 600_000
"""A task whose process has lived this long may again share a process with all others."""


class Company:
    """Limits on the number of tasks per process. `room` is the limit for a task that is not
    suspected."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._limits: dict[TaskId, int] = {}
        self._suspected_ms: dict[TaskId, int] = {}
        self._crash_ms: dict[TaskId, int] = {}
        """When the process of a task died; only crashes that are not judged yet."""
        self._crashed_with: dict[TaskId, int] = {}
        self._crashes: list[int] = []

    def crashed(self, now_ms: int, tasks: Sequence[TaskId]) -> None:
        """Note that the process of these tasks died unexpectedly."""
        self._crashes = [at for at in self._crashes if now_ms - at <= FORGET_MS] + [now_ms]
        for task in tasks:
            self._crash_ms[task], self._crashed_with[task] = now_ms, len(tasks)

    def room(self, now_ms: int, task: TaskId) -> int:
        """Return how many tasks may be in the process in which `task` starts now."""
        self._judge(now_ms, task)
        if now_ms - self._suspected_ms.get(task, now_ms) >= FORGET_MS:
            self._limits.pop(task, None)
            self._suspected_ms.pop(task, None)
        return self._limits.get(task, self._room)

    def _judge(self, now_ms: int, task: TaskId) -> None:
        at = self._crash_ms.pop(task, None)
        if at is None:
            return
        number = self._crashed_with.pop(task)
        if sum(abs(other - at) <= TOGETHER_MS for other in self._crashes) == 1:
            self._limits[task] = max(1, number // 2)
            self._suspected_ms[task] = now_ms
