"""A worker logs the rounds of its group."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.ids import TaskId
from headgate.membership.member_messages import Assigned
from headgate_runtime.worker import round_log
from headgate_runtime.worker.round_log import RoundLog


def assigned(generation: int, *, failed: bool = False) -> Assigned:
    return Assigned(generation, "headgate", "w-0", "url-0", False, ("a",), (), 5, failed)


@pytest.fixture
def herder() -> Any:
    return SimpleNamespace(assigned=None, disagreement="")


def test_a_round_is_one_line_however_often_it_is_looked_at(
    herder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rounds = RoundLog(herder)
    rounds.look()
    herder.assigned = assigned(1)
    rounds.look()
    rounds.look()
    herder.assigned = assigned(2, failed=True)
    rounds.look()
    herder.assigned = assigned(3)
    rounds.look()
    assert [line.split(",")[0] for line in caplog.messages] == ["generation 1", "generation 3"]
    assert "leader url-0: this worker has 1 connector (a), 0 tasks" in caplog.messages[0]


def test_a_disagreement_is_said_once_in_a_while(
    herder: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [1_000.0]
    monkeypatch.setattr(round_log.time, "monotonic", lambda: now_s[0])
    rounds = RoundLog(herder)
    for words in ("two topics", "two topics", "", "two topics", "three topics", "two topics"):
        herder.disagreement = words
        rounds.look()
    assert [message.split(": ")[1] for message in caplog.messages] == ["two topics", "three topics"]
    now_s[0] += round_log.EVERY_S
    rounds.look()
    assert len(caplog.messages) == 3


def test_a_line_names_what_the_worker_has_as_far_as_it_fits(
    herder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tasks = tuple(TaskId("a", number) for number in range(23))
    herder.assigned = replace(assigned(1), tasks=tasks)
    RoundLog(herder).look()
    (line,) = caplog.messages
    assert "23 tasks (a-0, a-1, " in line
    assert line.endswith("a-18, a-19 and 3 more)")
