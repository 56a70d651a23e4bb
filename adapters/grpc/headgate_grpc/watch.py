"""Watches of connectors: one table of the connectors' current rows, and for each watcher the names
of the rows to send.

Watches are level-triggered. A watcher gets the current row of a connector when it is ready to read,
and not each state in between. So a slow or stopped reader costs a set of names, and never a queue
of states.

The table is only kept while there are watchers, and for `LINGER_S` after. The backend reports which
connectors may have changed, and is asked for their rows once, for all watchers.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.herder.messages import ErrorKind, Failure, ShowConnectors
from headgate_grpc import messages
from headgate_grpc.backend import Backend, TooManyError
from headgate_grpc.errors import MEANINGS, TOO_MANY, RefusedError
from headgate_grpc.hanging import HangingCalls
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1.connector_service_pb2 import WatchConnectorsResponse

log = logging.getLogger(__name__)

WATCHES_MAX: Final = 10_000
RESPONSE_MAX: Final = 64 * 1024
SILENCE_S: Final = 10.0
"""Time without a change after which the cursor is sent again, to show that the watch is alive."""
LINGER_S: Final = 60.0
"""How long the table is kept up to date without watchers, for those that resume."""
PAGE: Final = 1_000
ASK_MS: Final = 30_000
CALLS_MS: Final = 10_000
AGAIN_S: Final = 0.2
CALLS_S: Final = 5.0
"""Pause between requests to the workers for calls that hang."""
GONE_KEPT: Final = 10_000
"""Number of deleted connectors that are remembered for watchers that resume."""
_ENDS: Final = "The worker is shutting down; watch another one"
_NOTHING: Final = ShowConnectors(names=("",))
"""A call whose answer has no rows, since no connector has an empty name."""
_OVERHEAD: Final = 16
"""Bytes that a connector takes in a response in addition to its message."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The connectors that a watcher wants. An empty field matches all connectors."""

    names: frozenset[str] = frozenset()
    prefix: str = ""
    states: frozenset[int] = frozenset()

    @classmethod
    def of(cls, wanted: connector_pb2.ConnectorFilter) -> "Filter":
        """Return the filter of a request.

        Raises:
            RefusedError: it has an unknown state.
        """
        messages.states_of(wanted.states)
        return cls(frozenset(wanted.names), wanted.prefix, frozenset(wanted.states))

    def may_match(self, name: str) -> bool:
        return name.startswith(self.prefix) and (not self.names or name in self.names)

    def matches(self, found: connector_pb2.Connector) -> bool:
        if not self.states:
            return True
        return found.status.state in self.states or any(
            task.status.state in self.states for task in found.tasks
        )


@dataclass(slots=True)
class _Entry:
    """The table's entry of a connector. It is replaced, and never changed."""

    revision: int
    basic: connector_pb2.Connector | None
    """The connector for CONNECTOR_VIEW_BASIC. None: it is deleted."""
    status: connector_pb2.Connector | None
    """The connector for CONNECTOR_VIEW_STATUS. None: it is deleted."""


@dataclass(slots=True, eq=False)
class _Watcher:
    wanted: Filter
    with_config: bool
    pending: dict[str, None] = field(default_factory=dict[str, None])
    told: set[str] = field(default_factory=set[str])
    """Names of the connectors that this stream has sent and not removed."""
    resumed: bool = False
    """The client may know further connectors, from an earlier stream."""
    news: asyncio.Event = field(default_factory=asyncio.Event)


class Hub:
    """All watches of one server. Belongs to the server's loop."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._table: dict[str, _Entry] = {}
        self._revision = 0
        self._forgotten = 0
        """Highest revision of a deleted connector that is not remembered any more."""
        self._boot = ""
        self._config_offset = 0
        """The table reflects all records of the config topic before this offset."""
        self._reaching: deque[tuple[int, int]] = deque()
        """(looks, config offset): when `_looks` reaches the number, the table reflects all records
        before the offset."""
        self._watchers: set[_Watcher] = set()
        self._touched: dict[str, None] = {}
        self._news = asyncio.Event()
        self._looks = 0
        """Number of finished requests for the rows of touched connectors."""
        self._looking = False
        self._look_over = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._calls = HangingCalls()
        self._calls_follower: asyncio.Task[None] | None = None
        self._loaded: asyncio.Future[None] | None = None
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._end: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """End all watches with UNAVAILABLE."""
        if not self._closing.done():
            self._closing.set_result(None)
        for watcher in self._watchers:
            watcher.news.set()
        self._stop()

    async def watch(
        self, wanted: Filter, cursor: str = "", *, with_config: bool = True, fresh: bool = True
    ) -> AsyncGenerator[WatchConnectorsResponse]:
        """Yield the responses of one stream.

        Args:
            fresh: the first rows are not older than the answer to any call before this one, and
                rows have calls that hang.

        Raises:
            RefusedError: too many watches are open, or the server is shutting down.
        """
        if len(self._watchers) >= WATCHES_MAX:
            raise RefusedError(TOO_MANY, f"{WATCHES_MAX} watches are open on this worker already")
        watcher = _Watcher(wanted, with_config)
        self._watchers.add(watcher)
        try:
            if not await self._follow() and fresh:
                await self._catch_up()
            if fresh and self._calls_follower is None and not self._closing.done():
                self._calls_follower = asyncio.create_task(self._follow_calls())
            reset = not self._resume(watcher, cursor)
            if reset:
                watcher.pending = dict.fromkeys(filter(wanted.may_match, sorted(self._table)))
                watcher.told.clear()
            while reset or watcher.pending:
                yield self._response(watcher, reset=reset)
                reset = False
            yield self._response(watcher, synced=True)
            while True:
                await self._some_news(watcher)
                yield self._response(watcher)
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and not self._closing.done():
                loop = asyncio.get_running_loop()
                self._end = loop.call_later(LINGER_S, self._stop_if_unwatched)

    async def _some_news(self, watcher: _Watcher) -> None:
        """Wait until there is something to send, but not longer than `SILENCE_S`."""
        try:
            async with asyncio.timeout(SILENCE_S):
                while not watcher.pending and not self._closing.done():
                    watcher.news.clear()
                    await watcher.news.wait()
        except TimeoutError:
            return
        if self._closing.done():
            raise RefusedError(MEANINGS[ErrorKind.NOT_READY], _ENDS)

    def _resume(self, watcher: _Watcher, cursor: str) -> bool:
        """Mark the changes since `cursor` as pending. Return False if they are not all known."""
        boot, _, number = cursor.partition("-")
        if not boot or boot != self._boot or not (number.isascii() and number.isdecimal()):
            return False
        since = int(number[:20])
        if not self._forgotten <= since <= self._revision:
            return False
        watcher.resumed = True
        for name, entry in self._table.items():
            if entry.revision > since and watcher.wanted.may_match(name):
                watcher.pending[name] = None
        return True

    def _response(
        self, watcher: _Watcher, *, reset: bool = False, synced: bool = False
    ) -> WatchConnectorsResponse:
        """Return a response with the pending rows, as many as fit into it."""
        response = WatchConnectorsResponse(
            reset=reset, synced=synced and not watcher.pending, config_offset=self._config_offset
        )
        size = 0
        while watcher.pending:
            name = next(iter(watcher.pending))
            entry = self._table.get(name)
            found = None if entry is None else entry.basic if watcher.with_config else entry.status
            if found is not None and watcher.wanted.matches(found):
                size += found.ByteSize() + _OVERHEAD
                if size > RESPONSE_MAX and (response.connectors or response.removed):
                    break
                response.connectors.append(found)
                watcher.told.add(name)
            elif watcher.resumed or name in watcher.told:
                size += 4 * len(name) + _OVERHEAD
                if size > RESPONSE_MAX and (response.connectors or response.removed):
                    break
                response.removed.append(name)
                watcher.told.discard(name)
            del watcher.pending[name]
        if not watcher.pending:
            response.cursor = f"{self._boot}-{self._revision}"
        return response

    # -- the table --

    async def _follow(self) -> bool:
        """Wait until the table is complete. Return whether this call has started it."""
        if self._end is not None:
            self._end.cancel()
            self._end = None
        made = self._loaded is None
        if self._loaded is None:
            self._loaded = asyncio.get_running_loop().create_future()
            self._boot = secrets.token_hex(6)
            self._follower = asyncio.create_task(self._keep_up(self._loaded))
        await asyncio.shield(self._loaded)
        return made

    async def _catch_up(self) -> None:
        """Wait until the table has all that the backend knew when this was called.

        The backend reports touched connectors before it answers a later call. So after one answer
        all their names are in `_touched`, and it takes as many looks as these names fill.
        """
        await self._ask(_NOTHING)
        waiting = len(self._touched)
        until = self._looks + self._looking + (waiting + PAGE - 1) // PAGE
        while self._looks < until and self._follower is not None and not self._closing.done():
            self._look_over.clear()
            await self._look_over.wait()

    def _stop_if_unwatched(self) -> None:
        if not self._watchers:
            self._stop()

    def _stop(self) -> None:
        if self._calls_follower is not None:
            self._calls_follower.cancel()
            self._calls_follower = None
        if self._follower is None:
            return
        self._backend.watch(None)
        self._follower.cancel()
        if self._loaded is not None and not self._loaded.done():
            self._loaded.set_exception(
                RefusedError(MEANINGS[ErrorKind.NOT_READY], "The worker is shutting down")
            )
            self._loaded.exception()  # marks it as retrieved, since maybe nobody awaits it
        self._follower, self._loaded = None, None
        self._drop_table()
        self._looking = False
        self._look_over.set()

    def _drop_table(self) -> None:
        self._table.clear()
        self._touched.clear()
        self._reaching.clear()
        self._revision = self._forgotten = 0

    async def _keep_up(self, loaded: "asyncio.Future[None]") -> None:
        loop = asyncio.get_running_loop()

        def touched(names: Iterable[str]) -> None:
            loop.call_soon_threadsafe(self._mark, tuple(names))

        self._backend.watch(touched)
        after = ""
        while True:
            found = await self._ask(
                ShowConnectors(after=after, limit=PAGE, parts=("config",)), loaded
            )
            self._put(found, ())
            if not after or not found["more"]:
                self._reaches(found["config_offset"], at_once=not after)
            if not found["more"]:
                break
            after = found["rows"][-1]["name"]
        if not loaded.done():
            loaded.set_result(None)
        while True:
            await self._news.wait()
            self._news.clear()
            while self._touched:
                names = tuple(self._touched)[:PAGE]
                for name in names:
                    del self._touched[name]
                self._looking = True
                found = await self._ask(ShowConnectors(names=names, parts=("config",)))
                self._put(found, names)
                self._looking = False
                self._looks += 1
                self._reaches(found["config_offset"])
                self._look_over.set()

    async def _follow_calls(self) -> None:
        while True:
            try:
                found = await self._backend.group(CALLS_MS)
            except Exception as error:  # the watch goes on, without calls that hang
                log.debug("calls into watched connectors: %s: %s", type(error).__name__, error)
            else:
                for name in self._calls.take(found["workers"], time.time_ns() // 1_000_000):
                    self._show_calls(name)
            await asyncio.sleep(CALLS_S)

    def _show_calls(self, name: str) -> None:
        entry = self._table.get(name)
        if entry is None or entry.basic is None:
            return
        row = connector_pb2.Connector()
        row.CopyFrom(entry.basic)
        self._calls.fill(row)
        if row != entry.basic:
            self._set(name, row)

    def _reaches(self, offset: int, *, at_once: bool = False) -> None:
        """Note that rows just put into the table were read at config offset `offset`.

        Before it answered, the backend reported all other connectors that were touched until then.
        They are in `_touched` now. So the table reflects `offset` once these rows are read too, or
        now if `at_once`.
        """
        looks = 0 if at_once else (len(self._touched) + PAGE - 1) // PAGE
        self._reaching.append((self._looks + looks, offset))
        while self._reaching and self._reaching[0][0] <= self._looks:
            self._config_offset = max(self._config_offset, self._reaching.popleft()[1])

    def _mark(self, names: Iterable[str]) -> None:
        self._touched.update(dict.fromkeys(names))
        self._news.set()

    async def _ask(
        self, call: ShowConnectors, loaded: "asyncio.Future[None] | None" = None
    ) -> dict[str, Any]:
        """Return the backend's answer. A failed call is repeated, so that no touched connector is
        forgotten. While the table is being loaded, a failure ends the loading instead, and is
        raised to the watchers that wait for it."""
        while True:
            if self._closing.done():
                raise RefusedError(MEANINGS[ErrorKind.NOT_READY], _ENDS)
            try:
                result = await self._backend.ask(call, ASK_MS)
            except TooManyError as error:
                result = Failure(ErrorKind.NOT_READY, str(error))
            if not isinstance(result, Failure):
                value: Any = result.value
                return dict(value)
            log.debug("rows of watched connectors: %s", result.message)
            if loaded is not None and not loaded.done():
                loaded.set_exception(RefusedError.of(result))
                loaded.exception()
                self._loaded = None
                self._backend.watch(None)
                # The rows read so far are no longer updated.
                self._drop_table()
                raise asyncio.CancelledError
            await asyncio.sleep(AGAIN_S)

    def _put(self, found: dict[str, Any], asked: Iterable[str]) -> None:
        """Put rows into the table. Connectors that were asked for and have no row are deleted."""
        gone = dict.fromkeys(asked)
        for row in found["rows"]:
            gone.pop(row["name"], None)
            basic = messages.connector(row)
            self._calls.fill(basic)
            before = self._table.get(row["name"])
            if before is None or before.basic != basic:
                self._set(row["name"], basic)
        for name in gone:
            before = self._table.get(name)
            if before is not None and before.basic is not None:
                self._set(name, None)
        self._forget()

    def _set(self, name: str, basic: connector_pb2.Connector | None) -> None:
        self._revision += 1
        status = None if basic is None else messages.without_config(basic)
        self._table[name] = _Entry(self._revision, basic, status)
        for watcher in self._watchers:
            if watcher.wanted.may_match(name):
                watcher.pending[name] = None
                watcher.news.set()

    def _forget(self) -> None:
        if len(self._table) <= GONE_KEPT:
            return
        gone = sorted(
            (entry.revision, name) for name, entry in self._table.items() if entry.basic is None
        )
        for revision, name in gone[: max(len(gone) - GONE_KEPT, 0)]:
            del self._table[name]
            self._forgotten = revision
