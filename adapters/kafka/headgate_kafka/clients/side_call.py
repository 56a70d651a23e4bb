"""A call that waits, made beside who goes on meanwhile."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from headgate.task.held_error import HeldError


class SideCall:
    """One call at a time, on a thread that stays for the next, which is begun when the end of the
    one before was awaited, by whichever thread.

    The thread keeps nobody from ending: whatever it waits for is given up with its process.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] | None = None

    def begin(self, what: Callable[[], None]) -> Callable[[], None]:
        """What is returned is to be called once: it waits for the end of `what`, and raises what
        that raised.

        Returns when `what` has begun. A thread that computes keeps the interpreter to itself for
        milliseconds: without this it would begin that much later.

        Raises RuntimeError: no thread can be started.
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
        """A call that is under way is not waited for."""
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
