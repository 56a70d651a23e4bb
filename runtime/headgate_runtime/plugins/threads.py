"""Threads for calls of plugins: users' code, which may hang for ever."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

log = logging.getLogger(__name__)

AT_ONCE: Final = 2
AT_ONCE_OF_ONE: Final = 1
"""Calls of one plugin that compute at once. Other plugins need not wait for them. They share one
interpreter with the REST server, so more of them would not be done sooner."""
OVERDUE_S: Final = 0.1
"""Time in seconds after which a call that does not compute is taken to wait for something. It is
then not counted among those at once."""
COMPUTES: Final = 0.005
"""Share of a processor above which a thread counts as computing. With many at once, each has a
small share."""
LOOK_S: Final = 0.1
"""Length of a look at a thread, in seconds. In less time, one of many may not have had its turn."""
COMPUTES_MAX_S: Final = 30.0
"""A call that computes for longer counts as hanging, too. In seconds."""
HANG_OF_ONE: Final = 200
HANG_MAX: Final = 1_000
IDLE_S: Final = 10.0
"""How long a thread without work waits for some, in seconds."""


class HangError(Exception):
    """The call was not made. The text says why, and what to do."""


class _Begun:
    """A call that has begun, and what it is observed to do."""

    def __init__(self) -> None:
        self.since = self._looked = time.monotonic()
        self.thread: int | None = None
        """Identity of the thread that runs it. None: no thread has taken it yet."""
        self._used = 0.0
        self._computes = True

    def take(self) -> None:
        """Note that the present thread runs the call from now on."""
        self.thread, self._used = threading.get_ident(), time.thread_time()

    def is_at_work(self, overdue_s: float) -> bool:
        """Return whether the call has just begun, or computes."""
        now = time.monotonic()
        if now - self.since > COMPUTES_MAX_S:
            return False
        if self.thread is not None and now - self._looked > LOOK_S:
            used = processor_s(self.thread)
            self._computes = used - self._used > COMPUTES * (now - self._looked)
            self._looked, self._used = now, used
        return self._computes or now - self.since < overdue_s


@dataclass(slots=True)
class _Lane:
    """The calls of one plugin."""

    waiting: deque[Callable[[], None]] = field(default_factory=deque)
    begun: dict[int, _Begun] = field(default_factory=dict)
    """Calls that have begun and not ended, by number."""

    def at_work(self, overdue_s: float) -> int:
        return sum(call.is_at_work(overdue_s) for call in self.begun.values())


@dataclass(frozen=True, slots=True)
class _Call:
    lane: _Lane
    number: int
    work: Callable[[], None]


class PluginThreads:
    """Threads on which a hanging call costs only its caller and one thread.

    A few calls compute at once: more would keep all other threads waiting for the interpreter. A
    call that hangs soon ceases to count among them. Hanging calls of one plugin cannot keep those
    of others waiting, nor use up the threads of the process.
    """

    def __init__(self, name: str, overdue_s: float = OVERDUE_S) -> None:
        self._name = name
        self._overdue_s = overdue_s
        self._lock = threading.Lock()
        self._work_or_end = threading.Condition(self._lock)
        self._lanes: dict[str, _Lane] = {}
        self._handed: deque[_Call] = deque()
        """Calls that count as begun, for the next free threads."""
        self._free = 0
        self._numbers = 0
        self._watched = False
        self._closed = False

    def submit(self, plugin: str, work: Callable[[], None]) -> None:
        """Have a thread do `work`, which asks `plugin` and raises nothing. Once this is closed, it
        is never done.

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
        """Begin no more calls. Those that have begun are left alone."""
        with self._lock:
            self._closed = True
            for lane in self._lanes.values():
                lane.waiting.clear()
            self._handed.clear()
            self._work_or_end.notify_all()

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
        """Begin the calls that may begin, of each plugin in turn. Look again later if some still
        wait."""
        while (lane := self._next()) is not None:
            self._numbers += 1
            call = _Call(lane, self._numbers, lane.waiting.popleft())
            self._handed.append(call)
            lane.begun[call.number] = _Begun()
            if self._free >= len(self._handed):
                self._work_or_end.notify()
            elif not self._started(threading.Thread(target=self._serve, name=self._name)):
                self._handed.pop()
                del lane.begun[call.number]
                lane.waiting.appendleft(call.work)
                break
        self._lanes = {name: lane for name, lane in self._lanes.items() if _busy(lane)}
        if not self._watched and any(lane.waiting for lane in self._lanes.values()):
            self._watched = self._started(threading.Timer(self._overdue_s / 2, self._look_again))

    def _next(self) -> _Lane | None:
        """Return the lane with the fewest calls at work, among those that wait and have room."""
        shares = [(lane.at_work(self._overdue_s), lane) for lane in self._lanes.values()]
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

    def _serve(self) -> None:
        """Serve calls, until there was nothing to do for `IDLE_S`."""
        with self._lock:
            while (call := self._taken()) is not None:
                self._lock.release()
                try:
                    call.work()
                finally:
                    self._lock.acquire()
                    # The processor time of a thread that has ended must not be read.
                    del call.lane.begun[call.number]
                self._staff()

    def _taken(self) -> _Call | None:
        until = time.monotonic() + IDLE_S
        while not self._handed:
            left = until - time.monotonic()
            if self._closed or left <= 0:
                return None
            self._free += 1
            self._work_or_end.wait(left)
            self._free -= 1
        call = self._handed.popleft()
        call.lane.begun[call.number].take()
        return call

    def _started(self, thread: threading.Thread) -> bool:
        thread.daemon = True
        try:
            thread.start()
        except RuntimeError as error:  # there are too many
            log.warning("%s: %s", self._name, error)
            return False
        return True


def processor_s(thread: int) -> float:
    """Return the seconds of processor time that a thread of this process has used. 0 if it is not
    known."""
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(thread))
    except (AttributeError, OSError):  # another system
        return 0.0


def _busy(lane: _Lane) -> bool:
    return bool(lane.waiting or lane.begun)
