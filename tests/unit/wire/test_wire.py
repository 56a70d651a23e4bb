"""Dataclasses become JSON and are read back."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import wire
from headgate.herder import messages as m
from headgate.ids import State, TargetState, TaskId
from headgate.task.messages import TaskKind, TaskSpec

configs = st.dictionaries(st.text(), st.none() | st.text(), max_size=3)
calls = (
    st.builds(m.CreateConnector, st.text(), configs, st.none() | st.sampled_from(TargetState))
    | st.builds(m.PutTaskConfigs, st.text(), st.lists(configs, max_size=3).map(tuple))
    | st.builds(m.RestartTask, st.builds(TaskId, st.text(), st.integers(0, 9)))
    | st.just(m.DescribeWorker())
)


@given(calls)
def test_a_call_comes_back_equal(call: m.Call) -> None:
    assert wire.loads(m.Call, wire.dumps(call)) == call


OFFSETS = (({"file": "a", "type": "odd"}, {"position": 1}), (None, None))
EVERY_CALL: tuple[m.Call, ...] = (
    m.CreateConnector("c", {"a": None}, TargetState.STOPPED),
    m.PutConnectorConfig("c", {"a": "b"}),
    m.PatchConnectorConfig("c", {"a": "b", "gone": None}),
    m.DeleteConnector("c"),
    m.SetTargetState("c", TargetState.PAUSED),
    m.RestartConnector("c", include_tasks=True, only_failed=True),
    m.RestartTask(TaskId("c", 1)),
    m.PutTaskConfigs("c", ({"a": "b"},), "d1"),
    m.FenceConnector("c"),
    m.DescribeWorker(),
    m.DescribeGroup(),
    m.ListConnectors(("status", "info")),
    m.DescribeConnector("c"),
    m.DescribeTasks("c"),
    m.DescribeStatus("c"),
    m.DescribeTaskStatus(TaskId("c", 1)),
    m.DescribeTopics("c"),
    m.ShowConnector("c", ("config",)),
    m.ShowConnectors(("c",), "c", ("RUNNING",), "b", 10, ("config", "tasks", "topics")),
    m.ForeseeMoves({"c": 2, "gone": None}),
    m.ReadOffsets("c"),
    m.AlterOffsets("c", OFFSETS),
    m.ResetOffsets("c"),
    m.ReadDeletedOffsets("c", TaskKind.SINK),
    m.ResetDeletedOffsets("c", TaskKind.SOURCE, dry_run=True),
    m.ResetTopics("c"),
    m.SetLoggerLevel("org.apache", "Debug"),
)


@pytest.mark.parametrize("call", EVERY_CALL, ids=lambda call: type(call).__name__)
def test_every_kind_of_call_comes_back_equal(call: m.Call) -> None:
    assert wire.loads(m.Call, wire.dumps(call)) == call


def test_no_kind_of_call_was_forgotten() -> None:
    assert {type(call) for call in EVERY_CALL} == set(get_args(m.Call))


def test_the_session_key_is_not_shown() -> None:
    assert "secret" not in repr(m.SessionKeyMade(1, b"secret", 2))


def test_a_result_comes_back_equal() -> None:
    for result in (
        m.Success({"a": [1, None, "x"]}),
        m.Failure(m.ErrorKind.NOT_FOUND, "no such thing"),
    ):
        assert wire.loads(m.Success | m.Failure, wire.dumps(result)) == result


def test_nested_views_come_back_equal() -> None:
    task = m.TaskView(TaskId("c", 1), State.RUNNING, 5, 0, True, 2, "")
    view = m.WorkerView("w", "u", "m", "m", 3, 9, True, (), {"c": State.PAUSED}, (task,), 4)
    assert wire.from_plain(m.WorkerView, json.loads(json.dumps(wire.plain(view)))) == view


def test_a_task_spec_comes_back_equal() -> None:
    spec = TaskSpec(
        run="w/1",
        task=TaskId("c", 0),
        kind=TaskKind.SOURCE,
        connector_config={"a": "b"},
        task_config={},
        target_state=TargetState.PAUSED,
        commit_offset=7,
        exactly_once=True,
        transactional_id="g-c-0",
        group="g",
        member_id="m",
        generation=1,
        worker_id="w",
        worker_settings={},
        transport={"kind": "embedded"},
    )
    assert wire.loads(TaskSpec, wire.dumps(spec)) == spec


def test_unknown_fields_of_a_newer_peer_are_ignored() -> None:
    raw = json.loads(wire.dumps(m.DescribeWorker())) | {"verbose": True}
    assert wire.loads(m.Call, json.dumps(raw).encode()) == m.DescribeWorker()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "not JSON"),
        (b'{"type":"Nonsense"}', "type 'Nonsense', expected one of"),
        (b'{"type":"CreateConnector","name":5,"config":{}}', "CreateConnector.name: 5"),
        (b'{"type":"CreateConnector","config":{}}', "CreateConnector without name"),
        (b'{"type":"RestartTask","task":{"connector":"c","task":true}}', "True, expected int"),
    ],
)
def test_what_is_malformed_is_said(data: bytes, says: str) -> None:
    with pytest.raises(wire.WireError, match=says):
        wire.loads(m.Call, data)
