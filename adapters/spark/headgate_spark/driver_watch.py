"""Notices a driver that stands still (its process exists, but does nothing), and ends it.

The kernel accepts connections for a process that was stopped, or whose JVM only collects garbage.
So the driver is asked for an answer: gRPC's own, that it knows no such method. That needs no
session and no slot, so a driver that computes answers at once.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

TIMEOUT_S: Final = 60.0
LOOKS: Final = 12
"""Number of looks within the time-out."""
HELD_BACK: Final = 2.0
"""A look that is later than its interval times this was held back: this process itself stood still,
or had no CPU."""
_METHOD: Final = "/headgate.Driver/Answer"
_OPTIONS: Final = (
    # Without a proxy, which would answer in place of this machine.
    ("grpc.enable_http_proxy", 0),
    # A connection of its own, which is soon retried: the next driver has the same port.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Process(Protocol):
    """The part of `headgate_spark.guard.Guarded` that is used here."""

    @property
    def pid(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def end(self) -> None: ...


class Silence:
    """How long a driver has been silent. Pure: it is told of each look, and says when it is too
    long."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.look_s = limit_s / LOOKS
        """Time between two looks, in seconds."""
        self._silent_s = 0.0

    def looked(self, since_s: float, answered: bool) -> bool:
        """Note a look, `since_s` after the previous one. Return True if the driver stands still."""
        # If this process stood still itself, it may have missed an answer.
        held_back = since_s > HELD_BACK * self.look_s
        self._silent_s = 0.0 if answered or held_back else self._silent_s + since_s
        return self._silent_s >= self._limit_s


@dataclass(slots=True)
class _Watched:
    """One process of the driver. Findings about it do not apply to the next one."""

    process: Process
    over: threading.Event = field(default_factory=threading.Event)
    told: str = ""


class DriverWatch:
    """Watches one process after the other on one port.

    Args:
        port: where the driver's Spark Connect server listens, on this machine.
        limit_s: how long the driver may be silent. 0: for ever.
        tell: called with the reason before a driver is ended.
    """

    def __init__(self, port: int, limit_s: float, tell: Callable[[str], None]) -> None:
        self._port = port
        self._limit_s = limit_s
        self._tell = tell
        self._watched: _Watched | None = None

    def begin(self, process: Process) -> None:
        """Watch `process` from now on. The driver listens."""
        self.end()
        watched = self._watched = _Watched(process)
        if self._limit_s:
            threading.Thread(
                target=self._watch, args=(watched,), name="spark-driver", daemon=True
            ).start()

    def end(self) -> None:
        """Watch no process any more."""
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.over.set()

    @property
    def told(self) -> str:
        """Why the watched process was ended. Empty: this watch did not end it."""
        return "" if self._watched is None else self._watched.told

    def _watch(self, watched: _Watched) -> None:
        process = watched.process
        if not self._stands_still(watched) or process.poll() is not None:
            return  # a dead driver is silent, too
        watched.told = (
            f"Spark's driver (pid {process.pid}) has not answered for {self._limit_s:g} s "
            "and was ended"
        )
        self._tell(watched.told)
        # This very process, even if another has taken its place.
        process.end()

    def _stands_still(self, watched: _Watched) -> bool:
        """Wait. Return True if the driver stands still, and False if the watch is over."""
        import grpc

        code = grpc.StatusCode
        # Status codes that gRPC itself gives to a call that has reached no server.
        no_answer = (code.DEADLINE_EXCEEDED, code.UNAVAILABLE, code.CANCELLED)
        silence = Silence(self._limit_s)
        with grpc.insecure_channel(f"127.0.0.1:{self._port}", options=_OPTIONS) as channel:
            method: Any = channel.unary_unary(_METHOD)
            # Until long after the limit: a late answer is an answer.
            ask = partial(method.future, b"", timeout=2 * self._limit_s, wait_for_ready=True)
            call, before = ask(), time.monotonic()
            while not watched.over.wait(silence.look_s):
                now = time.monotonic()
                answered = call.done() and call.code() not in no_answer
                if silence.looked(now - before, answered):
                    return True
                before = now
                if call.done():
                    call = ask()
        return False
