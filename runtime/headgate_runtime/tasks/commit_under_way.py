"""A commit whose end is awaited by who began it, or before that by who must not overtake it."""

import threading
from collections.abc import Callable

from headgate.ports import TransportError
from headgate.raised import raised


class CommitUnderWay:
    """`end`: as `Producer.begin_commit` returns it."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end: Callable[[], None] | None = end
        self._ending = threading.Lock()
        self._error: BaseException | None = None

    def wait(self) -> None:
        """From any thread, as often as wanted. Raises TransportError: it failed."""
        self._settle()
        if self._error is not None:
            raise TransportError(f"what was polled before was not committed: {self._error}")

    def finish(self) -> None:
        """For who began it, once: raises why it failed."""
        self._settle()
        # Not kept: its traceback holds all that the commit has seen, such as a client.
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error

    def _settle(self) -> None:
        with self._ending:
            end, self._end = self._end, None
            if end is None:
                return
            try:
                end()
            except:  # noqa: E722  a client may let out what is no exception; raised by `finish`
                self._error = raised()
