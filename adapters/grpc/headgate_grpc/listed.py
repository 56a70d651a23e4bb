"""Rows of listings as bytes, kept as long as somebody lists again and again.

A herder gives the same row, the very object, until something of its connector changes. So what was
made of it once need not be made again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from headgate_grpc import messages
from headgate_grpc.v1 import connector_service_pb2 as pb

KEPT_MAX: Final = 20_000
KEPT_S: Final = 60.0
"""As long as a herder keeps its rows, which are kept here too."""


class Listed:
    """For the server's loop."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, bool], tuple[Mapping[str, Any], bytes]] = {}
        """Row and its bytes, by name and by whether it has the config."""
        self._asked_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def shown(self, row: Mapping[str, Any]) -> bytes:
        """A `ListConnectorsResponse` with this row alone."""
        place = row["name"], "config" in row
        found = self._kept.get(place)
        if found is not None and found[0] is row:
            return found[1]
        response = pb.ListConnectorsResponse()
        messages.fill_connector(response.connectors.add(), row)
        made = response.SerializeToString()
        whole = "task_configs" in row  # which a herder does not keep
        if not whole and (len(self._kept) < KEPT_MAX or place in self._kept):
            self._kept[place] = row, made
        return made

    def asked(self) -> None:
        """Somebody lists. What is kept is dropped some time after the last listing."""
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
