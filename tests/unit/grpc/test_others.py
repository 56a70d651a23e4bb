"""A worker asks the others of its group for their views, each for a short time."""

import asyncio
import threading
import time
from typing import Any

import pytest

from headgate import wire
from headgate.herder.messages import (
    DescribeWorker,
    ErrorKind,
    Failure,
    Result,
    Success,
    TaskView,
    WorkerView,
)
from headgate.ids import State, TaskId
from headgate.ports import TransportError
from headgate_grpc import messages
from headgate_runtime.api import others
from headgate_runtime.api.others import AT_ONCE, LATE, NOT_ASKED, TELLS_NOTHING, Others
from headgate_runtime.api.worker_backend import WorkerBackend

HANGS = TaskView(
    *(TaskId("c", 0), State.RUNNING, 1, 0, False, 0, ""), call="poll", call_since_ms=1_000
)
VIEW = WorkerView(
    *("b:1", "http://b/", "m", "m", 7, 42, True, ()),
    connectors={},
    tasks=(HANGS,),
    rebalances=1,
    now_ms=41_000,
    mark="1.1",
)


class Peers:
    """Answers by url; `asked` has what each was asked with."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[str | None] = []

    def call(self, url: str, call: DescribeWorker, hops: int, timeout_ms: int) -> Result:
        assert hops == 1
        self.asked.append(call.seen)
        answer = self.answers[url]
        found: Result = answer() if callable(answer) else answer
        return found


def fails() -> Result:
    raise TransportError("broken off")


def test_each_tells_of_itself_or_it_is_said_why_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(others, "OTHERS_MS", 300)
    let_go = threading.Event()
    peers = Peers(
        b=Success(wire.plain(VIEW)),
        java=Failure(ErrorKind.NOT_FOUND, "HTTP 404 Not Found"),
        odd=Success({"version": "3.9"}),
        away=Failure(ErrorKind.UNREACHABLE, "no connection"),
        broken=fails,
        hangs=lambda: let_go.wait(20),
    )
    began = time.monotonic()
    found = asyncio.run(Others().views(peers.call, peers.answers))
    assert time.monotonic() - began < 5
    let_go.set()
    view = found.pop("b")
    assert isinstance(view, WorkerView)
    assert view.call_ms(view.tasks[0]) == 40_000
    assert found == {
        "java": TELLS_NOTHING,
        "odd": TELLS_NOTHING,
        "away": "no connection",
        "broken": "broken off",
        "hangs": LATE,
    }


def test_a_worker_tells_what_has_changed_since_it_was_asked() -> None:
    peers = Peers(b=Success(wire.plain(VIEW)))

    async def twice() -> list[WorkerView | str]:
        asking = Others()
        first = await asking.views(peers.call, ["b"])
        changed = {**wire.plain(VIEW), "tasks": [], "since": "1.1", "mark": "1.2"}
        peers.answers["b"] = Success(changed)
        return [first["b"], (await asking.views(peers.call, ["b"]))["b"]]

    first, second = asyncio.run(twice())
    assert peers.asked == ["", "1.1"]
    assert isinstance(first, WorkerView) and isinstance(second, WorkerView)
    assert first.tasks == second.tasks == (HANGS,)


def test_who_asks_at_once_gets_one_answer() -> None:
    def slow() -> Result:
        time.sleep(0.2)
        return Success(wire.plain(VIEW))

    peers = Peers(b=slow)

    async def both() -> Any:
        asking = Others()
        return await asyncio.gather(*(asking.views(peers.call, ["b"]) for _ in range(3)))

    found = asyncio.run(both())
    assert len(peers.asked) == 1
    assert all(isinstance(each["b"], WorkerView) for each in found)


class Silent(Peers):
    """Some of the workers do not answer before `let_go`. `calls` has the urls that were called."""

    def __init__(self, silent: int, **answers: Any) -> None:
        super().__init__(**answers)
        self.let_go = threading.Event()
        self.silent = [f"silent{number:02}" for number in range(silent)]
        self.calls: list[str] = []

    def call(self, url: str, call: DescribeWorker, hops: int, timeout_ms: int) -> Result:
        self.calls.append(url)
        if url in self.silent:
            self.let_go.wait(30)
            raise TransportError("broken off")
        return super().call(url, call, hops, timeout_ms)


def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(others, "BEGIN_MS", 100)
    monkeypatch.setattr(others, "OTHERS_MS", 200)


def test_workers_that_do_not_answer_hold_up_none_that_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(others, "OTHERS_MS", 60_000)
    peers = Silent(3 * AT_ONCE, well=Success(wire.plain(VIEW)))

    async def rounds() -> None:
        asking = Others()
        await asking.views(peers.call, ["well"])
        silent = asyncio.create_task(asking.views(peers.call, [*peers.silent, "well"]))
        while len(peers.calls) < 1 + AT_ONCE:
            await asyncio.sleep(0.01)
        assert isinstance((await asking.views(peers.call, ["well"]))["well"], WorkerView)
        silent.cancel()

    try:
        asyncio.run(rounds())
    finally:
        peers.let_go.set()


def test_one_call_at_a_time_goes_to_a_worker_and_none_that_is_no_longer_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short(monkeypatch)
    peers = Silent(AT_ONCE + 3)

    async def rounds() -> list[Any]:
        asking = Others()
        found = [await asking.views(peers.call, peers.silent) for _ in range(2)]
        asked = list(peers.calls)
        peers.let_go.set()
        while not all(question.result.done() for question in asking._open.values()):
            await asyncio.sleep(0.01)
        assert peers.calls == asked
        return found

    for found in asyncio.run(rounds()):
        late = [url for url in peers.silent if found[url] == LATE]
        assert len(late) == AT_ONCE
        assert {found[url] for url in peers.silent if url not in late} == {NOT_ASKED}
    assert len(peers.calls) == len(set(peers.calls)) == AT_ONCE


def test_each_silent_worker_has_its_turn_so_that_it_is_seen_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short(monkeypatch)
    peers = Silent(3 * AT_ONCE)

    async def rounds() -> None:
        asking = Others()
        for _ in range(4):
            await asking.views(peers.call, peers.silent)
            peers.let_go.set()
            while not all(question.result.done() for question in asking._open.values()):
                await asyncio.sleep(0.01)
            peers.let_go.clear()

    asyncio.run(rounds())
    assert set(peers.calls) == set(peers.silent)


def test_why_a_worker_has_not_answered_is_told_of_the_one_that_is_asked_too() -> None:
    class Rest:
        worker_id, url = "a:1", "http://a:1"

        async def asked(self, call: object, timeout_ms: int, hops: int, origin: str) -> Result:
            raise TimeoutError

    unused: Any = None
    root = {"version": "v", "commit": "c", "kafka_cluster_id": "k"}
    rest: Any = Rest()
    backend = WorkerBackend(rest, root, unused, unused)
    (told,) = messages.cluster(asyncio.run(backend.group(70))).workers
    assert (told.answers, told.worker_id) == (False, "a:1")
    assert "has not answered within 70 ms" in told.unknown
