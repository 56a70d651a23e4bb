"""Connections to the workers that are called, one for each address."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import grpc.aio

CHANNELS_MAX: Final = 200
"""Connections that are kept. More are open only while more than so many are in use."""


@dataclass(slots=True, eq=False)
class Connection:
    """One callee, as this worker knows it."""

    channel: grpc.aio.Channel
    boot: bytes = b""
    """What the callee said of its start; empty: nothing yet."""
    calls: int = 0
    """Calls under way."""


class Channels:
    """Belongs to one loop.

    Args:
        made: a channel to an address.
    """

    def __init__(self, made: Callable[[str], grpc.aio.Channel]) -> None:
        self._made = made
        self._open: dict[str, Connection] = {}
        """Least recently used first."""

    @contextlib.asynccontextmanager
    async def use(self, address: str) -> AsyncIterator[Connection]:
        """The connection to `address`, for one call."""
        found = self._open.pop(address, None) or Connection(self._made(address))
        self._open[address] = found
        found.calls += 1
        # Whoever comes next finds this one: nothing is awaited before.
        try:
            for each in self._taken_out():
                await each.channel.close()
            yield found
        finally:
            found.calls -= 1

    def _taken_out(self) -> list[Connection]:
        """Idle connections over the limit, those first that were not used for longest: workers that
        are gone."""
        over = len(self._open) - CHANNELS_MAX
        if over <= 0:
            return []
        idle = [address for address, each in self._open.items() if not each.calls]
        return [self._open.pop(address) for address in idle[:over]]

    async def close(self) -> None:
        found, self._open = list(self._open.values()), {}
        for each in found:
            await each.channel.close()
