"""How long a worker's rebalances take."""

from dataclasses import replace

from headgate.herder.views import Rebalances
from headgate.recent_max import RecentMax


class RoundTimes:
    """Measures the rebalances of one worker.

    A rebalance lasts from the moment when the worker must join its group anew until its work may
    run again. The time to stop revoked work is part of it. While the coordinator is out of reach
    there is no rebalance. One begins with the first answer after that.
    """

    def __init__(self) -> None:
        self._now = Rebalances()
        self._longest_ms = RecentMax()
        self._lost = False

    def lost(self) -> None:
        """Note that the coordinator is out of reach."""
        self._lost = True

    def heard(self) -> None:
        """Note that the coordinator has answered."""
        self._lost = False

    def look(self, now_ms: int, *, steady: bool, outside: bool) -> None:
        """Begin or end a rebalance by the member's present state.

        Args:
            steady: the worker is in its group, and its work may run.
            outside: the worker is in no group, and joins none.
        """
        now = self._now
        if outside or self._lost:
            self._now = replace(now, began_ms=None)
        elif not steady and now.began_ms is None:
            self._now = replace(now, began_ms=now_ms)
        elif steady and now.began_ms is not None:
            took_ms = now_ms - now.began_ms
            self._longest_ms.add(took_ms, now_ms / 1000)
            self._now = Rebalances(now.count + 1, now.took_ms + took_ms, 0, now_ms)

    def read(self, now_ms: int) -> Rebalances:
        longest_ms = int(self._longest_ms.read(now_ms / 1000))
        return replace(self._now, took_ms_max=longest_ms)
