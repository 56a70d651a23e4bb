"""The restart policy: its delays, the configs that it reads, and the events that it survives."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.connector.restart_policy import RestartPolicy, restart_errors, restart_policy
from headgate.ids import State, TaskId
from headgate.topics.status import Status, TaskStatusReported, decode_status, encode_task_status


def test_waits_grow_and_are_capped() -> None:
    policy = RestartPolicy(restarts_max=10, backoff_max_ms=25_000)
    waits = [policy.delay_ms(done, "any") for done in range(11)]
    assert waits == [2_000, 6_000, 12_000, 20_000, *[25_000] * 6, None]


def test_without_a_budget_what_failed_stays_failed() -> None:
    policy = RestartPolicy()
    assert policy.delay_ms(0, "any") is None
    assert policy.announced("trace", 0, None) == "trace"


@given(st.integers(0, 50), st.integers(0, 10_000), st.integers(0, 10**7), st.integers(0, 60))
def test_a_wait_is_never_longer_than_the_longest(
    budget: int, unit_ms: int, most_ms: int, done: int
) -> None:
    wait = RestartPolicy(budget, unit_ms, most_ms).delay_ms(done, "any")
    assert wait is None if done >= budget else wait is not None and 0 <= wait <= most_ms


def test_a_connectors_keys_win_over_the_workers_and_bad_ones_do_not_count() -> None:
    default = RestartPolicy(3, 1_000)
    config = {"headgate.restart.max": " 7 ", "headgate.restart.backoff.ms": "soon"}
    assert restart_policy(config, default) == RestartPolicy(7, 1_000)
    assert restart_policy({"headgate.restart.errors": "a, b,"}, default).errors == ("a", "b")
    assert restart_policy({"headgate.restart.max": None}, default) is default


@pytest.mark.parametrize("value", ["soon", "-1", "1.5"])
def test_a_bad_value_is_refused_by_its_key(value: str) -> None:
    wrong = restart_errors({"headgate.restart.quiet.ms": value})
    assert list(wrong) == ["headgate.restart.quiet.ms"]
    assert value in wrong["headgate.restart.quiet.ms"]


def test_the_count_travels_in_the_status_and_is_left_out_when_it_is_zero() -> None:
    task = TaskId("c", 0)
    key, value = encode_task_status(task, Status(State.FAILED, "w:1", 4, "trace", None, 2))
    event = decode_status(key, value)
    assert isinstance(event, TaskStatusReported) and event.status.restarts == 2
    assert "restarts" not in json.loads(encode_task_status(task, Status(State.RUNNING, "w", 1))[1])


@pytest.mark.parametrize("restarts", ["2", -3, None, True, 2.5, [1]])
def test_a_count_that_is_none_is_taken_for_zero(restarts: object) -> None:
    value = json.dumps({"state": "FAILED", "generation": 1, "restarts": restarts}).encode()
    event = decode_status("status-task-c-0", value)
    assert isinstance(event, TaskStatusReported) and event.status.restarts == 0
