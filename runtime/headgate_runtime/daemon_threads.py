"""Threads for work that may hang."""

import threading
from collections import deque
from collections.abc import Callable


class DaemonThreads:
    """Does what it is given, in that order, a few at once.

    Not a `ThreadPoolExecutor`: the interpreter waits at its end for the threads of those, so that
    one call of users' code that hangs would keep a worker from ending.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """`work` raises nothing. It is never done once this is closed."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append(work)
            if self._threads < self._count:
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
                self._threads += 1

    def close(self) -> None:
        """What has begun is left to itself."""
        with self._lock:
            self._closed = True
            self._waiting.clear()

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._threads -= 1
                    return
                work = self._waiting.popleft()
            work()
