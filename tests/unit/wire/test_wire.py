"""Dataclasses to JSON and back."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import wire
from headgate.herder.messages import (
    AlterOffsets,
    Call,
    CreateConnector,
    DeleteConnector,
    DescribeConnector,
    DescribeStatus,
    DescribeTasks,
    DescribeTaskStatus,
    DescribeTopics,
    DescribeWorker,
    ErrorKind,
    Failure,
    FenceConnector,
    ListConnectors,
    PatchConnectorConfig,
    PutConnectorConfig,
    PutTaskConfigs,
    ReadOffsets,
    ResetOffsets,
    ResetTopics,
    RestartConnector,
    RestartTask,
    SessionKeyMade,
    SetLoggerLevel,
    SetTargetState,
    Success,
    TaskView,
    WorkerView,
)
from headgate.ids import State, TargetState, TaskId
from headgate.task.messages import TaskKind, TaskSpec

configs = st.dictionaries(st.text(), st.none() | st.text(), max_size=3)
calls = (
    st.builds(CreateConnector, st.text(), configs, st.none() | st.sampled_from(TargetState))
    | st.builds(PutTaskConfigs, st.text(), st.lists(configs, max_size=3).map(tuple))
    | st.builds(RestartTask, st.builds(TaskId, st.text(), st.integers(0, 9)))
    | st.just(DescribeWorker())
)


@given(calls)
def test_a_call_comes_back_equal(call: Call) -> None:
    assert wire.loads(Call, wire.dumps(call)) == call


OFFSETS = (({"file": "a", "type": "odd"}, {"position": 1}), (None, None))
EVERY_CALL: tuple[Call, ...] = (
    CreateConnector("c", {"a": None}, TargetState.STOPPED),
    PutConnectorConfig("c", {"a": "b"}),
    PatchConnectorConfig("c", {"a": "b", "gone": None}),
    DeleteConnector("c"),
    SetTargetState("c", TargetState.PAUSED),
    RestartConnector("c", include_tasks=True, only_failed=True),
    RestartTask(TaskId("c", 1)),
    PutTaskConfigs("c", ({"a": "b"},), "d1"),
    FenceConnector("c"),
    DescribeWorker(),
    ListConnectors(("status", "info")),
    DescribeConnector("c"),
    DescribeTasks("c"),
    DescribeStatus("c"),
    DescribeTaskStatus(TaskId("c", 1)),
    DescribeTopics("c"),
    ReadOffsets("c"),
    AlterOffsets("c", OFFSETS),
    ResetOffsets("c"),
    ResetTopics("c"),
    SetLoggerLevel("org.apache", "Debug"),
)


@pytest.mark.parametrize("call", EVERY_CALL, ids=lambda call: type(call).__name__)
def test_every_kind_of_call_comes_back_equal(call: Call) -> None:
    assert wire.loads(Call, wire.dumps(call)) == call


def test_no_kind_of_call_was_forgotten() -> None:
    assert {type(call) for call in EVERY_CALL} == set(get_args(Call))


def test_the_session_key_is_not_shown() -> None:
    assert "secret" not in repr(SessionKeyMade(1, b"secret", 2))


def test_a_result_comes_back_equal() -> None:
    for result in (Success({"a": [1, None, "x"]}), Failure(ErrorKind.NOT_FOUND, "no such thing")):
        assert wire.loads(Success | Failure, wire.dumps(result)) == result


def test_nested_views_come_back_equal() -> None:
    task = TaskView(TaskId("c", 1), State.RUNNING, 5, 0, True, 2, "")
    view = WorkerView("w", "u", "m", "m", 3, 9, True, (), {"c": State.PAUSED}, (task,), 4)
    assert wire.from_plain(WorkerView, json.loads(json.dumps(wire.plain(view)))) == view


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
    raw = json.loads(wire.dumps(DescribeWorker())) | {"verbose": True}
    assert wire.loads(Call, json.dumps(raw).encode()) == DescribeWorker()


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
        wire.loads(Call, data)
