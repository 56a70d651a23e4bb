"""Calls into connectors (not their tasks) that do not return."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headgate.herder.messages import ConnectorCall
from headgate.task.messages import LongCall
from headgate_runtime.tasks import long_calls


class _Watched:
    """One thread on which a connector is called."""

    def __init__(self, connector: str) -> None:
        self.connector = connector
        self.call: tuple[str, float] | None = None
        """Method that has not returned for long, and the monotonic time in seconds at which it was
        called."""

    def report(self, call: LongCall) -> None:
        since_s = time.monotonic() - call.took_ms / 1000
        self.call = (call.method, since_s) if call.method else None


class ConnectorCalls:
    """The calls of one worker into connectors. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[_Watched, None] = {}

    @contextmanager
    def watched(self, connector: str) -> Iterator[None]:
        """Inside this context, count `long_calls.call` of this thread as a call into this
        connector."""
        one = _Watched(connector)
        with self._lock:
            self._watched[one] = None
        try:
            with long_calls.watched(connector, one.report):
                yield
        finally:
            with self._lock:
                del self._watched[one]

    def read(self) -> tuple[ConnectorCall, ...]:
        """Return the calls that have not returned for long, one for each connector and method. Of
        several, it is the one that began first."""
        now_s = time.monotonic()
        since = dict[tuple[str, str], float]()
        with self._lock:
            for one in self._watched:
                if call := one.call:
                    key = (one.connector, call[0])
                    since[key] = min(call[1], since.get(key, now_s))
        return tuple(
            ConnectorCall(connector, method, round((now_s - since_s) * 1000))
            for (connector, method), since_s in sorted(since.items())
        )


def read_all(sources: Iterable[ConnectorCalls]) -> tuple[ConnectorCall, ...]:
    """Return `ConnectorCalls.read` of all sources together."""
    longest = dict[tuple[str, str], ConnectorCall]()
    for call in (each for source in sources for each in source.read()):
        known = longest.get(key := (call.connector, call.method))
        if known is None or known.took_ms < call.took_ms:
            longest[key] = call
    return tuple(longest[key] for key in sorted(longest))
