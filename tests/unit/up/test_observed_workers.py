"""An observer keeps the views of workers that send only their changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from support.calls import counted

from headgate import wire
from headgate.herder import messages as m
from headgate.ids import State, TargetState, TaskId
from headgate.ports import TransportError
from headgate.topics.config_records import (
    encode_connector,
    encode_connector_tombstone,
    encode_target_state,
)
from headgate.topics.status import Status, encode_task_status
from headgate_embedded.transport import open_transport, transport_settings
from headgate_runtime.up import command
from headgate_runtime.up.changes import changes
from headgate_runtime.up.command import UpOptions
from headgate_runtime.up.idle import Outcome, Verdict
from headgate_runtime.up.observe import Observer
from headgate_runtime.up.snapshot import ConnectorSnapshot, Phase, Snapshot, WorkerSnapshot

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
    """A worker of an earlier release has no marks."""
    observer, peers = observed(view(task(A)), view(task(B)))
    observer.describe([URL])
    ((last,),) = [observer.describe([URL])]
    assert [each.task for each in last.tasks] == [B]
    assert [call.seen for call in peers.asked] == ["", ""]


def test_a_source_is_looked_at_again_once_the_log_says_something_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = open_transport(transport_settings(tmp_path))
    observer = Observer(transport, {})
    sink = {"topics": "t"}
    source = {"connector.class": "unknown.Source"}
    referring = {"connector.class": "${env:UNKNOWN_CLASS}"}
    for name, config in (("a", source), ("b", source), ("r", referring), ("s", sink)):
        transport.config_log.append([encode_connector(name, config)], privileged=False)
    looked_at: list[str] = []
    look = Observer._connector

    def noted(observer: Observer, name: str) -> ConnectorSnapshot:
        looked_at.append(name)
        return look(observer, name)

    def looks() -> list[str]:
        looked_at.clear()
        seen = observer.read()
        assert [one.name for one in seen.connectors] == list(observer.state.connector_names())
        return looked_at

    monkeypatch.setattr(Observer, "_connector", noted)
    assert looks() == ["a", "b", "r", "s"]
    assert looks() == ["r", "s"], "their topics, or what they refer to, may be others"
    paused = encode_target_state("b", TargetState.PAUSED)
    transport.config_log.append([paused], privileged=False)
    assert looks() == ["b", "r", "s"]
    assert observer.read().connectors[1].target_state is TargetState.PAUSED
    transport.config_log.append([encode_connector_tombstone("a")], privileged=False)
    looks()
    assert set(observer._shown) == {"b"}
    observer.close()
    transport.close()


def test_failures_are_looked_for_once_a_status_was_read(tmp_path: Path) -> None:
    transport = open_transport(transport_settings(tmp_path))
    observer = Observer(transport, {})
    failed = Status(State.FAILED, "w", 1, "boom", None, 0, 1)
    first = observer.read().failures
    assert observer.read().failures is first
    key, value = encode_task_status(A, failed)
    transport.status_log.append([(key.encode(), value)])
    assert observer.read().failures == {"a-0": "boom"}
    observer.close()
    transport.close()


def test_changes_of_what_is_the_same_cost_nothing() -> None:
    """Counted in calls of Python functions, with few and with many tasks beside what changed."""

    def calls_of(count: int) -> tuple[int, list[str]]:
        known = m.ViewOfWorker()
        first = known.take(view(*(task(TaskId("a", n)) for n in range(count)), mark="1"))
        other = replace(task(A), state=State.PAUSED)
        second = known.take(view(other, mark="2", since="1", connectors={}))
        looks = [_snapshot(first), _snapshot(second), _snapshot(known.take(_same(second)))]
        assert changes(looks[1], looks[2]) == []
        calls, told = counted(lambda: changes(looks[1], looks[2]))
        assert told == []
        return calls, changes(looks[0], looks[1])

    few, many = calls_of(3), calls_of(500)
    assert few[0] == many[0]
    assert few[1] == many[1] == ["task a-0 PAUSED on w"]


def _same(view: m.WorkerView) -> m.WorkerView:
    return replace(view, tasks=(), connectors={}, mark="3", since="2")


def _snapshot(view: m.WorkerView) -> Snapshot:
    return Snapshot(0.0, (WorkerSnapshot("w", Phase.UP, 1, view, view),), (), 1)


@pytest.mark.parametrize("until_idle", [False, True])
def test_whether_all_is_idle_is_looked_at_where_that_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, until_idle: bool
) -> None:
    """And what the picture shows where one was asked for: both look at all tasks."""
    looked: list[str] = []
    verdict = Verdict(Outcome.IDLE, ())
    monkeypatch.setattr(command, "idle_verdict", lambda *_: looked.append("idle") or verdict)
    up: Any = MagicMock()
    up._options = UpOptions(until_idle=until_idle, timeline=tmp_path if until_idle else None)
    up.timeline.observe = lambda *_: looked.append("picture")
    up._look.return_value = _snapshot(view(task(A)))
    up._snapshot, up._disk.look.return_value, up._held.ended.return_value = None, "", False
    assert command.Up._beat(up) is (verdict if until_idle else None)
    assert looked == (["picture", "idle"] if until_idle else [])
