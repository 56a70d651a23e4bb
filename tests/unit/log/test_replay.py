"""``headgate replay``: lines in, the final state as plain data out."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from headgate_runtime.command.replay import ReplayInputError, replay

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "configs.jsonl"


def line(offset: int, key: str, value: str | None, **more: Any) -> str:
    return json.dumps({"offset": offset, "key": key, "value": value, **more}) + "\n"


@pytest.mark.parametrize("parse", [None, orjson.loads])
def test_the_golden_log(parse: Any) -> None:
    with GOLDEN.open(encoding="utf-8") as lines:
        state = replay(lines, parse)
    assert state == {
        "offset": 105,
        "connectors": {},
        "fencing": {
            "own-topic": {"pending": False, "count": 0},
            "snk": {"pending": True, "count": None},
            "src": {"pending": False, "count": 2},
        },
        "session_key": True,
        "rejected": [],
        "rejected_count": 0,
    }


def test_a_connector_with_tasks_and_one_that_is_inconsistent() -> None:
    state = replay(
        [
            line(0, "connector-b", '{"properties":{"x":"1"}}', partition=0, timestamp=1),
            line(1, "task-b-1", '{"properties":{"n":"1"}}'),
            "\n",
            line(2, "task-b-0", '{"properties":{"n":"0"}}'),
            line(5, "commit-b", '{"tasks":2}'),
            line(6, "tasks-fencing-b", '{"task-count":2}'),
            line(7, "connector-a", '{"properties":{}}'),
            line(8, "commit-a", '{"tasks":3}'),
            line(9, "target-state-a", '{"state":"PAUSED","state.v2":"STOPPED"}'),
            line(10, "commit-a", "{"),
        ]
    )
    assert json.loads(json.dumps(state)) == {
        "offset": 10,
        "connectors": {
            "a": {
                "config": {},
                "target_state": "STOPPED",
                "task_count": 3,
                "tasks": {},
                "inconsistent": True,
                "fencing": {"pending": True, "count": None},
            },
            "b": {
                "config": {"x": "1"},
                "target_state": "STARTED",
                "task_count": 2,
                "tasks": {"0": {"n": "0"}, "1": {"n": "1"}},
                "inconsistent": False,
                "fencing": {"pending": False, "count": 2},
            },
        },
        "fencing": {
            "a": {"pending": True, "count": None},
            "b": {"pending": False, "count": 2},
        },
        "session_key": False,
        "rejected": [
            {
                "offset": 10,
                "key": "commit-a",
                "reason": "not JSON at byte 1: expected a name in double quotes",
            }
        ],
        "rejected_count": 1,
    }


def test_an_empty_log() -> None:
    assert replay([])["offset"] == -1


def test_only_the_last_refusals_are_shown() -> None:
    state = replay(line(n, "nobody", "{}") for n in range(12_000))
    assert state["rejected_count"] == 12_000
    assert [event["offset"] for event in state["rejected"]] == list(range(11_900, 12_000))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{"], "line 1: not JSON"),
        (["[" * 100_000], "line 1: not JSON"),
        (["\n", "[1]"], "line 2: [1], expected an object"),
        (['{"key":"a","value":null}'], "line 1: 'offset' is None"),
        (['{"offset":-1,"key":"a","value":null}'], "'offset' is -1"),
        (['{"offset":true,"key":"a","value":null}'], "'offset' is True"),
        (['{"offset":0,"key":"a"}'], "line 1: no 'value'"),
        (['{"offset":0,"key":"a","value":{}}'], "'value' is {}, expected a string or null"),
        ([line(3, "a", None), line(3, "a", None)], "line 2: offset 3 after 3"),
    ],
)
def test_bad_lines_are_named(lines: list[str], says: str) -> None:
    with pytest.raises(ReplayInputError) as caught:
        replay(lines)
    assert says in str(caught.value)
