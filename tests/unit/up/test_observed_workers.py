"""What an observer knows of workers that tell it only what has changed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headgate import wire
from headgate.herder import messages as m
from headgate.ids import State, TaskId
from headgate.ports import TransportError
from headgate_embedded.transport import open_transport, transport_settings
from headgate_runtime.up.observe import Observer

URL = "embedded:w"
A, B = TaskId("a", 0), TaskId("b", 0)


def task(one: TaskId, records: int = 0) -> m.TaskView:
    return m.TaskView(one, State.RUNNING, records, 0, True, 0, "")


def view(*tasks: m.TaskView, **changes: Any) -> m.WorkerView:
    running = {each.task.connector: State.RUNNING for each in tasks}
    return replace(m.WorkerView("w", URL, "w", "w", 1, 1, True, (), running, tasks, 1), **changes)


class Peers:
    """Answers as it is told to, in order."""

    def __init__(self, *answers: m.WorkerView | None) -> None:
        self.answers = list(answers)
        self.asked: list[object] = []

    def call(self, url: str, call: m.Call, hops: int, timeout_ms: int) -> m.Result:
        self.asked.append(call)
        answer = self.answers.pop(0)
        if answer is None:
            raise TransportError("no answer")
        return m.Success(wire.plain(answer))


@pytest.fixture
def observed(tmp_path: Path) -> Any:
    made: list[Any] = []

    def observer(*answers: m.WorkerView | None) -> tuple[Observer, Peers]:
        transport, peers = open_transport(transport_settings(tmp_path)), Peers(*answers)
        transport.peers = peers  # type: ignore[assignment]
        made.extend((Observer(transport, {}), transport))
        return made[-2], peers

    yield observer
    for each in made:
        each.close()


def test_it_asks_for_what_has_changed_and_shows_all(observed: Any) -> None:
    observer, peers = observed(
        view(task(A), task(B), mark="1"),
        view(task(B, 5), mark="2", since="1", connectors={}),
        None,
        view(mark="3", since="2", gone_connectors=("a",), gone_tasks=(A,)),
        view(task(A), mark="x"),
    )
    looks = [observer.describe([URL]) for _ in range(5)]
    assert [call.seen for call in peers.asked] == ["", "1", "2", "2", "3"]
    shown = [[(each.task, each.records) for each in one.tasks] for (one,) in looks if one]
    assert shown == [[(A, 0), (B, 0)], [(A, 0), (B, 5)], [(B, 5)], [(A, 0)]]
    assert looks[2] == [None]
    assert [dict(one.connectors) for (one,) in looks if one] == [
        {"a": State.RUNNING, "b": State.RUNNING},
        {"a": State.RUNNING, "b": State.RUNNING},
        {"b": State.RUNNING},
        {"a": State.RUNNING},
    ]


def test_it_counts_what_was_told(observed: Any) -> None:
    observer, _ = observed(
        view(task(A), task(B), mark="1"), view(task(B), mark="2", since="1", connectors={})
    )
    observer.describe([URL])
    assert observer.told([URL]) == 4
    observer.describe([URL])
    assert observer.told([URL]) == 1


def test_a_worker_that_tells_all_each_time_is_asked_for_all(observed: Any) -> None:
    """One of an earlier release has no marks."""
    observer, peers = observed(view(task(A)), view(task(B)))
    observer.describe([URL])
    ((last,),) = [observer.describe([URL])]
    assert [each.task for each in last.tasks] == [B]
    assert [call.seen for call in peers.asked] == ["", ""]
