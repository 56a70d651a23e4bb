"""Every request that a real Java worker got, and its answer, pass through both translations."""

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.herder import messages as m
from headgate.ids import TargetState, TaskId
from headgate_rest.client_calls import result_of
from headgate_rest.http import HttpRequest, HttpResponse
from headgate_rest.translate import HerderRequest, SetWorkerLogger, SideRequest, respond, understand

LINES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data/golden/rest.jsonl").read_text().splitlines()
]
JAVA = "http://127.0.0.1:21010"
SRC = LINES[0]["body"]["config"]

MEANT: dict[int, m.Call] = {
    0: m.CreateConnector("src", SRC),
    1: m.DescribeStatus("src"),
    2: m.PutConnectorConfig("src", {**SRC, "tasks.max": "3"}),
    6: m.SetTargetState("src", TargetState.PAUSED),
    8: m.SetTargetState("src", TargetState.STARTED),
    11: m.SetTargetState("src", TargetState.STOPPED),
    14: m.ReadOffsets("src"),
    15: m.AlterOffsets("src", (({"task": 0}, {"n": 1000}), ({"task": 1}, None))),
    22: m.RestartConnector("src"),
    23: m.RestartConnector("src", include_tasks=True),
    24: m.RestartConnector("src", include_tasks=True, only_failed=True),
    25: m.RestartTask(TaskId("src", 0)),
    26: m.PatchConnectorConfig("src", {"lab.sleep": "700", "transaction.boundary": None}),
    29: m.ResetTopics("src"),
    33: m.ListConnectors(("status", "info")),
    39: m.CreateConnector("init-stopped", {**SRC, "topic": "g-init"}, TargetState.STOPPED),
    47: m.DeleteConnector("src"),
}


def meant_by(line: dict[str, Any]) -> HerderRequest | SideRequest:
    path, _, query = line["path"].partition("?")
    body = b"" if line["body"] is None else json.dumps(line["body"]).encode()
    return understand(HttpRequest(line["method"], path, query, body))


@pytest.mark.parametrize("step", sorted(MEANT))
def test_the_request_means(step: int) -> None:
    assert meant_by(LINES[step]) == HerderRequest(MEANT[step])


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line['step']}")
def test_the_recorded_answer_is_read_and_given_again(line: dict[str, Any]) -> None:
    asked = meant_by(line)
    if isinstance(asked, SetWorkerLogger):
        assert asked == SetWorkerLogger("org.apache.kafka.connect", "INFO", cluster=True)
        return
    assert isinstance(asked, HerderRequest)
    body = b"" if line["response"] is None else json.dumps(line["response"]).encode()
    result = result_of(asked.call, HttpResponse(line["status"], body))
    answer = respond(asked, result, JAVA)
    assert answer.status == line["status"]
    assert answer.headers.get("Location") == line["location"]
    assert (json.loads(answer.body) if answer.body else None) == line["response"]


def test_what_is_recorded_is_of_many_kinds() -> None:
    assert len(LINES) == 52
    assert {line["status"] for line in LINES} == {200, 201, 202, 204, 400, 404, 500}
