"""A cache of the rows of listings, as serialized messages, while clients keep listing.

A herder returns the same object as a row until something of its connector changes. So its message
need not be made again. Most rows also differ from others only in name and etag, so one message can
be the pattern of many.
"""

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any, Final

from headgate_grpc import messages
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb

KEPT_MAX: Final = 20_000
PATTERNS_MAX: Final = 500
_PARTS: Final = 7
"""Number of fields that every row has. Further ones, such as the config, differ between
connectors, so a row with them gets no pattern."""
KEPT_S: Final = 60.0
"""How long the cache is kept after the last listing. A herder keeps its rows for as long."""


class Listed:
    """The cache. Used on the server's loop."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool], tuple[Mapping[str, Any], bytes]] = {}
        """Row and its message, by name and by whether it has the config."""
        self._patterns: dict[Hashable, connector_pb2.Connector] = {}
        self._asked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def shown(self, row: Mapping[str, Any]) -> bytes:
        """Return a serialized `ListConnectorsResponse` with this row alone."""
        place = row["name"], "config" in row
        found = self._kept.get(place)
        if found is not None and found[0] is row:
            return found[1]
        response = pb.ListConnectorsResponse()
        self._fill(response.connectors.add(), row)
        made = response.SerializeToString()
        whole = "task_configs" in row  # a herder does not keep rows with these
        if not whole and (len(self._kept) < KEPT_MAX or place in self._kept):
            self._kept[place] = row, made
        return made

    def _fill(self, made: connector_pb2.Connector, row: Mapping[str, Any]) -> None:
        if row["status"] is None or len(row) > _PARTS:
            messages.fill_connector(made, row)
            return
        alike = _without_names(row)
        pattern = self._patterns.get(alike)
        if pattern is not None:
            made.CopyFrom(pattern)
            messages.fill_names(made, row)
            return
        messages.fill_connector(made, row)
        if len(self._patterns) < PATTERNS_MAX and not _has_trace(made):
            kept = self._patterns[alike] = connector_pb2.Connector()
            kept.CopyFrom(made)

    def asked(self) -> None:
        """Note a listing. The cache is dropped `KEPT_S` after the last one."""
        loop = asyncio.get_running_loop()
        self._asked_s = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(KEPT_S, self._expire)

    def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._asked_s + KEPT_S - loop.time()
        self._timer = loop.call_later(left_s, self._expire) if left_s > 0 else None
        if left_s <= 0:
            self._kept.clear()
            self._patterns.clear()


def _without_names(row: Mapping[str, Any]) -> Hashable:
    """Return a key that is equal for rows whose messages differ only in name and etag.

    The values of all tasks follow each other without separators. They remain unambiguous, because a
    task begins with its number, and no other value of a status is a number.
    """
    # A listing does this for ten thousand rows.
    status = row["status"]
    own: list[Hashable] = [row["type"], row["target_state"], row["task_count"], row["settled"]]
    own += status["connector"].values()
    for task in status["tasks"]:
        own += task.values()
    return tuple(own)


def _has_trace(made: connector_pb2.Connector) -> bool:
    """Return whether a message has a trace. It makes no pattern then, because traces are long and
    seldom equal to another connector's."""
    return bool(made.status.trace or any(task.status.trace for task in made.tasks))
