"""How long the herder's thread is busy with one command. Heartbeats and answers wait that long."""

from headgate.herder.messages import LoopBusy
from headgate.recent_max import RecentMax


class LoopTime:
    """Counts the time that the loop takes for its commands."""

    def __init__(self) -> None:
        self._count = 0
        self._total_s = 0.0
        self._longest_s = RecentMax()

    def took(self, seconds: float, now_s: float) -> None:
        self._count += 1
        self._total_s += seconds
        self._longest_s.add(seconds, now_s)

    def read(self, now_s: float) -> LoopBusy:
        return LoopBusy(self._count, self._total_s, self._longest_s.read(now_s))
