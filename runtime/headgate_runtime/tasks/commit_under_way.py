"""A commit under way. Its caller awaits its end, and so does whatever must not overtake it."""

import threading
from collections.abc import Callable

from headgate.ports import TransportError
from headgate.task.held_error import HeldError


class CommitUnderWay:
    """`end`: as `Producer.begin_commit` returns it."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end
        self._ending = threading.Lock()
        self._held = HeldError()

    def wait(self) -> None:
        """From any thread, as often as wanted. Raises TransportError: it failed."""
        self._settle()
        if why := self._held.text:
            raise TransportError(f"what was polled before was not committed: {why}")

    def finish(self) -> None:
        """For who began it, once: raises why it failed."""
        self._settle()
        self._held.release()

    def _settle(self) -> None:
        with self._ending:
            end, self._end = self._end, None
            if end is not None:
                with self._held:
                    end()
