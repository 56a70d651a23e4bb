"""What a worker tells of the others of its group: each is asked, for a short time."""

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
from headgate_runtime.api import others
from headgate_runtime.api.others import LATE, TELLS_NOTHING, Others

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
