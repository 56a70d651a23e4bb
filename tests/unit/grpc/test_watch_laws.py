"""Laws for any client that applies a watch.

They hold also if the watch breaks off at any response and is resumed at another worker, which may
have read less.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.depth import tries

from headgate.herder.messages import ErrorKind, Failure, ShowConnectors, Success
from headgate_grpc.client.watching import Watching
from headgate_grpc.errors import RefusedError
from headgate_grpc.watch import Filter, Hub

NAMES = ("a", "b", "c")
Log = list[tuple[str, str | None]]
"""All that was written, in order: a name, and its value or None for a deletion."""


def table_at(log: Log, offset: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in log[:offset]:
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


class Reader:
    """A backend that has read part of the log, and answers late."""

    ready = True

    def __init__(self, log: Log) -> None:
        self._log = log
        self.read = 0
        self._touched: Any = None
        self.lateness = 2
        """How many turns of the loop an answer takes, before and after it is made."""
        self.failing = 0

    def watch(self, touched: Any) -> None:
        self._touched = touched

    def read_on(self, count: int) -> None:
        for name, _ in self._log[self.read : self.read + count]:
            self.read += 1
            if self._touched is not None:
                self._touched([name])

    async def ask(self, call: Any, timeout_ms: int, origin: str = "") -> Success | Failure:
        assert isinstance(call, ShowConnectors)
        lateness = self.lateness
        for _ in range(lateness):
            await asyncio.sleep(0)
        if self.failing:
            self.failing -= 1
            return Failure(ErrorKind.NOT_READY, "not now")
        table = table_at(self._log, self.read)
        chosen = sorted(
            name for name in table if (not call.names or name in call.names) and name > call.after
        )
        limit = call.limit or len(chosen)
        answer = {
            "rows": [row(name, table[name]) for name in chosen[:limit]],
            "more": len(chosen) > limit,
            "config_offset": self.read,
        }
        for _ in range(lateness + 1):  # what was touched before is told before
            await asyncio.sleep(0)
        return Success(answer)


def row(name: str, value: str) -> dict[str, Any]:
    shown = {"type": "sink", "target_state": "STARTED", "task_count": 0, "settled": False}
    return {"name": name, **shown, "etag": "0", "status": None, "config": {"k": value}}


class Client:
    """Applies one stream after the other."""

    def __init__(self, log: Log, readers: Sequence[Reader]) -> None:
        self._log, self._readers = log, readers
        self._hubs = [Hub(reader) for reader in readers]  # type: ignore[arg-type]
        self.at = 0
        self._stream: Any = None
        self._next: asyncio.Task[Any] | None = None
        self.watching = Watching()

    async def go_to(self, at: int) -> None:
        """The stream breaks off; the next one is at this worker."""
        await self._break_off()
        self.at = at
        self._stream = self._hubs[at].watch(Filter(), self.watching.cursor)
        self._next = asyncio.ensure_future(anext(self._stream))

    async def _break_off(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            self._next = None
        if self._stream is not None:
            await self._stream.aclose()

    async def handle(self, turns: int = 0) -> bool:
        """Applies the next response, if it is there within so many turns of the loop."""
        assert self._next is not None
        for _ in range(turns):
            if self._next.done():
                break
            await asyncio.sleep(0)
        if not self._next.done():
            return False
        ended, self._next = self._next, None
        if isinstance(ended.exception(), RefusedError):
            await self.go_to(self.at)
            return True
        self._next = asyncio.ensure_future(anext(self._stream))
        response = ended.result()
        self.watching.changes(response)
        if response.cursor and self.watching.cursor:
            self._check(response.config_offset)
        return True

    @property
    def shown(self) -> dict[str, str]:
        return {name: each.config["k"] for name, each in self.watching.connectors.items()}

    def _check(self, offset: int) -> None:
        """The client was told all changes before `offset`. It may have been told later ones."""
        reached = self._readers[self.at].read
        assert 0 <= offset <= reached
        tables = [table_at(self._log, each) for each in range(offset, reached + 1)]
        for name in NAMES:
            possible = {table.get(name) for table in tables}
            assert self.shown.get(name) in possible, (name, offset, self.shown, self._log)

    async def end(self) -> None:
        await self._break_off()
        for hub in self._hubs:
            hub.close()


NEAR = st.sampled_from((0, 0, 0, 1, 2))
"""A worker, counted from the one that is watched now."""
VALUES = st.sampled_from(("1", "2", "3", None))
ACTION = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), VALUES),
    st.tuples(st.just("news"), st.sampled_from(NAMES), VALUES),
    st.tuples(st.just("news"), st.sampled_from(NAMES), VALUES),
    st.tuples(st.just("read"), NEAR, st.integers(1, 4)),
    st.tuples(st.just("handle"), st.just(0), st.just(None)),
    st.tuples(st.just("handle"), st.just(0), st.just(None)),
    st.tuples(st.just("go to"), NEAR, st.just(None)),
    st.tuples(st.just("late"), NEAR, st.integers(0, 3)),
    st.tuples(st.just("fail"), NEAR, st.integers(1, 2)),
)
"""News: written, and read at once by the worker that is watched."""
STEPS = st.lists(st.tuples(ACTION, st.integers(0, 6)), min_size=10, max_size=40)
"""Actions, and how many turns the loop makes after each."""


async def follows(steps: list[tuple[tuple[str, Any, Any], int]]) -> None:
    log: Log = []
    readers = [Reader(log) for _ in range(3)]
    client = Client(log, readers)
    await client.go_to(0)
    while not client.watching.cursor:
        await client.handle(10)
    for (action, which, what), turns in steps:
        if action in ("write", "news"):
            log.append((which, what))
        if action == "news":
            readers[client.at].read_on(len(log))
        elif action == "read":
            readers[(client.at + which) % 3].read_on(what)
        elif action == "handle":
            await client.handle()
        elif action == "go to":
            await client.go_to((client.at + which) % 3)
        elif action == "late":
            readers[(client.at + which) % 3].lateness = what
        elif action == "fail":
            readers[(client.at + which) % 3].failing = what
        for _ in range(turns):
            await asyncio.sleep(0)
    for reader in readers:
        reader.failing = 0
        reader.read_on(len(log))
    await client.go_to(len(steps) % 3)
    for _ in range(200):
        if not await client.handle(300):  # a slow worker takes 15 turns for each page
            break
    assert client.shown == table_at(log, len(log))
    await client.end()


@settings(max_examples=tries(60, 1_500))
@given(steps=STEPS, page=st.integers(1, 3))
def test_a_watch_with_cuts_is_what_the_log_says_at_its_config_offset(
    steps: list[tuple[tuple[str, Any, Any], int]], page: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headgate_grpc.watch.PAGE", page)
        patch.setattr("headgate_grpc.watch.AGAIN_S", 0.0)
        asyncio.run(follows(steps))
