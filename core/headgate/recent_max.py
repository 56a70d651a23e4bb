"""The largest of some values that came lately."""

from typing import Final

WINDOW_S: Final = 60.0


class RecentMax:
    """The largest value of the last one or two minutes."""

    def __init__(self) -> None:
        self._since_s = 0.0
        """Begin of the present window."""
        self._largest = [0.0, 0.0]
        """The largest of the window before, and of this one."""

    def add(self, value: float, now_s: float) -> None:
        self._move(now_s)
        if value > self._largest[1]:
            self._largest[1] = value

    def read(self, now_s: float) -> float:
        """0 where nothing came."""
        self._move(now_s)
        return max(self._largest)

    def _move(self, now_s: float) -> None:
        passed = now_s - self._since_s
        if passed >= WINDOW_S:
            last = self._largest[1] if passed < 2 * WINDOW_S else 0.0
            self._largest, self._since_s = [last, 0.0], now_s
