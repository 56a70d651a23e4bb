"""A limit of records per second."""

import time

from headgate.connector.api import SourceTaskContext


class Rate:
    """A token bucket. It holds the records of a tenth of a second, and at least one record."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._held = 0.0
        self._size = max(1.0, per_second / 10)
        self._at: float | None = None
        self.pause = self._size / per_second if per_second else 0.0

    def take(self, now: float, wanted: int) -> int:
        if not self._per_second:
            return wanted
        if self._at is not None:
            self._held = min(self._size, self._held + (now - self._at) * self._per_second)
        self._at = now
        taken = min(wanted, int(self._held))
        self._held -= taken
        return taken

    def allowed(self, context: SourceTaskContext, wanted: int) -> int:
        """Wait until at least one record is allowed. Returns how many are, at most `wanted`, or 0
        if the task is to stop."""
        while True:
            if taken := self.take(time.monotonic(), wanted):
                return taken
            if context.wait(self.pause):
                return 0
