"""Connections to other workers, one for each address."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import grpc.aio

CHANNELS_MAX: Final = 200
"""Number of connections that are kept. More are only open while more are in use."""


@dataclass(slots=True, eq=False)
class Connection:
    """The connection to one callee."""

    channel: grpc.aio.Channel
    boot: bytes = b""
    """The callee's `Verifier.boot`. Empty: not known yet."""
    calls: int = 0
    """Number of calls under way."""


class Channels:
    """The connections to all callees. They belong to one loop.

    Args:
        made: makes a channel to an address.
    """

    def __init__(self, made: Callable[[str], grpc.aio.Channel]) -> None:
        self._made = made
        self._open: dict[str, Connection] = {}
        """Connections by address, least recently used first."""

    @contextlib.asynccontextmanager
    async def use(self, address: str) -> AsyncIterator[Connection]:
        """Yield the connection to `address`, for one call."""
        found = self._open.pop(address, None) or Connection(self._made(address))
        self._open[address] = found
        found.calls += 1
        # Nothing is awaited before this point, so that another call finds this connection.
        try:
            for each in self._taken_out():
                await each.channel.close()
            yield found
        finally:
            found.calls -= 1

    def _taken_out(self) -> list[Connection]:
        """Remove and return idle connections over the limit, the least recently used first. They
        are mostly to workers that are gone."""
        over = len(self._open) - CHANNELS_MAX
        if over <= 0:
            return []
        idle = [address for address, each in self._open.items() if not each.calls]
        return [self._open.pop(address) for address in idle[:over]]

    async def close(self) -> None:
        found, self._open = list(self._open.values()), {}
        for each in found:
            await each.channel.close()
