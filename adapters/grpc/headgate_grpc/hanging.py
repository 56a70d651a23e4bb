"""Calls into connectors that do not return, for the rows of a watch.

A row has the time since which a call hangs, and not its duration. So the row changes when a call
begins to hang and when it ends, and not in between.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from headgate_grpc import messages
from headgate_grpc.v1 import connector_pb2

CALLS_MAX: Final = 100
"""Most calls in one row. The row has the number of the others."""
SAME_MS: Final = 10_000
"""How much the start of one call may differ between two answers, since answers take time."""

_Key: TypeAlias = tuple[int | None, str, str]
"""(task, method, worker id) of a call."""


class HangingCalls:
    """The hanging calls that the workers reported when they were asked last."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[_Key, int]] = {}
        """Start of each call, in ms of the wall clock, by connector."""

    def take(self, workers: Iterable[Mapping[str, Any]], now_ms: int) -> set[str]:
        """Update the calls. Return the names of the connectors whose calls have changed.

        The calls of a worker that does not answer stay as they are. Those of a worker that is gone
        are removed.

        Args:
            workers: as in `Backend.group`.
            now_ms: wall time.
        """
        before, silent = self._calls, set[str]()
        self._calls = {}
        for worker in workers:
            worker_id, view = messages.text(worker["worker_id"]), worker["view"]
            if view is None:
                silent.add(worker_id)
                continue
            for call in messages.long_calls(view):
                key = (call.task, call.method, worker_id)
                calls = self._calls.setdefault(call.connector, {})
                calls[key] = min(now_ms - call.took_ms, calls.get(key, now_ms))
        for connector, known in before.items():
            for key, since_ms in known.items():
                now = self._calls.get(connector, {}).get(key)
                if key[-1] in silent or (now is not None and abs(now - since_ms) < SAME_MS):
                    self._calls.setdefault(connector, {})[key] = since_ms
        return {
            name
            for name in before.keys() | self._calls.keys()
            if before.get(name) != self._calls.get(name)
        }

    def fill(self, row: connector_pb2.Connector) -> None:
        """Replace the hanging calls in a row by the current ones."""
        row.ClearField("hanging_calls")
        row.ClearField("hanging_calls_more")
        calls = self._calls.get(row.name)
        if not calls:
            return
        oldest = sorted(
            calls.items(), key=lambda each: (each[1], -1 if each[0][0] is None else each[0][0])
        )
        for (task, method, worker_id), since_ms in oldest[:CALLS_MAX]:
            row.hanging_calls.add(task=task, method=method, since_ms=since_ms, worker_id=worker_id)
        row.hanging_calls_more = max(len(oldest) - CALLS_MAX, 0)
