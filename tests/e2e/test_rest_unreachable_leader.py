"""When a leader's advertised address is wrong, the caller, the log and the commands say so."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.rest.worker import rest_worker
from support.rest.world import LOCAL, wait_until

from headgate_runtime.observe.members import findings

pytestmark = pytest.mark.slow
GROUP = {"scheduled.rebalance.max.delay.ms": "0"}
ADVICE = "check its rest.advertised.host.name"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"rest.advertised.host.name": "leader.invalid"}, "[Errno -"),
        pytest.param(
            {"rest.advertised.port": "1"}, "Connection refused", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_change_through_a_follower_is_told_the_leaders_address_within_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: Mapping[str, str], reason: str
) -> None:
    """Once the answer took 90 s and was 409, a conflicting operation. No log said anything."""
    data, config = tmp_path / "data", {"connector.class": "FileStreamSource", "topic": "t"}
    with (
        rest_worker(data, GROUP, rest={**LOCAL, **wrong}) as leader,
        rest_worker(data, GROUP) as follower,
        httpx.Client(base_url=follower.url, timeout=60, trust_env=False) as client,
    ):
        wait_until(lambda: follows(client.get("/headgate/worker").json()), 20)
        caplog.set_level(logging.WARNING, "headgate_rest.peer")
        begun = time.monotonic()
        answer = client.put("/connectors/c/config", json={**config, "file": "f"})
        assert time.monotonic() - begun < 10
        assert answer.status_code == 503
        text = answer.json()["message"]
        assert f"The leader at {leader.url} could not be reached: " in text
        assert reason in text
        assert ADVICE in text
        assert answer.headers["retry-after"] == "1"
    told = [record.getMessage() for record in caplog.records if record.name == "headgate_rest.peer"]
    assert len(told) == 1, told
    assert f"{leader.url} could not be reached: " in told[0]


def follows(view: Mapping[str, Any]) -> bool:
    return view["leader"] not in ("", None, view["member_id"])


def test_members_that_answer_nothing_are_found_from_outside(tmp_path: Path) -> None:
    with rest_worker(tmp_path / "data", GROUP) as worker:
        members = [
            {"name": "near", "url": worker.url},
            {"name": "lost", "url": "http://lost.invalid:8083/"},
            {"name": "odd", "url": "http://odd:x/"},
            {"name": "unseen", "url": None},
        ]
        found = findings(LOCAL, {"leader": "lost", "members": members})
    assert [line.split(": ")[0] for line in found] == ["leader lost", "member odd"]
    assert "http://lost.invalid:8083/ could not be reached from here: [Errno" in found[0]
    assert "no address" in found[1]
