"""PlanConnectors on two real workers, and ``headgate connectors diff`` on top of it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until
from typer.testing import CliRunner

from headgate_grpc.client import HeadgateError
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb
from headgate_runtime.command.parser import app
from headgate_runtime.remote.over_rest import RestRemote

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
SECRET = "the-secret-of-the-test"
QUICK = {"heartbeat.interval.ms": "500", "scheduled.rebalance.max.delay.ms": "0"}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """The leader, and another worker of its group; connectors `kept`, `changed` and `gone`."""
    folder = tmp_path_factory.mktemp("plan")
    with ExitStack() as stack:
        both = [stack.enter_context(grpc_worker(folder, QUICK)) for _ in range(2)]
        wait_until(lambda: sum(each.worker.herder.leads for each in both) == 1, 20)
        for name in ("kept", "changed", "gone"):
            both[0].client.create(name, {**SINK, "tasks.max": "2"})
        for name in ("kept", "changed", "gone"):
            both[0].client.wait(name)
        wait_until(lambda: all(each.worker.herder.view().settled for each in both), 20)
        leader, other = sorted(both, key=lambda each: not each.worker.herder.leads)
        yield leader, other


def planned(name: str, state: Any = 0, **config: str) -> pb.PlannedConnector:
    return pb.PlannedConnector(
        name=name, config={**SINK, "tasks.max": "2", **config}, target_state=state
    )


def offsets(two: tuple[Served, Served]) -> list[int]:
    return [each.worker.herder.state.offset for each in two]


@pytest.mark.parametrize("asked", [0, 1])
def test_a_plan_tells_what_would_be_done_and_does_nothing(
    two: tuple[Served, Served], asked: int
) -> None:
    client, before = two[asked].client, offsets(two)
    found = client.plan(
        [
            planned("new", topics="a"),
            planned("changed", topics="b", extra="x"),
            planned("kept"),
        ],
        prune=connector_pb2.ConnectorFilter(),
    )
    actions = [(each.name, each.action) for each in found.changes]
    assert actions == [
        ("changed", pb.PLANNED_ACTION_CHANGE_CONFIG),
        ("gone", pb.PLANNED_ACTION_DELETE),
        ("new", pb.PLANNED_ACTION_CREATE),
    ]
    changed, gone, new = found.changes
    assert [(each.key, each.before, each.after) for each in changed.differences] == [
        ("extra", "", "x"),
        ("topics", "t", "b"),
    ]
    assert [each.HasField("before") for each in changed.differences] == [False, True]
    assert changed.etag == client.get("changed").etag and gone.etag and not new.etag
    assert not any(each.faults for each in found.changes)
    assert gone.target_state_before == connector_pb2.TARGET_STATE_STARTED
    assert not gone.target_state_after and not gone.differences
    assert not found.moves_unknown and found.move_count == len(found.moves)
    moves = {
        (each.connector, each.task if each.HasField("task") else None): each for each in found.moves
    }
    urls = {each.rest.url for each in two}
    for task in (None, 0, 1):
        assert moves["gone", task].from_worker in urls and not moves["gone", task].to_worker
        assert moves["new", task].to_worker in urls and not moves["new", task].from_worker
    assert offsets(two) == before


@pytest.mark.parametrize("asked", [0, 1])
def test_any_worker_tells_who_is_in_the_group(two: tuple[Served, Served], asked: int) -> None:
    shown = two[asked].client.get_cluster()
    assert not shown.others_unknown
    found = {each.url: each for each in shown.workers}
    assert list(found) == sorted(each.rest.url for each in two)
    for number, each in enumerate(two):
        told, view = found[each.rest.url], each.worker.herder.view()
        assert (told.worker_id, told.leader) == (each.rest.worker_id, number == 0)
        assert (told.connector_count, told.task_count) == (len(view.connectors), len(view.tasks))
        assert told.member and told.generation == view.generation
        assert told.answers and not told.unknown
        assert list(told.tasks) == sorted(str(task.task) for task in view.tasks)
    by_rest = RestRemote(two[asked].rest.url)
    told_by_rest = {
        each["url"]: (each["leader"], each["connector_count"], each["task_count"])
        for each in by_rest.cluster()["workers"]
    }
    by_rest.close()
    assert told_by_rest == {
        url: (each.leader, each.connector_count, each.task_count) for url, each in found.items()
    }


def test_a_target_state_alone_is_a_change(two: tuple[Served, Served]) -> None:
    found = two[1].client.plan([planned("kept", connector_pb2.TARGET_STATE_STOPPED)])
    (change,) = found.changes
    assert change.action == pb.PLANNED_ACTION_CHANGE_STATE and not change.differences
    assert change.target_state_after == connector_pb2.TARGET_STATE_STOPPED
    assert {(each.connector, each.to_worker) for each in found.moves} >= {("kept", "")}
    assert not two[1].client.plan([planned("kept")]).changes


def test_faults_are_told_key_by_key(two: tuple[Served, Served]) -> None:
    found = two[1].client.plan(
        [
            planned("kept", **{"tasks.max": "none"}),
            planned("another", **{"connector.class": "NoSuchSink"}),
            pb.PlannedConnector(name="new", config={**SINK, "name": "other"}),
            pb.PlannedConnector(name="empty"),
        ]
    )
    faults = {each.name: {fault.key for fault in each.faults} for each in found.changes}
    assert faults == {
        "another": {"connector.class"},
        "empty": {"connector.class"},
        "kept": {"tasks.max"},
        "new": {"name"},
    }
    assert not found.moves, "what would be refused moves nothing"


def test_no_password_is_in_a_plan(two: tuple[Served, Served]) -> None:
    client = two[0].client
    client.create("holds", {**SINK, "sasl.password": SECRET})
    found = client.plan(
        [planned("holds", **{"sasl.password": SECRET + "2", "consumer.override.x": "none"})]
    )
    (change,) = found.changes
    keys = {each.key: each for each in change.differences}
    assert keys["sasl.password"].hidden and not keys["sasl.password"].HasField("after")
    assert SECRET not in str(found)
    client.delete("holds")


def test_a_request_that_makes_no_sense_is_refused(two: tuple[Served, Served]) -> None:
    client = two[0].client
    for request, words in (
        ([planned("x"), planned("x")], "planned twice"),
        ([planned("")], "name is empty"),
        ([planned("x", 77)], "target_state is 77"),
    ):
        with pytest.raises(HeadgateError, match=f"INVALID_ARGUMENT: .*{words}"):
            client.plan(request)


# -- the command --


def diff(served: Served, url: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["connectors", "diff", *words, "--url", url])


def written(folder: Path, name: str, **config: str) -> str:
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"name": name, "config": {**SINK, "tasks.max": "2", **config}}))
    return str(file)


def test_diff_shows_changes_faults_and_moves(two: tuple[Served, Served], tmp_path: Path) -> None:
    served = two[1]
    kept = written(tmp_path, "kept")
    same = diff(served, served.address, kept)
    assert (same.exit_code, same.output) == (0, "kept unchanged\n")
    new = written(tmp_path, "new", topics="a")
    changed = written(tmp_path, "changed", topics="b")
    done = diff(served, served.address, kept, new, changed, "--prune", "gone")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[:4] == [
        "kept unchanged",
        "changed would change",
        "  - topics = t",
        "  + topics = b",
    ]
    assert "gone would be deleted" in lines and "new would be created" in lines
    assert any(line.startswith("new-1 would go from nowhere to http://") for line in lines)
    fault = diff(served, served.address, written(tmp_path, "kept", **{"tasks.max": "none"}))
    assert fault.exit_code == 1
    assert "  fault: tasks.max: Invalid value none" in fault.output
    as_json = diff(served, served.address, new, "-o", "json")
    assert json.loads(as_json.output)["rows"][0]["action"] == "create"


def test_diff_over_rest_has_all_but_the_moves(two: tuple[Served, Served], tmp_path: Path) -> None:
    served = two[1]
    files = [written(tmp_path, "changed", topics="b"), written(tmp_path, "kept")]
    done = diff(served, served.rest.url, *files, "--prune", "gone")
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines.pop(4).startswith("  note: connector.class: FileStreamSink writes at least once")
    assert lines == [
        "kept unchanged",
        "changed would change",
        "  - topics = t",
        "  + topics = b",
        "gone would be deleted",
        "what would move is not known: the REST API does not tell what would move",
    ]
    bad = written(tmp_path, "kept", **{"tasks.max": "none"})
    fault = diff(served, served.rest.url, bad)
    assert fault.exit_code == 1 and "  fault: tasks.max: Invalid value none" in fault.output
