"""When and how a standalone worker answers the request that creates a connector. Java's answers
were seen on 4.3.1."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.rest.worker import rest_worker
from support.rest.world import wait_until
from support.task.frail_source import CLASS, CONNECTOR_STOP, TASK_STOP

from headgate_rest.peer import TIMEOUT_HEADER
from local_kafka.java_connect import Reply, Rest

FAILED = "Failed to transition connector {} to state STARTED: RuntimeError: no such database"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with rest_worker(tmp_path_factory.mktemp("standalone"), standalone=True) as service:
        yield service.url


@pytest.fixture
def rest(url: str) -> Iterator[Rest]:
    with Rest(url, 30) as made:
        yield made


def frail(name: str, **more: str) -> dict[str, str]:
    keys = {key.replace("_", "."): text for key, text in more.items()}
    return {"name": name, "connector.class": CLASS, "tasks.max": "2", **keys}


def tasks(reply: Reply) -> list[int]:
    return [task["task"] for task in reply.body["tasks"]]


def test_the_answer_lists_the_tasks_of_a_start_that_it_has_waited_for(
    rest: Rest, tmp_path: Path
) -> None:
    config = frail("a", waits_for=str(tmp_path / "go"))
    replies: list[Reply] = []
    asking = threading.Thread(target=lambda: replies.append(rest.create("a", config)))
    asking.start()
    with Rest(str(rest._client.base_url)) as other:
        wait_until(lambda: other.get("/connectors/a").status == 200)
    asking.join(0.3)
    assert asking.is_alive()
    (tmp_path / "go").touch()
    asking.join(20)
    (created,) = replies
    assert (created.status, tasks(created)) == (201, [0, 1])
    path = "/connectors/a/config"
    more = rest.put(path, {**config, "tasks.max": "3"})
    assert (more.status, tasks(more)) == (200, [0, 1, 2])
    patched = rest.patch(path, {"tasks.max": "1"})
    assert (patched.status, tasks(patched)) == (200, [0])
    # Another config that its tasks have nothing of: no new commit is to be waited for.
    same = rest.patch(path, {"comment": "none"})
    assert (same.status, tasks(same)) == (200, [0])
    assert tasks(rest.put(path, same.body["config"])) == [0]


def test_a_start_that_fails(rest: Rest) -> None:
    config = frail("b", fails="start")
    refused = rest.create("b", config)
    assert (refused.status, refused.body["message"]) == (500, FAILED.format("b"))
    status = rest.status("b")
    assert status.body["connector"]["state"] == "FAILED"
    unchanged = rest.put("/connectors/b/config", config)
    assert (unchanged.status, tasks(unchanged)) == (200, [])
    mended = rest.put("/connectors/b/config", frail("b"))
    assert (mended.status, tasks(mended)) == (200, [0, 1])
    broken = rest.put("/connectors/b/config", config)
    assert (broken.status, broken.body["message"]) == (500, FAILED.format("b"))


def test_task_configs_that_fail(rest: Rest) -> None:
    refused = rest.create("c", frail("c", fails="task_configs"))
    assert refused.status == 500
    text = "Connector c gave no task configs: RuntimeError: no such database"
    assert refused.body["message"] == text
    assert_failed(rest, "c", text)
    assert tasks(rest.put("/connectors/c/config", frail("c"))) == [0, 1]
    wait_until(lambda: rest.status("c").body["connector"]["state"] == "RUNNING")


def assert_failed(rest: Rest, name: str, reason: str) -> None:
    """Assert that the connector is FAILED. In Java it is RUNNING, without tasks and without a
    reason (spooldir #219)."""
    wait_until(lambda: rest.status(name).status == 200)
    wait_until(lambda: rest.status(name).body["connector"]["state"] == "FAILED")
    assert rest.status(name).body["connector"]["trace"].startswith(f"{reason}\nTraceback")


@pytest.mark.parametrize(
    ("gives", "seen"),
    [
        ("none", "None; expected a list with a mapping of strings for each task"),
        ("text", "'abc'; expected a list"),
        ("mapping", "{'a': 'b'}; expected a list"),
        ("number", "3; expected a list"),
        ("nones", "None as no. 0; expected a list"),
        ("numbers", "'a': 1; keys and values must be strings"),
    ],
)
def test_task_configs_that_are_none(rest: Rest, gives: str, seen: str) -> None:
    name = f"gives-{gives}"
    refused = rest.create(name, frail(name, gives=gives))
    assert refused.status == 500
    reason = f"Connector {name} gave no task configs: TypeError: task_configs returned {seen}"
    assert refused.body["message"].startswith(reason)
    assert_failed(rest, name, refused.body["message"])


def test_statuses_have_the_version_of_a_class_that_is_no_plugin(rest: Rest) -> None:
    """Once the version was null: such a class is known only after its connector has started."""
    assert rest.create("v", frail("v")).status == 201
    wait_until(lambda: len(rest.status("v").body["tasks"]) == 2)
    body = rest.status("v").body
    assert [each["version"] for each in (body["connector"], *body["tasks"])] == ["7.1-frail"] * 3


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_no_url_can_have_is_refused(rest: Rest, name: str) -> None:
    """Once such a connector was created, and could not be deleted: clients remove its name from the
    path."""
    refused = rest.create(name, frail(name))
    assert refused.status == 400
    assert 'a connector cannot be named "." or ".."' in refused.body["message"]


@pytest.mark.parametrize("count", ["100001", "2147483647"])
def test_more_tasks_than_a_list_should_have_are_refused(rest: Rest, count: str) -> None:
    """A list of that length took all memory."""
    refused = rest.create("many", frail("many") | {"tasks.max": count})
    assert refused.status == 400
    text = f"Invalid value {count} for configuration tasks.max: Value must be no more than 100000"
    assert text in refused.body["message"]


@pytest.mark.parametrize("state", ["STOPPED", "PAUSED"])
def test_nothing_is_waited_for_that_will_not_come(rest: Rest, state: str) -> None:
    config = frail(state, fails="start")
    body = {"name": state, "config": config, "initial_state": state}
    created = rest.post("/connectors", body)
    assert (created.status, tasks(created)) == (201, [])
    changed = rest.patch(f"/connectors/{state}/config", {"comment": "none"})
    assert (changed.status, tasks(changed)) == (200, [])


def test_a_start_that_takes_longer_than_the_request(rest: Rest, tmp_path: Path) -> None:
    body: dict[str, Any] = {"name": "d", "config": frail("d", waits_for=str(tmp_path / "go"))}
    late = httpx.post(
        f"{rest._client.base_url}connectors", json=body, headers={TIMEOUT_HEADER: "300"}
    )
    assert late.status_code == 500
    text = "Request timed out. The worker is currently starting connector d."
    assert late.json()["message"] == text
    (tmp_path / "go").touch()
    wait_until(lambda: tasks(rest.get("/connectors/d")) == [0, 1])


@pytest.mark.parametrize("key", [TASK_STOP, CONNECTOR_STOP])
def test_a_restart_with_flags_is_answered_when_what_ran_has_stopped(
    rest: Rest, tmp_path: Path, key: str
) -> None:
    name = key.partition(".")[0]
    assert tasks(rest.create(name, {**frail(name), key: str(tmp_path / "go")})) == [0, 1]
    rest.await_tasks(name, ["RUNNING", "RUNNING"])
    replies: list[Reply] = []
    path = f"/connectors/{name}/restart?includeTasks=true"
    asking = threading.Thread(target=lambda: replies.append(rest.post(path)))
    asking.start()
    wait_until((tmp_path / "go.asked").exists)
    asking.join(0.3)
    assert asking.is_alive()
    (tmp_path / "go").touch()
    asking.join(20)
    (restarted,) = replies
    assert (restarted.status, states(restarted)) == (202, ["RESTARTING", "RESTARTING"])
    rest.await_tasks(name, ["RUNNING", "RUNNING"])


def test_a_restart_with_flags_of_what_does_not_stop_in_time(rest: Rest, tmp_path: Path) -> None:
    assert tasks(rest.create("f", {**frail("f"), TASK_STOP: str(tmp_path / "go")})) == [0, 1]
    rest.await_tasks("f", ["RUNNING", "RUNNING"])
    late = httpx.post(
        f"{rest._client.base_url}connectors/f/restart?includeTasks=true",
        headers={TIMEOUT_HEADER: "300"},
    )
    text = "Request timed out. The worker is currently stopping f."
    assert (late.status_code, late.json()["message"]) == (500, text)
    (tmp_path / "go").touch()
    rest.await_tasks("f", ["RUNNING", "RUNNING"])


def test_a_restart_with_flags_of_what_is_not_there(rest: Rest) -> None:
    unknown = rest.post("/connectors/none/restart?includeTasks=true")
    assert (unknown.status, unknown.body["message"]) == (404, "Unknown connector: none")


def states(reply: Reply) -> list[str]:
    return [task["state"] for task in reply.body["tasks"]]


def test_what_workers_of_a_group_ask_each_other(rest: Rest) -> None:
    fenced = rest.put("/connectors/none/fence")
    given = rest.post("/connectors/none/tasks", [{"a": "b"}])
    text = "Kafka Connect in standalone mode does not support"
    assert [(reply.status, reply.body["message"]) for reply in (fenced, given)] == [
        (500, f"{text} exactly-once source connectors."),
        (500, f"{text} externally setting task configurations."),
    ]


def test_a_worker_of_a_group_waits_for_no_start(tmp_path: Path) -> None:
    with rest_worker(tmp_path) as service, Rest(service.url, 30) as rest:
        created = rest.create("a", frail("a", waits_for=str(tmp_path / "go")))
        assert (created.status, tasks(created)) == (201, [])
        (tmp_path / "go").touch()
