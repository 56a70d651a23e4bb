"""A commit under way, with waiting for its end: by its caller, and by all that must not overtake
it."""

import threading
from collections.abc import Callable

from headgate.ports import TransportError
from headgate.task.held_error import HeldError


class CommitUnderWay:
    """A commit whose end is awaited with `end`, from `Producer.begin_commit`."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end
        self._ending = threading.Lock()
        self._held = HeldError()

    def wait(self) -> None:
        """Wait for the end. May be called from any thread, any number of times. Raises
        TransportError: the commit failed."""
        self._settle()
        if why := self._held.text:
            raise TransportError(f"what was polled before was not committed: {why}")

    def finish(self) -> None:
        """Wait for the end, and raise the error of a failed commit. For the caller that began it,
        once."""
        self._settle()
        self._held.release()

    def _settle(self) -> None:
        with self._ending:
            end, self._end = self._end, None
            if end is not None:
                with self._held:
                    end()
