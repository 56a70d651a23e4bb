"""Notices a driver that stands still: its process is there, and nothing in it goes on. Ends it.

The kernel takes connections for a process that was stopped, or whose JVM does nothing but collect
garbage. So the driver is asked for an answer: gRPC's own, that it knows no such method. It needs no
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
"""How many looks there are within the time-out."""
HELD_BACK: Final = 2.0
"""A look that comes later than so many times its interval was held back: this process stood still
itself, or had no CPU."""
_METHOD: Final = "/headgate.Driver/Answer"
_OPTIONS: Final = (
    # What a proxy says is not what this machine says.
    ("grpc.enable_http_proxy", 0),
    # A connection of its own, and one that is soon tried anew: the next driver has the same port.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Process(Protocol):
    """`headgate_spark.guard.Guarded`, as far as it is used."""

    @property
    def pid(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def end(self) -> None: ...


class Silence:
    """How long a driver has been silent. Pure: told of each look, says when it is too long."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.look_s = limit_s / LOOKS
        """Time between two looks."""
        self._silent_s = 0.0

    def looked(self, since_s: float, answered: bool) -> bool:
        """A look, `since_s` after the one before. True: the driver stands still."""
        # Who stood still itself has not listened, and may have lost an answer.
        held_back = since_s > HELD_BACK * self.look_s
        self._silent_s = 0.0 if answered or held_back else self._silent_s + since_s
        return self._silent_s >= self._limit_s


@dataclass(slots=True)
class _Watched:
    """One process of the driver. What is found of it is never said of the next one."""

    process: Process
    over: threading.Event = field(default_factory=threading.Event)
    told: str = ""


class DriverWatch:
    """Watches one process after the other on one port.

    Args:
        port: where the driver's Spark Connect server listens, on this machine.
        limit_s: how long the driver may be silent; 0: for ever.
        tell: is told why a driver is ended, before it is.
    """

    def __init__(self, port: int, limit_s: float, tell: Callable[[str], None]) -> None:
        self._port = port
        self._limit_s = limit_s
        self._tell = tell
        self._watched: _Watched | None = None

    def begin(self, process: Process) -> None:
        """The driver listens; from now on `process` is watched."""
        self.end()
        watched = self._watched = _Watched(process)
        if self._limit_s:
            threading.Thread(
                target=self._watch, args=(watched,), name="spark-driver", daemon=True
            ).start()

    def end(self) -> None:
        """Nobody is watched any more."""
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.over.set()

    @property
    def told(self) -> str:
        """Why the process that is watched was ended; empty: it was not, not by this watch."""
        return "" if self._watched is None else self._watched.told

    def _watch(self, watched: _Watched) -> None:
        process = watched.process
        if not self._stands_still(watched) or process.poll() is not None:
            return  # one that is dead is silent, too
        watched.told = (
            f"Spark's driver (pid {process.pid}) has not answered for {self._limit_s:g} s "
            "and was ended"
        )
        self._tell(watched.told)
        # This very process, whoever has its place by now.
        process.end()

    def _stands_still(self, watched: _Watched) -> bool:
        """Returns True when the driver does, False when nobody wants to know any more."""
        import grpc

        code = grpc.StatusCode
        # What gRPC says itself of a call that has reached nobody.
        no_answer = (code.DEADLINE_EXCEEDED, code.UNAVAILABLE, code.CANCELLED)
        silence = Silence(self._limit_s)
        with grpc.insecure_channel(f"127.0.0.1:{self._port}", options=_OPTIONS) as channel:
            method: Any = channel.unary_unary(_METHOD)
            # Till long after the limit: one who answers late has answered.
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
