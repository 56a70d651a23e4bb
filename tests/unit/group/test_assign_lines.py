"""`headgate assign`: fields that a line may leave out, state that stays, and lines that are
refused."""

import json
from typing import Any

import pytest

from headgate_runtime.command.assign import AssignError, assign_lines


def answers(*lines: dict[str, Any], policy: str = "kip415") -> list[dict[str, Any]]:
    return [json.loads(line) for line in assign_lines(policy, map(json.dumps, lines))]


def new(answer: dict[str, Any], member: str) -> list[str]:
    assigned = answer["members"][member]["assigned"]
    return [*assigned["connectors"], *assigned["tasks"]]


CONFIG = {"connectors": {"A": 2, "B": 1}}
W1 = {"connectors": ["A"], "tasks": ["A-0"]}
W3 = {"tasks": ["B-0"]}


def test_the_table_worker_leaves() -> None:
    first, lost, placed = answers(
        {
            "reset": True,
            "max_delay_ms": 500,
            "config": CONFIG,
            "members": {"W1": W1, "W2": {"connectors": ["B"], "tasks": ["A-1"]}, "W3": W3},
        },
        {"members": {"W1": W1, "W3": W3}},
        {"now_ms": 500, "members": {"W1": W1, "W3": W3}},
    )
    nothing = {"connectors": [], "tasks": []}
    assert first["members"]["W2"] == {
        "assigned": nothing,
        "revoked": nothing,
        "delay": 0,
        "error": 0,
    }
    assert {member["delay"] for member in lost["members"].values()} == {500}
    assert (new(placed, "W1"), new(placed, "W3")) == (["B"], ["A-1"])


def test_reset_alone_answers_ok_and_forgets() -> None:
    ok, answer = answers(
        {"reset": True, "max_delay_ms": 0}, {"config": CONFIG, "members": {"W1": {}}}
    )
    assert ok == {"ok": True}
    assert new(answer, "W1") == ["A", "B", "A-0", "A-1", "B-0"]


def test_a_failed_sync_forgets_who_owned_what() -> None:
    _, answer = answers(
        {"config": CONFIG, "members": {"W1": W1, "W2": {}, "W3": W3}},
        {"sync_failed": True, "members": {"W1": W1, "W3": W3}},
    )
    assert {member["delay"] for member in answer["members"].values()} == {0}
    assert new(answer, "W1") and new(answer, "W3")


def test_another_leader_keeps_the_planned_time() -> None:
    *_, waits, placed = answers(
        {"max_delay_ms": 500, "config": CONFIG, "members": {"W1": W1, "W2": {}, "W3": W3}},
        {"members": {"W1": W1, "W3": W3}},
        {"now_ms": 100, "members": {"W3": W3}},
        {"now_ms": 500, "members": {"W3": W3}},
    )
    assert waits["members"]["W3"]["delay"] == 400 and not new(waits, "W3")
    assert new(placed, "W3") == ["A", "B", "A-0", "A-1"]


def test_a_member_ahead_of_the_leader_is_a_mismatch() -> None:
    (answer,) = answers({"config": {**CONFIG, "offset": 4}, "members": {"W1": {"offset": 5}}})
    assert answer["members"]["W1"]["error"] == 1 and not new(answer, "W1")


def test_inconsistent_connectors_have_no_tasks() -> None:
    config = {**CONFIG, "inconsistent": ["A"]}
    (answer,) = answers({"config": config, "members": {"W1": {}}})
    assert new(answer, "W1") == ["A", "B", "B-0"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{nojson", "not JSON (Expecting property name enclosed in double quotes: "),
        ("{nojson", ": {nojson"),
        ("[]", "expected a JSON object"),
        ('{"members":{}}', "at least one member"),
        ('{"members":{"a":{}},"leader":"b"}', "leader 'b' is not a member: a"),
        ('{"members":{"a":{"tasks":["x"]}}}', "'x' names no task"),
        ('{"members":{"a":{"tasks":["x-4294967296"]}}}', "beyond"),
        ('{"members":{"a":{"connectors":"x"}}}', "expected a list of strings"),
        ('{"members":{"a":{}},"config":{"connectors":{"c":-1}}}', "config.connectors.c is -1"),
        ('{"members":{"a":{}},"now_ms":"1"}', "now_ms is '1'"),
        ('{"max_delay_ms":-1}', "expected 0 or more"),
        ('{"reset":1}', "expected true or false"),
    ],
)
def test_a_bad_line_is_named_with_what_was_expected(line: str, says: str) -> None:
    with pytest.raises(AssignError, match="line 1") as caught:
        list(assign_lines("kip415", [line]))
    assert says in str(caught.value)


def test_connect_keeps_the_memory_of_each_leader() -> None:
    """W1 leads, then W3 does, then W1 again: it knows nothing of W2's work, which W3 saw go."""
    w2 = {"connectors": ["B"], "tasks": ["A-1"]}
    all_three = {"W1": W1, "W2": w2, "W3": W3}
    _, waits, other, again = answers(
        {"max_delay_ms": 500, "config": CONFIG, "members": all_three},
        {"members": {"W1": W1, "W3": W3}},
        {"now_ms": 100, "members": {"W1": W1, "W3": W3}, "leader": "W3"},
        {"now_ms": 200, "members": {"W1": W1, "W3": W3}, "last_completed_generation": 2},
        policy="connect",
    )
    assert waits["members"]["W1"]["delay"] == 500
    # A leader without a memory: everything is new, nobody waits.
    assert other["members"]["W3"]["delay"] == 0
    assert (new(other, "W1"), new(other, "W3")) == (["A-1"], ["B"])
    # The first one's delay runs as it was.
    assert again["members"]["W1"]["delay"] == 300


def test_a_memory_of_connect_that_is_not_the_last_round_knows_no_owners() -> None:
    *_, again = answers(
        {"max_delay_ms": 500, "config": CONFIG, "members": {"W1": W1, "W2": {}, "W3": W3}},
        {"members": {"W1": W1, "W3": W3}, "leader": "W3"},
        {"members": {"W1": W1, "W3": W3}},
        policy="connect",
    )
    assert again["members"]["W1"]["delay"] == 0
    assert (new(again, "W1"), new(again, "W3")) == (["A-1"], ["B"])


def test_eager_gives_everybody_all_that_is_its_own() -> None:
    config = {"connectors": {"A": 2, "B": 1}}
    (answer,) = answers({"config": config, "members": {"W2": W1, "W1": {}}}, policy="eager")
    assert new(answer, "W1") == ["A", "A-0", "B-0"] and new(answer, "W2") == ["B", "A-1"]


def test_a_policy_to_come_is_named_as_such() -> None:
    with pytest.raises(AssignError, match="not part of this version; there is connect, eager, kip"):
        list(assign_lines("headgate", []))


def test_no_such_policy() -> None:
    with pytest.raises(AssignError, match="no policy 'fair'; there is connect, eager, kip415"):
        list(assign_lines("fair", []))
