"""A blocking call on a thread beside the caller's, which goes on meanwhile."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from headgate.task.held_error import HeldError


class SideCall:
    """A daemon thread that makes one call at a time. The next call may begin once some thread has
    awaited the end of the one before.

    The thread does not keep its process from ending, even in the middle of a call.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] | None = None

    def begin(self, what: Callable[[], None]) -> Callable[[], None]:
        """Start `what` on the thread. Return a function, to be called once, that waits for its end
        and raises its exception.

        It returns only when `what` has begun. Otherwise a caller that computes would hold the
        interpreter lock, and delay the beginning by milliseconds.

        Raises:
            RuntimeError: no thread can be started.
        """
        calls = self._calls or self._start()
        call = _Call(what)
        calls.put(call)
        call.begun.wait()
        return call.end

    def _start(self) -> "SimpleQueue[_Call | None]":
        calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=_serve, args=(calls,), name="beside", daemon=True).start()
        self._calls = calls
        return calls

    def close(self) -> None:
        """End the thread after its call, without waiting for it."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


class _Call:
    def __init__(self, what: Callable[[], None]) -> None:
        self.begun = threading.Event()
        self._what: Callable[[], None] | None = what
        self._over = threading.Event()
        self._held = HeldError()

    def make(self) -> None:
        what, self._what = self._what, None
        assert what is not None
        self.begun.set()
        with self._held:
            what()
        self._over.set()

    def end(self) -> None:
        self._over.wait()
        self._held.release()


def _serve(calls: "SimpleQueue[_Call | None]") -> None:
    while (call := calls.get()) is not None:
        call.make()
