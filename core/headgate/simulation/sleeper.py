"""A process in virtual time that can be frozen or dead: a worker, or the body of a task."""

from collections import deque
from collections.abc import Callable, Iterable


class Sleeper:
    """Keeps actions that come due while the process is frozen, and drops those of a dead one."""

    def __init__(self) -> None:
        self.dead = False
        self.frozen = False
        self._waiting: deque[Callable[[], None]] = deque()
        """Actions that came due while the process was frozen, in order."""

    def when_awake(self, action: Callable[[], None]) -> None:
        """Perform `action` now, or when the process thaws. Drop it if the process is dead."""
        if self.dead:
            return
        if self.frozen:
            self._waiting.append(action)
        else:
            action()

    def wake(
        self, before: Iterable[Callable[[], None]] = (), after: Iterable[Callable[[], None]] = ()
    ) -> None:
        """Thaw the process: perform the actions that wait, between those `before` and `after`."""
        self.frozen = False
        waiting, self._waiting = self._waiting, deque()
        for action in (*before, *waiting, *after):
            self.when_awake(action)
