"""A maximum over a recent window of time."""

from typing import Final

WINDOW_S: Final = 60.0


class RecentMax:
    """The largest value that was added in the last one to two minutes."""

    def __init__(self) -> None:
        self._since_s = 0.0
        """Start of the current window."""
        self._largest = [0.0, 0.0]
        """Maxima of the previous window and of the current one."""

    def add(self, value: float, now_s: float) -> None:
        self._move(now_s)
        if value > self._largest[1]:
            self._largest[1] = value

    def read(self, now_s: float) -> float:
        """Return the maximum; 0 if no value was added."""
        self._move(now_s)
        return max(self._largest)

    def _move(self, now_s: float) -> None:
        passed = now_s - self._since_s
        if passed >= WINDOW_S:
            last = self._largest[1] if passed < 2 * WINDOW_S else 0.0
            self._largest, self._since_s = [last, 0.0], now_s
