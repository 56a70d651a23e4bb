"""Points of a run at which a test may end it, or do something else."""

from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")

GETS_ON = ("after open()", "after records are read", "after offsets are committed")


class Killed(BaseException):
    """The process of the task is gone, as far as the run can tell."""


class Points:
    """Counts the points that a run passes: calls of the task and of the log, before and after.

    A run that was killed no longer calls the task, and changes nothing in the log.
    """

    def __init__(self, kill_at: int | None = None) -> None:
        """Kill the run at the point with number `kill_at`, counted from 1. None: it is not
        killed."""
        self._kill_at = kill_at
        self.passed: list[str] = []
        self.dead = False
        self.got_on = 0
        """Points at which the run made progress: records were read, or offsets committed."""
        self.on_point: Callable[[int, str], None] | None = None
        """Called at each point with its number and its name. The call itself passes no point."""
        self._is_telling = False

    def pass_by(self, name: str) -> None:
        """Pass a point.

        Raises:
            Killed: the run is killed here, or was before.
        """
        if self._is_telling:
            return
        if self.dead:
            raise Killed
        self.passed.append(name)
        self.got_on += name in GETS_ON
        number = len(self.passed)
        if self.on_point is not None:
            self._is_telling = True
            try:
                self.on_point(number, name)
            finally:
                self._is_telling = False
        if number == self._kill_at:
            self.dead = True
            raise Killed


def runs_at(number: int, run: Callable[[], R]) -> tuple[Callable[[int, str], None], list[R]]:
    """Return an `on_point` that calls `run` at the point with this number, and the list of what
    `run` returned."""
    returned: list[R] = []

    def at_point(at: int, _name: str) -> None:
        if at == number:
            returned.append(run())

    return at_point, returned
