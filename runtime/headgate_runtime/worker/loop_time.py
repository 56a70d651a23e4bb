"""How long the herder's thread is busy with one thing: heartbeats and answers wait for that."""

from typing import Final

from headgate.herder.messages import LoopBusy

WINDOW_S: Final = 60.0


class LoopTime:
    """Counts the time that the loop takes for its commands."""

    def __init__(self) -> None:
        self._count = 0
        self._total_s = 0.0
        self._since_s = 0.0
        """Begin of the present window."""
        self._longest = [0.0, 0.0]
        """Longest command of the window before and of this one, in seconds."""

    def took(self, seconds: float, now_s: float) -> None:
        self._move(now_s)
        self._count += 1
        self._total_s += seconds
        self._longest[1] = max(self._longest[1], seconds)

    def read(self, now_s: float) -> LoopBusy:
        self._move(now_s)
        return LoopBusy(self._count, self._total_s, max(self._longest))

    def _move(self, now_s: float) -> None:
        passed = now_s - self._since_s
        if passed >= WINDOW_S:
            last = self._longest[1] if passed < 2 * WINDOW_S else 0.0
            self._longest, self._since_s = [last, 0.0], now_s
