"""A worker logs the calls that it gets."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.herder import messages as m
from headgate.ids import TargetState, TaskId
from headgate.ports import IncomingCall
from headgate.task.messages import TaskKind
from headgate_runtime.worker.call_log import LoggedPeers


class Asked:
    """`Peers` that are asked what the test says."""

    def __init__(self) -> None:
        self.calls: list[IncomingCall] = []
        self.answers: dict[str, m.Result] = {}

    def call(self, url: str, call: m.Call, hops: int, timeout_ms: int) -> m.Result:
        raise AssertionError

    def incoming(self) -> Sequence[IncomingCall]:
        calls, self.calls = self.calls, []
        return calls

    def answer(self, call_id: str, result: m.Result) -> None:
        self.answers[call_id] = result


def told(
    call: m.Call,
    result: m.Result,
    caplog: pytest.LogCaptureFixture,
    hops: int = 0,
    origin: str = "",
) -> Any:
    inner = Asked()
    peers = LoggedPeers(inner)
    inner.calls.append(IncomingCall("7", call, hops, 1_000, origin))
    with caplog.at_level(logging.INFO):
        assert len(peers.incoming()) == 1
        peers.answer("7", result)
    assert list(inner.answers) == ["7"]
    return caplog.records


def test_which_target_state_is_asked_for_and_that_it_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = m.SetTargetState("src", TargetState.PAUSED)
    first, second = told(call, m.Success(), caplog)
    assert first.getMessage() == "asked from outside: connector src is to be PAUSED"
    assert second.getMessage().startswith("done in ")
    assert second.getMessage().endswith(" ms: connector src is to be PAUSED")
    assert first.connector == second.connector == "src"


def test_what_is_refused_has_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    refused = m.Failure(m.ErrorKind.NOT_FOUND, "Unknown connector src")
    call = m.SetTargetState("src", TargetState.STOPPED)
    first, second = told(call, refused, caplog, hops=1)
    assert first.getMessage() == "asked by another worker: connector src is to be STOPPED"
    assert second.getMessage().startswith("refused after ")
    assert "connector src is to be STOPPED: Unknown connector src (" in second.getMessage()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (m.CreateConnector("c", {"p": "secret"}, TargetState.PAUSED), "create connector c, PAUSED"),
        (m.PutConnectorConfig("c", {"p": "secret"}), "config of connector c"),
        (m.PatchConnectorConfig("c", {"b": "secret", "a": None}), "change a, b of connector c"),
        (m.DeleteConnector("c"), "delete connector c"),
        (m.RestartConnector("c"), "restart connector c"),
        (m.RestartConnector("c", True, True), "restart connector c and its tasks, what has failed"),
        (m.RestartTask(TaskId("c", 1)), "restart task c-1"),
        (m.PutTaskConfigs("c", ({"p": "secret"},)), "configs of 1 tasks of connector c"),
        (m.FenceConnector("c"), "fence the producers of connector c"),
        (m.ResetOffsets("c"), "reset the offsets of connector c"),
        (m.ResetOffsets("c", dry_run=True), "reset the offsets of connector c, as a dry run"),
        (m.AlterOffsets("c", ()), "change offsets of connector c"),
        (
            m.ResetDeletedOffsets("c", TaskKind.SINK),
            "reset the offsets of deleted connector c",
        ),
        (m.ResetTopics("c"), "forget the topics that connector c has used"),
        (m.SetLoggerLevel("root", "DEBUG"), "level DEBUG for logger root"),
    ],
)
def test_each_call_in_words_and_without_values(
    call: m.Call, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    records = told(call, m.Success(), caplog)
    assert records[0].getMessage() == f"asked from outside: {words}"
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "call",
    [
        m.CreateConnector("c", {"db.password": "hunter2"}),
        m.PutConnectorConfig("c", {"value.converter.basic.auth.user.info": "hunter2"}),
        m.PatchConnectorConfig("c", {"api.token": "hunter2"}),
        m.PutTaskConfigs("c", ({"db.password": "hunter2"},)),
    ],
    ids=lambda call: type(call).__name__,
)
def test_a_refusal_that_repeats_a_secret_is_told_without_it(
    call: m.Call, caplog: pytest.LogCaptureFixture
) -> None:
    refused = m.Failure(m.ErrorKind.BAD_REQUEST, "Invalid value hunter2 for a password")
    records = told(call, refused, caplog)
    assert "Invalid value [hidden] for a password" in records[1].getMessage()
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("call", [m.DescribeWorker(), m.ListConnectors(), m.ForeseeMoves({})])
def test_reads_are_not_told(call: m.Call, caplog: pytest.LogCaptureFixture) -> None:
    assert told(call, m.Success(), caplog) == []


@pytest.mark.parametrize(("hops", "who"), [(0, ""), (1, "by another worker, ")])
def test_by_whom_it_was_asked(caplog: pytest.LogCaptureFixture, hops: int, who: str) -> None:
    call = m.SetTargetState("src", TargetState.PAUSED)
    first, _ = told(call, m.Success(), caplog, hops, "over REST by 127.0.0.1:4321")
    words = "over REST by 127.0.0.1:4321: connector src is to be PAUSED"
    assert first.getMessage() == f"asked {who}{words}"
