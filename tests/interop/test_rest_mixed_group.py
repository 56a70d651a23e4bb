"""A Java worker and a Headgate worker are in one group. Either takes a call, and the leader
executes it. Calls between them go both ways, and the internal ones are signed."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands.worker import HeadgateWorker
from support.depth import first
from support.java.mixed_group import MixedGroup, asked
from support.kafka.broker import Found
from support.kafka.cluster import read_committed

from local_kafka.java_connect import JavaWorker, Rest

pytestmark = pytest.mark.slow

SETTINGS = {
    "scheduled.rebalance.max.delay.ms": "0",
    "exactly.once.source.support": "enabled",
}


def life_of_a_connector(
    group: MixedGroup, follower: Rest, leader: Rest, name: str, config: dict[str, str]
) -> None:
    """The follower is asked all that only the leader does."""
    connector, task = f"status-connector-{name}", f"status-task-{name}-0"
    created = asked(follower, "POST", "/connectors", {"name": name, "config": config})
    assert (created.status, created.body["name"]) == (201, name)
    assert asked(follower, "POST", "/connectors", {"name": name, "config": config}).status == 409
    for rest in (follower, leader):
        rest.await_tasks(name, ["RUNNING"])
    with group.runs_anew(task):
        put = asked(follower, "PUT", f"/connectors/{name}/config", {**config, "batch.size": "7"})
        assert (put.status, put.body["config"]["batch.size"]) == (200, "7")
    with group.runs_anew(task):
        patched = asked(follower, "PATCH", f"/connectors/{name}/config", {"batch.size": None})
        assert (patched.status, "batch.size" in patched.body["config"]) == (200, False)
    invalid = asked(follower, "PATCH", f"/connectors/{name}/config", {"tasks.max": "0"})
    assert invalid.status == 400
    with group.runs_anew(connector):
        assert asked(follower, "POST", f"/connectors/{name}/restart").status == 204
    with group.runs_anew(task):
        assert asked(follower, "POST", f"/connectors/{name}/tasks/0/restart").status == 204
    with group.runs_anew(connector), group.runs_anew(task):
        planned = asked(follower, "POST", f"/connectors/{name}/restart?includeTasks=true")
        assert (planned.status, planned.body["connector"]["state"]) == (202, "RESTARTING")
    follower.await_tasks(name, ["RUNNING"])
    assert asked(follower, "PUT", f"/connectors/{name}/pause").status == 202
    leader.await_tasks(name, ["PAUSED"])
    assert asked(leader, "PUT", f"/connectors/{name}/resume").status == 202
    follower.await_tasks(name, ["RUNNING"])
    assert asked(follower, "PUT", f"/connectors/{name}/stop").status == 204
    leader.await_tasks(name, [])
    line = {"partition": {"filename": config["file"]}, "offset": {"position": 3}}
    altered = asked(follower, "PATCH", f"/connectors/{name}/offsets", {"offsets": [line]})
    assert altered.status == 200, altered
    assert asked(leader, "GET", f"/connectors/{name}/offsets").body == {"offsets": [line]}
    assert asked(follower, "DELETE", f"/connectors/{name}/offsets").status == 200
    assert asked(follower, "DELETE", f"/connectors/{name}").status == 204
    assert asked(follower, "DELETE", f"/connectors/{name}").status == 404


@pytest.mark.parametrize("java_leads", first(1, [True, False]))
@pytest.mark.exhaustive
def test_either_worker_is_asked(
    java_leads: bool,
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
    tmp_path: Path,
) -> None:
    """The first of a group leads it."""
    file = tmp_path / "in.txt"
    file.write_text("")
    makes: list[Callable[..., Any]] = [java_worker, headgate_worker]
    leader, follower = (
        make(kafka_broker.address, kafka_name, SETTINGS)
        for make in (makes if java_leads else reversed(makes))
    )
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(file),
        "topic": f"{kafka_name}-data",
        "tasks.max": "1",
    }
    with contextlib.closing(MixedGroup(kafka_broker.address, kafka_name)) as group:
        for n in range(2):
            life_of_a_connector(group, follower.rest, leader.rest, f"c{n}", config)


def written(rest: Rest, name: str) -> str | None:
    """Return the task config that the connector's owner sent to the leader.

    It is None while there is none, or while Java answers with an error because it expects a
    rebalance.
    """
    body: Any = rest.get(f"/connectors/{name}/tasks").body
    return body[0]["config"].get("batch.size") if isinstance(body, list) and body else None


@pytest.mark.exhaustive
@pytest.mark.parametrize("java_leads", [True, False])
def test_the_session_key_is_changed_while_both_use_it(
    java_leads: bool,
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
    tmp_path: Path,
) -> None:
    """The leader, of either kind, makes a new key every few seconds, and accepts what the other
    worker signs with it."""
    settings = {**SETTINGS, "inter.worker.key.ttl.ms": "4000"}
    makes: list[Callable[..., Any]] = [java_worker, headgate_worker]
    leader, follower = (
        make(kafka_broker.address, kafka_name, settings)
        for make in (makes if java_leads else reversed(makes))
    )
    (tmp_path / "in.txt").write_text("")
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "file": str(tmp_path / "in.txt"),
        "topic": f"{kafka_name}-data",
        "tasks.max": "1",
    }
    # Each has some: the follower's task configs go to the leader, signed.
    names = [f"c{n}" for n in range(4)]
    for name in names:
        assert asked(leader.rest, "POST", "/connectors", {"name": name, "config": config})
        follower.rest.await_tasks(name, ["RUNNING"])
    keys: set[str] = set()
    until = time.monotonic() + 120
    turn = 0
    while len(keys) < 3:
        assert time.monotonic() < until, f"{len(keys)} session keys"
        turn += 1
        for name in names:
            put = asked(
                follower.rest,
                "PUT",
                f"/connectors/{name}/config",
                {**config, "batch.size": str(turn)},
            )
            assert put.status == 200
            while written(follower.rest, name) != str(turn):
                assert time.monotonic() < until, f"{name} has the task configs of before"
                time.sleep(0.05)
        records = read_committed(kafka_broker.address, f"{kafka_name}-configs")
        keys |= {str(value) for key, value in records if key == b"session-key"}


@pytest.mark.exhaustive
def test_a_turn_of_the_key_fails_no_task_of_a_java_follower(
    kafka_broker: Found,
    kafka_name: str,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
    tmp_path: Path,
) -> None:
    """Java asks for fencing once, signed with the key that it read last. While it restarts
    connectors it reads no key, and each task that waits for fencing holds that up for 5 s."""
    settings = {**SETTINGS, "inter.worker.key.ttl.ms": "50"}
    leader = headgate_worker(kafka_broker.address, kafka_name, settings)
    follower = java_worker(kafka_broker.address, kafka_name, settings)
    (tmp_path / "in.txt").write_text("")
    names = [f"c{n}" for n in range(4)]
    for name in names:
        config = {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(tmp_path / "in.txt"),
            "topic": f"{kafka_name}-data",
            "tasks.max": "1",
        }
        asked(leader.rest, "POST", "/connectors", {"name": name, "config": config})
    for name in names:
        leader.rest.await_tasks(name, ["RUNNING"])
    of_java = 0
    for _ in range(12):
        for name in names:
            asked(leader.rest, "POST", f"/connectors/{name}/restart?includeTasks=true")
        for name in names:
            until = time.monotonic() + 60
            while (task := leader.rest.call("GET", f"/connectors/{name}/status").body["tasks"][0])[
                "state"
            ] != "RUNNING":
                assert task["state"] != "FAILED", task["trace"]
                assert time.monotonic() < until, task
                time.sleep(0.02)
            of_java += task["worker_id"] in follower.url
    assert of_java >= 12, "fences that Java asked for"
