"""Calls into connectors that do not return, as rows of a watch show them: since when, not for how
long. So a row changes when a call begins to hang and when it ends, and not in between."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from headgate_grpc import messages
from headgate_grpc.v1 import connector_pb2

CALLS_MAX: Final = 100
"""Calls that one row has; of the rest it has the number."""
SAME_MS: Final = 10_000
"""Two looks at one call may differ by so much: answers take their time."""

_Key: TypeAlias = tuple[int | None, str, str]
"""Task, method and worker."""


class HangingCalls:
    """What the workers said of such calls when they were asked last."""

    def __init__(self) -> None:
        self._calls: dict[str, dict[_Key, int]] = {}
        """Since when, by connector."""

    def take(self, workers: Iterable[Mapping[str, Any]], now_ms: int) -> set[str]:
        """The workers as `Backend.group` tells them: the connectors whose calls are others now.

        A worker that does not answer leaves its calls as they are; one that is gone takes them.
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
        """Put the calls into a row, in place of those that it has."""
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
