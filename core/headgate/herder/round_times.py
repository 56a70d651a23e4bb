"""How long a worker's rebalances take."""

from headgate.herder.views import Rebalances


class RoundTimes:
    """Rebalances of one worker: from the moment when it is to join its group anew until its work
    may run again. What is revoked is stopped meanwhile, and that time is part of it."""

    def __init__(self) -> None:
        self._now = Rebalances()

    def look(self, now_ms: int, *, steady: bool, outside: bool) -> None:
        """
        Args:
            steady: the worker is in its group, and its work may run.
            outside: it is in no group, and joins none.
        """
        now = self._now
        if outside:
            self._now = Rebalances(now.count, now.took_ms, now.took_ms_max, now.ended_ms)
        elif not steady and now.began_ms is None:
            self._now = Rebalances(now.count, now.took_ms, now.took_ms_max, now.ended_ms, now_ms)
        elif steady and now.began_ms is not None:
            took_ms = now_ms - now.began_ms
            longest_ms = max(now.took_ms_max, took_ms)
            self._now = Rebalances(now.count + 1, now.took_ms + took_ms, longest_ms, now_ms)

    def read(self) -> Rebalances:
        return self._now
