"""Threads for calls of plugins: users' code, which may hang for ever."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

log = logging.getLogger(__name__)

AT_ONCE: Final = 16
AT_ONCE_OF_ONE: Final = 8
"""Calls of one plugin that compute at once; others need not wait for them."""
OVERDUE_S: Final = 0.5
"""A call that takes longer waits for somebody: it is not counted among those at once."""
HANG_OF_ONE: Final = 200
HANG_MAX: Final = 1_000


class HangError(Exception):
    """The call was not made. The text says why, and what to do."""


@dataclass(slots=True)
class _Lane:
    """Calls of one plugin."""

    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    begun: dict[int, float] = field(default_factory=dict)
    """Number of each call that has begun and not ended -> monotonic seconds."""

    def in_time(self, overdue_s: float) -> int:
        since = time.monotonic() - overdue_s
        return sum(begun > since for begun in self.begun.values())


class PluginThreads:
    """Each call that hangs costs its caller alone, and a thread.

    A few calls compute at once. One that hangs soon ceases to count among them. Calls of one plugin
    that hang cannot keep those of others waiting, nor use up the threads of the process.
    """

    def __init__(self, name: str, overdue_s: float = OVERDUE_S) -> None:
        self._name = name
        self._overdue_s = overdue_s
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._numbers = 0
        self._watched = False
        self._closed = False

    def submit(self, plugin: str, work: Callable[[], None]) -> None:
        """Have a thread do `work`, which asks `plugin` and raises nothing; never, once closed.

        Raises:
            HangError: too many calls of the plugin, or of all, have not ended.
        """
        with self._lock:
            if self._closed:
                return
            self._check(plugin)
            self._lanes.setdefault(plugin, _Lane()).waiting.append(work)
            self._staff()

    def close(self) -> None:
        """What has begun is left to itself."""
        with self._lock:
            self._closed = True
            for lane in self._lanes.values():
                lane.waiting.clear()

    def _check(self, plugin: str) -> None:
        lane = self._lanes.get(plugin)
        if lane is not None and len(lane.begun) >= HANG_OF_ONE:
            raise HangError(
                f"{HANG_OF_ONE} calls of {plugin or 'the plugins'} have not ended: they hang. "
                "This worker makes no more until some end, or until it is restarted"
            )
        if self._begun() >= HANG_MAX:
            raise HangError(
                f"{HANG_MAX} calls of plugins have not ended: they hang. This worker makes no more "
                "until some end, or until it is restarted"
            )

    def _begun(self) -> int:
        return sum(len(lane.begun) for lane in self._lanes.values())

    def _staff(self) -> None:
        """Begin what may begin, of each plugin in turn; look again later if some still waits."""
        while (lane := self._next()) is not None:
            self._numbers += 1
            number, work = self._numbers, lane.waiting.popleft()
            thread = threading.Thread(
                target=self._serve, args=(lane, number, work), name=self._name, daemon=True
            )
            if not _started(thread):
                lane.waiting.appendleft(work)
                break
            lane.begun[number] = time.monotonic()
        self._lanes = {name: lane for name, lane in self._lanes.items() if _busy(lane)}
        if not self._watched and any(lane.waiting for lane in self._lanes.values()):
            watch = threading.Timer(self._overdue_s / 2, self._look_again)
            watch.daemon = True
            self._watched = _started(watch)

    def _next(self) -> _Lane | None:
        """The lane that has the fewest calls at work, of those that wait and have room."""
        shares = [(lane.in_time(self._overdue_s), lane) for lane in self._lanes.values()]
        if sum(share for share, _ in shares) >= AT_ONCE or self._begun() >= HANG_MAX:
            return None
        free = [
            (share, lane)
            for share, lane in shares
            if lane.waiting and share < AT_ONCE_OF_ONE and len(lane.begun) < HANG_OF_ONE
        ]
        return min(free, key=lambda each: each[0])[1] if free else None

    def _look_again(self) -> None:
        with self._lock:
            self._watched = False
            self._staff()

    def _serve(self, lane: _Lane, number: int, work: Callable[[], None]) -> None:
        work()
        with self._lock:
            del lane.begun[number]
            self._staff()


def _busy(lane: _Lane) -> bool:
    return bool(lane.waiting or lane.begun)


def _started(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError as error:  # there are too many
        log.warning("%s: %s", thread.name, error)
        return False
    return True
