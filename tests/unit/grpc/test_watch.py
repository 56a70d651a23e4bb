"""Watches of connectors on a real worker, and the cost of a slow or vanished client."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.depth import first
from support.grpc.worker import Served, grpc_worker

from headgate.herder.messages import ErrorKind, Failure, ShowConnectors, Success
from headgate_grpc.client import HeadgateError, connect, connect_async
from headgate_grpc.client.watching import Watching
from headgate_grpc.errors import RefusedError
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb
from headgate_grpc.watch import RESPONSE_MAX, WATCHES_MAX, Filter, Hub

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
STOPPED = connector_pb2.TARGET_STATE_STOPPED


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with grpc_worker(tmp_path) as served:
        yield served


def test_a_stream_is_reset_connectors_synced_and_changes(served: Served) -> None:
    served.client.create("a", SINK, STOPPED)
    served.client.wait("a")
    stream = served.client.connectors.WatchConnectors(pb.WatchConnectorsRequest())
    first = next(stream)
    assert first.reset and [each.name for each in first.connectors] == ["a"]
    while not (second := next(stream)).synced:
        pass
    assert second.cursor
    served.client.create("b", SINK, STOPPED)
    while "b" not in {each.name for each in next(stream).connectors}:
        pass
    served.client.delete("a")
    gone: list[str] = []
    for response in stream:
        gone += response.removed
        if gone:
            break
    assert gone == ["a"]
    stream.cancel()


def test_a_cursor_resumes_after_what_was_handled(served: Served) -> None:
    for name in ("a", "b", "c"):
        served.client.create(name, SINK, STOPPED)
        served.client.wait(name)
    stream = served.client.connectors.WatchConnectors(pb.WatchConnectorsRequest())
    next(stream)
    cursor = next(stream).cursor
    stream.cancel()
    served.client.delete("b")
    served.client.wait("b", deleted=True)
    again = served.client.connectors.WatchConnectors(pb.WatchConnectorsRequest(cursor=cursor))
    response = next(again)
    assert not response.reset
    assert (list(response.removed), list(response.connectors)) == (["b"], [])
    again.cancel()
    foreign = pb.WatchConnectorsRequest(cursor="0123456789ab-1")
    assert next(served.client.connectors.WatchConnectors(foreign)).reset


def test_connectors_that_match_no_more_are_removed(served: Served) -> None:
    served.client.create("a", SINK, STOPPED)
    served.client.wait("a")
    wanted = connector_pb2.ConnectorFilter(states=[connector_pb2.STATE_STOPPED])
    stream = served.client.connectors.WatchConnectors(pb.WatchConnectorsRequest(filter=wanted))
    while not next(stream).connectors:
        pass
    served.client.resume("a")
    while not (response := next(stream)).removed:
        pass
    assert list(response.removed) == ["a"]
    stream.cancel()


def test_wait_returns_when_the_statuses_say_so_and_tells_failures(served: Served) -> None:
    served.client.create("a", {**SINK, "file": "/nowhere/at/all/out.txt"})
    with pytest.raises(HeadgateError) as caught:
        served.client.wait("a", timeout_s=20)
    assert caught.value.reason == "CONNECTOR_FAILED"
    assert "a-0 has failed" in caught.value.message and "/nowhere" in caught.value.message
    with pytest.raises(HeadgateError) as caught:
        served.client.wait(
            "a", state=connector_pb2.STATE_PAUSED, stop_at_failure=False, timeout_s=1
        )
    assert caught.value.reason == "STILL_WAITING"
    assert caught.value.message.startswith("Connector a is not PAUSED yet: connector ")
    served.client.stop("a")
    assert served.client.wait("a").status.state == connector_pb2.STATE_STOPPED
    with pytest.raises(HeadgateError) as caught:
        served.client.wait("nope")
    assert caught.value.code == "NOT_FOUND"
    threading.Timer(0.3, served.client.delete, ["a"]).start()
    with pytest.raises(HeadgateError) as caught:
        served.client.wait("a", state=connector_pb2.STATE_RUNNING)
    assert caught.value.code == "NOT_FOUND"


def test_watches_end_with_unavailable_when_the_server_does(served: Served) -> None:
    stream = served.client.connectors.WatchConnectors(pb.WatchConnectorsRequest())
    assert next(stream).reset
    threading.Timer(0.2, served.server.close).start()
    with pytest.raises(grpc.RpcError) as caught:
        for _ in stream:
            pass
    error = HeadgateError.of(caught.value)
    assert (error.code, error.reason) == ("UNAVAILABLE", "NOT_READY")


def test_the_client_for_asyncio_watches_too(served: Served) -> None:
    async def run() -> list[str]:
        names = []
        async with connect_async(served.address) as client:
            await client.create("a", SINK, STOPPED)
            await client.wait("a")
            async for change in client.watch():
                names.append(change.name)
                if len(names) == 1:
                    await client.create("b", SINK, STOPPED)
                else:
                    return names
        raise AssertionError

    assert asyncio.run(run()) == ["a", "b"]


# -- a table that a test writes --


def row(name: str, value: str = "") -> dict[str, Any]:
    return {
        "name": name,
        "type": "sink",
        "target_state": "STARTED",
        "task_count": 0,
        "settled": False,
        "etag": "0",
        "status": None,
        "config": {"k": value},
    }


class Table:
    """A backend whose connectors are a dict."""

    ready = True

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.touched: Any = None
        self.failing = 0

    def watch(self, touched: Any) -> None:
        self.touched = touched

    async def ask(self, call: Any, timeout_ms: int, origin: str = "") -> Success | Failure:
        assert isinstance(call, ShowConnectors)
        if self.failing:
            self.failing -= 1
            return Failure(ErrorKind.NOT_READY, "not now")
        names = sorted(call.names or self.rows)
        chosen = [self.rows[name] for name in names if name in self.rows and name > call.after]
        limit = call.limit or len(chosen)
        return Success(
            {"rows": chosen[:limit], "more": len(chosen) > limit, "config_offset": len(self.rows)}
        )

    def put(self, name: str, value: str | None) -> None:
        if value is None:
            self.rows.pop(name, None)
        else:
            self.rows[name] = row(name, value)
        if self.touched is not None:
            self.touched([name])


async def read(watching: Watching, stream: Any) -> pb.WatchConnectorsResponse:
    response: pb.WatchConnectorsResponse = await asyncio.wait_for(anext(stream), 5)
    assert response.ByteSize() <= RESPONSE_MAX + 200 or len(response.connectors) == 1
    watching.changes(response)
    return response


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 5), st.text("ab", max_size=2)),
        st.tuples(st.just("delete"), st.integers(0, 5), st.just("")),
        st.tuples(st.just("read"), st.just(0), st.just("")),
        st.tuples(st.just("cut"), st.just(0), st.just("")),
        st.tuples(st.just("fail"), st.integers(1, 2), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(ACTIONS)
def test_whoever_follows_the_stream_has_what_a_listing_has(
    actions: list[tuple[str, int, str]],
) -> None:
    """That holds also if streams break off at any response and are resumed."""

    async def run() -> None:
        table, watching = Table(), Watching()
        hub = Hub(table)  # type: ignore[arg-type]
        stream = hub.watch(Filter())
        synced = False
        for action, n, value in actions:
            if action == "put":
                table.put(f"c{n}", value)
            elif action == "delete":
                table.put(f"c{n}", None)
            elif action == "fail" and synced:
                table.failing = n
            elif action == "read":
                if not synced:
                    synced = (await read(watching, stream)).synced
            elif action == "cut":
                await stream.aclose()  # type: ignore[attr-defined]
                stream, synced = hub.watch(Filter(), watching.cursor), False
            await asyncio.sleep(0)
        table.put("last", "x")
        while watching.connectors.keys() != table.rows.keys() or any(
            watching.connectors[name].config["k"] != each["config"]["k"]
            for name, each in table.rows.items()
        ):
            await read(watching, stream)
        hub.close()

    asyncio.run(run())


def test_a_reader_that_stands_still_costs_names_and_sees_the_last_state() -> None:
    async def run() -> None:
        table = Table()
        hub = Hub(table)  # type: ignore[arg-type]
        for n in range(100):
            table.put(f"c{n}", "x" * 20_000)
        watching, stream = Watching(), hub.watch(Filter())
        while not (await read(watching, stream)).synced:
            pass
        (watcher,) = hub._watchers
        for change in range(4_000):
            table.put(f"c{change % 100}", f"{change}" + "y" * 20_000)
            if change % 50 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        assert len(watcher.pending) == 100
        for _ in range(50):
            await read(watching, stream)
            if not watcher.pending:
                break
        assert {name: each.config["k"][:4] for name, each in watching.connectors.items()} == {
            f"c{n}": f"{3_900 + n}" for n in range(100)
        }
        hub.close()

    asyncio.run(run())


@pytest.mark.parametrize("limit", first(1, [2, WATCHES_MAX]))
def test_more_watches_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr("headgate_grpc.watch.WATCHES_MAX", limit)

    async def run() -> None:
        hub = Hub(Table())  # type: ignore[arg-type]
        open_ones = [hub.watch(Filter()) for _ in range(limit)]
        for stream in open_ones:
            await anext(stream)
        with pytest.raises(RefusedError, match=f"{limit} watches are open"):
            await anext(hub.watch(Filter()))
        await open_ones[0].aclose()  # type: ignore[attr-defined]
        await anext(hub.watch(Filter()))
        hub.close()

    asyncio.run(run())


def test_a_watch_over_the_limit_is_told_so_and_the_others_go_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WATCHES_MAX == 10_000, "docs/run/grpc.md says so"
    monkeypatch.setattr("headgate_grpc.watch.WATCHES_MAX", 2)
    watch = served.client.connectors.WatchConnectors
    streams = [watch(pb.WatchConnectorsRequest()) for _ in range(2)]
    for stream in streams:
        while not next(stream).synced:
            pass
    with pytest.raises(grpc.RpcError) as caught:
        next(watch(pb.WatchConnectorsRequest()))
    error = HeadgateError.of(caught.value, reads=True)
    assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY")
    served.client.create("still", SINK, STOPPED)
    for stream in streams:
        while "still" not in {each.name for each in next(stream).connectors}:
            pass
    for stream in streams:
        stream.cancel()


def test_a_watch_begins_with_what_earlier_calls_have_shown() -> None:
    """The table of an open watch is behind: its look is still under way, another one waits."""

    async def run() -> None:
        table = HeldTable()
        hub = Hub(table)  # type: ignore[arg-type]
        table.put("a", "old")
        first = hub.watch(Filter())
        while not (await anext(first)).synced:
            pass
        table.go.clear()
        table.put("a", "between")
        await asyncio.sleep(0.05)
        table.put("a", "new")
        second = asyncio.ensure_future(anext(hub.watch(Filter())))
        await asyncio.sleep(0.05)
        assert not second.done()
        table.go.set()
        (shown,) = (await asyncio.wait_for(second, 5)).connectors
        assert shown.config["k"] == "new"
        hub.close()

    asyncio.run(run())


class HeldTable(Table):
    """Answers about connectors by name are held back while `go` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.go.set()

    async def ask(self, call: Any, timeout_ms: int, origin: str = "") -> Success | Failure:
        answer = await super().ask(call, timeout_ms)
        if call.names and call.names != ("",):
            await self.go.wait()
        return answer


def test_a_first_watch_is_refused_while_rows_cannot_be_had() -> None:
    async def run() -> None:
        table = Table()
        hub = Hub(table)  # type: ignore[arg-type]
        table.failing = 1
        with pytest.raises(RefusedError, match="not now"):
            await anext(hub.watch(Filter()))
        assert (await anext(hub.watch(Filter()))).reset
        hub.close()

    asyncio.run(run())


def test_a_client_that_is_gone_leaves_no_watch_behind(served: Served) -> None:
    with connect(served.address) as other:
        streams = [other.connectors.WatchConnectors(pb.WatchConnectorsRequest()) for _ in range(20)]
        for stream in streams:
            assert next(stream).reset
    until = time.monotonic() + 10
    stream = served.client.connectors.WatchConnectors(pb.WatchConnectorsRequest())
    next(stream)
    while watches(served) > 1:
        assert time.monotonic() < until, watches(served)
        time.sleep(0.02)
    stream.cancel()


def watches(served: Served) -> int:
    assert served.server.hub is not None
    return len(served.server.hub._watchers)


def test_rows_of_a_load_that_failed_are_not_shown_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate_grpc.watch.PAGE", 1)

    class FailsAtPageTwo(Table):
        broken = True

        async def ask(self, call: Any, timeout_ms: int, origin: str = "") -> Success | Failure:
            if self.broken and call.after:
                return Failure(ErrorKind.NOT_READY, "not now")
            return await super().ask(call, timeout_ms)

    async def run() -> None:
        table = FailsAtPageTwo()
        hub = Hub(table)  # type: ignore[arg-type]
        table.put("a", "old")
        table.put("b", "old")
        with pytest.raises(RefusedError, match="not now"):
            await anext(hub.watch(Filter()))
        table.put("a", None)
        table.broken = False
        shown = await anext(hub.watch(Filter()))
        assert [each.name for each in shown.connectors] == ["b"]
        hub.close()

    asyncio.run(run())
