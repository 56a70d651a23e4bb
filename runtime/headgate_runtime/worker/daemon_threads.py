"""Threads for work that may hang."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

OVERDUE_S: Final = 15.0
"""After this time, work counts as overdue and holds up nothing that comes after it."""


class DaemonThreads:
    """Threads that do the work they are given in order, a few pieces at once.

    Work that hangs does not use up the threads: overdue work is not counted among the few. (It
    keeps its thread; Python offers no remedy.)

    This is no `ThreadPoolExecutor`. The interpreter waits at its end for that executor's threads,
    so one hanging call of users' code would keep a worker from ending.
    """

    def __init__(self, count: int, name: str, overdue_s: float = OVERDUE_S) -> None:
        self._count = count
        self._name = name
        self._overdue_s = overdue_s
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy_since: dict[threading.Thread, float] = {}
        self._watched = False
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Queue `work`, which must raise nothing. It is not begun once this is closed."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append(work)
            self._staff()

    def withdraw(self, work: Callable[[], None]) -> bool:
        """Withdraw `work`. Return whether it had not begun; if so, it is never done."""
        with self._lock:
            if work not in self._waiting:
                return False
            self._waiting.remove(work)
            return True

    def close(self) -> None:
        """Begin no more work. Work that has begun is left alone."""
        with self._lock:
            self._closed = True
            self._waiting.clear()

    def _staff(self) -> None:
        """Start as many threads as may be at work. If some work still waits, look again later."""
        while self._waiting and self._in_time() < self._count:
            work = self._waiting.popleft()
            thread = threading.Thread(
                target=self._serve, args=(work,), name=self._name, daemon=True
            )
            if not _started(thread):
                self._waiting.appendleft(work)  # for a busy thread, or the next call
                return
            self._busy_since[thread] = time.monotonic()
        if self._waiting and not self._watched:
            watch = threading.Timer(self._overdue_s, self._look_again)
            watch.daemon = True
            self._watched = _started(watch)

    def _in_time(self) -> int:
        overdue = time.monotonic() - self._overdue_s
        return sum(since > overdue for since in self._busy_since.values())

    def _look_again(self) -> None:
        with self._lock:
            self._watched = False
            self._staff()

    def _serve(self, work: Callable[[], None]) -> None:
        me = threading.current_thread()
        while True:
            work()
            with self._lock:
                del self._busy_since[me]
                if not self._waiting or self._in_time() >= self._count:
                    return
                work = self._waiting.popleft()
                self._busy_since[me] = time.monotonic()


def _started(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError as error:  # there are too many
        log.warning("%s: %s", thread.name, error)
        return False
    return True
