"""Calls into connectors that hang appear in the rows of WatchConnectors and of ``connectors
watch``."""

import asyncio
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from support.grpc.worker import grpc_worker

from headgate.herder.messages import Result, ShowConnectors, Success
from headgate.ids import TargetState
from headgate_grpc import watch
from headgate_grpc.hanging import CALLS_MAX, HangingCalls
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1.connector_service_pb2 import WatchConnectorsResponse
from headgate_grpc.watch import Filter, Hub
from headgate_runtime.remote import connectors
from headgate_runtime.remote.over_grpc import GrpcRemote
from headgate_runtime.remote.remote import ConnectorRow
from headgate_runtime.tasks import long_calls


def worker(calls: dict[tuple[str, int], int] | None, now_ms: int = 100_000) -> dict[str, Any]:
    """A worker on which `calls` hang for so long; None: it does not answer."""
    if calls is None:
        return {"worker_id": "w", "view": None}
    tasks = [
        {"task": list(task), "call": "poll", "call_since_ms": now_ms - took_ms}
        for task, took_ms in calls.items()
    ]
    return {"worker_id": "w", "view": {"now_ms": now_ms, "tasks": tasks}}


def row(calls: HangingCalls, name: str = "a") -> list[tuple[int | None, int]]:
    made = connector_pb2.Connector(name=name)
    calls.fill(made)
    return [
        (each.task if each.HasField("task") else None, each.since_ms) for each in made.hanging_calls
    ]


def test_a_call_changes_its_row_when_it_begins_and_when_it_ends() -> None:
    calls = HangingCalls()
    assert calls.take([worker({("a", 0): 40_000})], 1_000_000) == {"a"}
    assert row(calls) == [(0, 960_000)] and not row(calls, "b")
    # Five seconds later, and an answer that was under way for one.
    assert calls.take([worker({("a", 0): 45_000})], 1_006_000) == set()
    assert row(calls) == [(0, 960_000)], "the time since when stays"
    assert calls.take([worker(None)], 1_010_000) == set(), "it is not known, and nothing else is"
    assert calls.take([worker({("a", 0): 31_000})], 1_060_000) == {"a"}, "another call"
    assert row(calls) == [(0, 1_029_000)]
    assert calls.take([worker({})], 1_070_000) == {"a"} and not row(calls)
    calls.take([worker({("a", 0): 40_000})], 1_080_000)
    assert calls.take([], 1_090_000) == {"a"}, "a worker that is gone"


def test_a_row_has_the_oldest_calls_and_the_number_of_the_rest() -> None:
    calls = HangingCalls()
    many = {("a", number): 40_000 + number for number in range(CALLS_MAX + 7)}
    calls.take([worker(many)], 1_000_000)
    made = connector_pb2.Connector(name="a")
    calls.fill(made)
    assert len(made.hanging_calls) == CALLS_MAX and made.hanging_calls_more == 7
    assert made.hanging_calls[0].task == CALLS_MAX + 6
    calls.take([worker({})], 1_010_000)
    calls.fill(made)
    assert made == connector_pb2.Connector(name="a")


class Backend:
    """Has two connectors; calls of tasks hang as the test says."""

    def __init__(self) -> None:
        self.workers = [worker({})]
        self.asked = 0

    async def ask(self, call: ShowConnectors, timeout_ms: int) -> Result:
        names = call.names or ("a", "b")
        rows = [
            {
                "name": name, "type": "sink", "target_state": "STARTED", "task_count": 0,
                "settled": True, "status": None, "etag": 1,
            }
            for name in names
            if name
        ]  # fmt: skip
        return Success({"rows": rows, "more": False, "config_offset": 1})

    async def group(self, timeout_ms: int) -> Any:
        self.asked += 1
        return {"workers": self.workers}

    def watch(self, touched: object) -> None:
        pass


def test_watchers_are_woken_when_a_call_begins_and_ends_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "CALLS_S", 0.01)

    async def watched() -> None:
        backend: Any = Backend()
        hub = Hub(backend)
        stream = hub.watch(Filter())
        while not (await anext(stream)).synced:
            pass
        backend.workers = [worker({("a", 0): 40_000})]
        begun = await anext(stream)
        assert [each.name for each in begun.connectors] == ["a"], "the other one is as it was"
        assert begun.connectors[0].hanging_calls[0].method == "poll"
        waits: asyncio.Task[WatchConnectorsResponse] = asyncio.ensure_future(anext(stream))
        asked = backend.asked
        while backend.asked < asked + 10:
            await asyncio.sleep(0.01)
        assert not waits.done(), "it hangs as it did"
        hub._mark(["a"])  # its state is looked at again, and is the same
        while hub._looks == 0:
            await asyncio.sleep(0.01)
        assert not waits.done(), "a look at the state has forgotten the call"
        resumed = hub.watch(Filter(), begun.cursor)
        assert not (await anext(resumed)).connectors, "what was handled is not sent again"
        await resumed.aclose()
        backend.workers = [worker({})]
        (ended,) = (await waits).connectors
        assert not ended.hanging_calls
        await stream.aclose()
        hub.close()
        await asyncio.sleep(0.05)
        asked = backend.asked
        await asyncio.sleep(0.1)
        assert backend.asked == asked, "nobody watches any more"

    asyncio.run(watched())


def test_a_task_that_hangs_on_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(long_calls, "LONG_S", 0.3)
    monkeypatch.setattr(long_calls, "LOOK_S", 0.05)
    monkeypatch.setattr(watch, "CALLS_S", 0.1)
    go_on = tmp_path / "go-on"
    config = {"connector.class": "support.task.connectors:WaitingSource", "file": str(go_on)}
    with grpc_worker(tmp_path / "state", {"headgate.task.runner": "thread"}) as served:
        remote = GrpcRemote(served.address)
        remote.create("slow", config, TargetState.STARTED)
        rows: Queue[ConnectorRow] = Queue()

        def follow(found: Iterable[tuple[str, ConnectorRow | None]]) -> None:
            for _, shown in found:
                assert shown is not None
                rows.put(shown)
                if go_on.exists() and not shown.hanging_calls:
                    return

        following = threading.Thread(target=follow, args=(remote.watch("", ()),), daemon=True)
        following.start()
        try:
            while not (shown := rows.get(timeout=30)).hanging_calls:
                pass
            (call,) = shown.hanging_calls
            assert (call.task, call.method, call.worker) == (0, "poll", served.rest.worker_id)
            assert shown.tasks[0].state == "RUNNING", "beside the state, never instead of it"

            def first_with_call(*_: object) -> Iterable[tuple[str, ConnectorRow | None]]:
                yield "slow", shown

            monkeypatch.setattr(GrpcRemote, "watch", first_with_call)
            connectors.watch(url=served.address)
            words = r"slow: RUNNING, tasks: 1 RUNNING; slow-0 is in poll since 20\d\d-\S+ \d+:\d+:"
            assert re.search(words, capsys.readouterr().out)
        finally:
            go_on.touch()
        following.join(30)
        assert not following.is_alive(), "a call that has ended leaves its row"
        remote.close()
