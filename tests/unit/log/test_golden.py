"""Logs that real Java workers wrote are replayed.

They give the state that their README names and the answers that the workers gave, and they are
written again byte by byte.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.herder.log_records import log_records

from headgate.ids import State, TargetState, TaskId
from headgate.ports import LogRecord
from headgate.topics import config_events as events
from headgate.topics import config_records as records
from headgate.topics import config_reducer as reducer
from headgate.topics import fencing, offsets, status
from headgate.topics.config_state import ConfigState

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


@cache
def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text("utf-8").splitlines()]


def value_of(line: dict[str, Any]) -> bytes | None:
    return None if line["value"] is None else line["value"].encode()


def decoded(line: dict[str, Any]) -> events.ConfigEvent:
    return records.decode(line["offset"], line["key"].encode(), value_of(line))


def state_at(time_ms: int | None = None) -> ConfigState:
    read = [x for x in lines("configs") if time_ms is None or x["timestamp"] <= time_ms]
    return reducer.fold(ConfigState(), map(decoded, read))


def statuses_at(time_ms: int) -> status.StatusView:
    read = sorted(
        (x for x in lines("status") if x["timestamp"] <= time_ms),
        key=lambda x: (x["timestamp"], x["partition"], x["offset"]),
    )
    return status.fold_statuses(
        status.StatusView(), (status.decode_status(x["key"], value_of(x)) for x in read)
    )


def test_ends_in_the_state_that_the_readme_names() -> None:
    state = state_at()
    assert list(state.connector_names()) == []
    assert state.offset == 105
    assert state.rejected_count == 0
    counts = {name: entry.fencing_count for name, entry in state.entries.items()}
    assert counts == {"src": 2, "own-topic": 0, "snk": None}
    assert {name for name, entry in state.entries.items() if entry.fencing_pending} == {"snk"}
    generations = {name: entry.task_generation for name, entry in state.entries.items()}
    assert generations == {"src": 6, "own-topic": 1, "snk": 1}
    assert all(entry.target_state is None for entry in state.entries.values())
    assert all(entry.task_count is None for entry in state.entries.values())
    assert state.session_key is not None
    assert state.session_key.key == bytes(range(32))


def test_task_generations_on_the_way() -> None:
    answers = lines("rest")
    seen = {}
    for step in (1, 3, 7, 12, 21, 50):
        entry = state_at(answers[step]["t"]).entries["src"]
        seen[step] = entry.task_generation
    assert seen == {1: 0, 3: 1, 7: 2, 12: 3, 21: 4, 50: 6}


def test_fencing_on_the_way() -> None:
    answers = lines("rest")
    stopped = fencing.fencing_requirement(state_at(answers[12]["t"]), "src", "golden")
    assert isinstance(stopped, fencing.FenceTasks)
    assert stopped.transactional_ids == ("golden-src-0",)
    assert (stopped.task_count, stopped.task_generation) == (0, 3)
    # Altering the offsets fenced and recorded 0.
    altered = fencing.fencing_requirement(state_at(answers[15]["t"]), "src", "golden")
    assert isinstance(altered, fencing.NothingToFence)


STATUS_STEPS = [
    index
    for index, answer in enumerate(lines("rest"))
    if answer["method"] == "GET" and answer["path"].endswith("/status")
]


def test_there_are_status_answers() -> None:
    assert len(STATUS_STEPS) == 9


@pytest.mark.parametrize("step", STATUS_STEPS)
def test_status_answers(step: int) -> None:
    answer = lines("rest")[step]
    name = answer["path"].split("/")[2]
    shown = statuses_at(answer["t"]).answer(name, "source")
    if answer["status"] == 404:
        assert shown is None
        return
    assert shown == answer["response"]
    state = state_at(answer["t"])
    assert [task["id"] for task in answer["response"]["tasks"]] == [
        task.task for task in state.tasks(name)
    ]
    expected = {
        TargetState.STARTED: State.RUNNING,
        TargetState.PAUSED: State.PAUSED,
        TargetState.STOPPED: State.STOPPED,
    }
    assert answer["response"]["connector"]["state"] == expected[state.target_state(name)]


def test_answers_to_restarts_that_carry_a_status() -> None:
    """A restart with nothing to restart answers the status as it is. One with something shows what
    it is going to restart as RESTARTING before any such record is written: the rest is the same."""
    everything, nothing = lines("rest")[23], lines("rest")[24]
    assert statuses_at(nothing["t"]).answer("src", "source") == nothing["response"]
    shown = statuses_at(everything["t"]).answer("src", "source")
    assert shown is not None
    for part in (shown["connector"], *shown["tasks"]):
        part["state"] = "RESTARTING"
    assert shown == everything["response"]


def test_answers_with_configs_and_tasks() -> None:
    seen = 0
    for answer in lines("rest"):
        if answer["method"] != "GET" or answer["status"] != 200:
            continue
        state = state_at(answer["t"])
        if answer["path"] == "/connectors/src":
            seen += 1
            entry = state.entry("src")
            assert entry is not None
            assert entry.config == answer["response"]["config"]
            shown = [TaskId(x["connector"], x["task"]) for x in answer["response"]["tasks"]]
            assert list(state.tasks("src")) == shown
        if answer["path"] == "/connectors/src/tasks":
            seen += 1
            assert answer["response"] == [] and state.tasks("src") == ()
        if answer["path"].startswith("/connectors?expand"):
            view = statuses_at(answer["t"])
            assert set(answer["response"]) == set(state.connector_names())
            for name, shown in answer["response"].items():
                seen += 1
                entry = state.entry(name)
                assert entry is not None
                assert entry.config == shown["info"]["config"]
                tasks = [TaskId(x["connector"], x["task"]) for x in shown["info"]["tasks"]]
                assert list(state.tasks(name)) == tasks
                assert view.answer(name, shown["status"]["type"]) == shown["status"]
    assert seen == 5


def test_offset_answers() -> None:
    seen = 0
    for answer in lines("rest"):
        if answer["method"] != "GET" or not answer["path"].endswith("/src/offsets"):
            continue
        seen += 1
        table = offsets.fold_offsets(offsets.OffsetTable(), records_until("offsets", answer["t"]))
        shown = [
            {"partition": line.partition, "offset": line.offset}
            for line in offsets.OffsetView(table).partitions("src")
        ]
        assert sorted(shown, key=str) == sorted(answer["response"]["offsets"], key=str)
    assert seen == 3


def records_until(name: str, time_ms: int) -> list[LogRecord]:
    found = [x for x in lines(name) if x["timestamp"] <= time_ms]
    return log_records((x["key"].encode(), value_of(x)) for x in found)


def test_own_topic_comes_first_and_javas_reset_is_undone_by_it() -> None:
    """The reset that hung tombstoned the global topic alone: the own one still has the offset."""
    end = 1 << 62
    shared = offsets.fold_offsets(offsets.OffsetTable(), records_until("offsets", end))
    own = offsets.fold_offsets(offsets.OffsetTable(), records_until("own-offsets", end))
    partition = {"task": 0}
    assert offsets.OffsetView(shared).offset("own-topic", partition) is None
    assert offsets.OffsetView(shared, own).offset("own-topic", partition) == {"n": 77}


def encoded(event: events.ConfigEvent) -> records.Record:
    match event:
        case events.ConnectorConfigured(_, name, config):
            return records.encode_connector(name, config)
        case events.ConnectorRemoved(_, name):
            return records.encode_connector_tombstone(name)
        case events.TaskConfigured(_, name, task, config):
            return records.encode_task(TaskId(name, task), config)
        case events.TasksCommitted(_, name, count):
            return records.encode_commit(name, count)
        case events.TaskCountRecorded(_, name, count):
            return records.encode_task_count(name, count)
        case events.TargetStateChanged(_, name, target):
            return records.encode_target_state(name, target)
        case events.TargetStateRemoved(_, name):
            return records.encode_target_state_tombstone(name)
        case events.SessionKeyChanged(_, key, algorithm, created_ms):
            return records.encode_session_key(key, algorithm, created_ms)
        case events.RestartRequested(_, name, include_tasks, only_failed):
            return records.encode_restart(
                name, include_tasks=include_tasks, only_failed=only_failed
            )
        case events.LoggerLevelChanged(_, logger, level):
            return records.encode_logger_level(logger, level)
        case _:
            raise AssertionError(event)


def test_config_records_are_written_again_to_the_byte() -> None:
    kinds = set()
    for line in lines("configs"):
        event = decoded(line)
        kinds.add(type(event))
        assert encoded(event) == (line["key"], value_of(line))
    assert len(kinds) == 10


def test_offset_records_are_written_again_to_the_byte() -> None:
    for line in lines("offsets") + lines("own-offsets"):
        key = offsets.decode_key(line["key"].encode())
        assert key is not None
        assert offsets.encode_key(key.connector, key.partition) == line["key"].encode()
        value = value_of(line)
        assert offsets.encode_value(offsets.decode_value(value)) == value


def test_status_records_are_written_again_to_the_byte() -> None:
    kinds = set()
    for line in lines("status"):
        event = status.decode_status(line["key"], value_of(line))
        kinds.add(type(event))
        match event:
            case status.ConnectorStatusReported(name, reported):
                again: records.Record = status.encode_connector_status(name, reported)
            case status.TaskStatusReported(task, reported):
                again = status.encode_task_status(task, reported)
            case status.TopicUsed(_, _, activity):
                again = status.encode_topic_activity(activity)
            case status.ConnectorStatusRemoved(name):
                again = (status.connector_key(name), None)
            case status.TaskStatusRemoved(task):
                again = (status.task_key(task), None)
            case status.TopicReset(topic, name):
                again = (status.topic_key(topic, name), None)
            case status.StatusRejected():
                pytest.fail(str(event))
        assert again == (line["key"], value_of(line))
    assert len(kinds) == 6
