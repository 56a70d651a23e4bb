"""gRPC can do what REST can do: the table of endpoints and rpcs, and both called on one worker."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until

from headgate_grpc.server import SERVICES
from headgate_grpc.v1 import cluster_service_pb2 as cluster_pb2
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb
from headgate_rest.translate import _TABLE

PAGE = Path(__file__).resolve().parents[3] / "docs/run/grpc.md"
WITHOUT_RPC = {
    ("POST", "/connectors/*/tasks"),
    ("PUT", "/connectors/*/fence"),
    ("POST", "/headgate/moves"),
    ("GET", "/metrics"),
}
"""What workers ask of each other, and what Prometheus asks for."""
WORDS = {
    "RUNNING": connector_pb2.STATE_RUNNING,
    "PAUSED": connector_pb2.STATE_PAUSED,
    "STOPPED": connector_pb2.STATE_STOPPED,
    "UNASSIGNED": connector_pb2.STATE_UNASSIGNED,
}


def rows() -> list[tuple[str, str, str]]:
    """Method, path and rpc of each row of the page."""
    text = PAGE.read_text()
    found = re.findall(r"^\| ([A-Z]+) `(\S+)` \| `(\S+)` \|$", text, re.MULTILINE)
    return found + [
        ("", "", rpc) for rpc in re.findall(r"^\| – \| `(\S+)` \|$", text, re.MULTILINE)
    ]


def test_the_page_has_each_endpoint_of_rest_once() -> None:
    shown = [(method, path) for method, path, _ in rows() if method]
    assert len(shown) == len(set(shown))
    assert set(shown) == {(method, path) for method, path, _ in _TABLE} - WITHOUT_RPC


def test_the_page_has_each_rpc() -> None:
    ours = {f"{service.name}.{method.name}" for service in SERVICES for method in service.methods}
    assert {rpc for _, _, rpc in rows()} == ours | {"grpc.health.v1.Health.Check"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with grpc_worker(tmp_path_factory.mktemp("walk")) as served:
        yield served


class Both:
    """One worker, called by HTTP and by gRPC."""

    def __init__(self, served: Served) -> None:
        self.client = served.client
        self._http = httpx.Client(base_url=served.rest.url, timeout=30)

    def http(self, method: str, path: str, body: Any = None, status: int | None = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert status is None or answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def refused(self, call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        error: Any = caught.value
        return error.code(), error.details()

    def same_connector(self, name: str) -> None:
        """GET of the connector, its config, status, tasks and topics; and GetConnector."""
        path = f"/connectors/{quote(name, safe='')}"
        shown = self.client.get(name, connector_pb2.CONNECTOR_VIEW_FULL)
        info = self.http("GET", path)
        assert (shown.name, dict(shown.config)) == (info["name"], info["config"])
        assert self.http("GET", f"{path}/config") == dict(shown.config)
        assert shown.task_count == len(info["tasks"])
        status = self.http("GET", f"{path}/status")
        assert shown.status.state == WORDS[status["connector"]["state"]]
        assert shown.status.worker_id == status["connector"]["worker_id"]
        reported = {task["id"]: WORDS[task["state"]] for task in status["tasks"]}
        assert {t.number: t.status.state for t in shown.tasks if t.HasField("status")} == reported
        configs = [task["config"] for task in self.http("GET", f"{path}/tasks")]
        assert [dict(task.config) for task in shown.tasks][: len(configs)] == configs
        # Its task may be telling of a topic just now.
        wait_until(
            lambda: (
                self.http("GET", f"{path}/topics")[name]["topics"]
                == list(self.client.get(name, connector_pb2.CONNECTOR_VIEW_FULL).topics)
            ),
            10,
        )


def settled(both: Both, name: str) -> None:
    both.client.wait(name)


NAME = "orders / ünï"


def test_both_walk_through_the_life_of_a_connector(served: Served, tmp_path: Path) -> None:
    both, client = Both(served), served.client
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    config = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "t",
        "tasks.max": "1",
    }
    path = f"/connectors/{quote(NAME, safe='')}"
    created = client.create(NAME, config)
    assert dict(created.config) == {**config, "name": NAME}
    settled(both, NAME)
    both.same_connector(NAME)
    assert both.refused(
        lambda: client.connectors.CreateConnector(
            pb.CreateConnectorRequest(name=NAME, config=config)
        )
    ) == (grpc.StatusCode.ALREADY_EXISTS, f"Connector {NAME} already exists")
    assert both.http("POST", "/connectors", {"name": NAME, "config": config}, 409)["message"] == (
        f"Connector {NAME} already exists"
    )

    client.pause(NAME)
    settled(both, NAME)
    both.same_connector(NAME)
    both.http("PUT", f"{path}/resume", status=202)
    settled(both, NAME)
    both.same_connector(NAME)

    client.patch_config(NAME, {"batch.size": "7"}, ["tasks.max"])
    assert both.http("GET", f"{path}/config") == {
        **{key: value for key, value in config.items() if key != "tasks.max"},
        "name": NAME,
        "batch.size": "7",
    }
    answer = client.put_config(NAME, config)
    assert not answer.created
    both.http("PUT", f"{path}/config", config, 200)
    settled(both, NAME)

    client.restart(NAME)
    plan = client.restart(NAME, include_tasks=True)
    assert plan.status.state == connector_pb2.STATE_RESTARTING
    settled(both, NAME)
    client.restart_task(NAME, 0)
    settled(both, NAME)
    offsets_go_both_ways(both, path)
    client.connectors.ResetTopics(pb.ResetTopicsRequest(name=NAME))
    client.delete(NAME)
    assert client.wait(NAME, deleted=True) == connector_pb2.Connector()
    both.http("GET", path, status=404)
    code, text = both.refused(
        lambda: client.connectors.GetConnector(pb.GetConnectorRequest(name=NAME))
    )
    assert (code, text) == (grpc.StatusCode.NOT_FOUND, f"Connector {NAME} not found")


def offsets_go_both_ways(both: Both, path: str) -> None:
    client = both.client
    partition = {"filename": both.http("GET", f"{path}/config")["file"]}
    large = {"position": 2**53 + 1}
    change = connector_pb2.ConnectorOffset(
        partition_json=json.dumps(partition), offset_json=json.dumps(large)
    )
    code, text = both.refused(
        lambda: client.connectors.AlterOffsets(pb.AlterOffsetsRequest(name=NAME, offsets=[change]))
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT and "STOPPED" in text
    client.stop(NAME)
    settled(both, NAME)
    assert client.alter_offsets(NAME, [change])
    found = {"offsets": [{"partition": partition, "offset": large}]}
    assert both.http("GET", f"{path}/offsets") == found
    (shown,) = client.read_offsets(NAME)
    assert (json.loads(shown.partition_json), json.loads(shown.offset_json)) == (partition, large)
    assert client.reset_offsets(NAME) == both.http("DELETE", f"{path}/offsets")["message"]
    assert client.read_offsets(NAME) == []


def test_listing_is_the_same_page_by_page(served: Served) -> None:
    both, client = Both(served), served.client
    config = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
    for n in range(5):
        client.create(f"list-{n}", config, connector_pb2.TARGET_STATE_STOPPED)
    expected = sorted(both.http("GET", "/connectors"))
    token, found, pages = "", [], 0
    while True:
        page = client.connectors.ListConnectors(
            pb.ListConnectorsRequest(page_size=2, page_token=token)
        )
        found += [each.name for each in page.connectors]
        assert len(page.connectors) <= 2
        pages, token = pages + 1, page.next_page_token
        if not token:
            break
    assert (found, pages) == (expected, 3)
    assert [each.name for each in client.list(prefix="list-3")] == ["list-3"]
    for name in found:
        client.wait(name)
    stopped = [each.name for each in client.list(states=[connector_pb2.STATE_STOPPED])]
    assert stopped == expected
    assert list(client.list(states=[connector_pb2.STATE_RUNNING])) == []
    assert [each.name for each in client.list(names=["list-1", "nope"])] == ["list-1"]
    shown = next(iter(client.list(names=["list-1"], view=connector_pb2.CONNECTOR_VIEW_STATUS)))
    assert not shown.config and shown.target_state == connector_pb2.TARGET_STATE_STOPPED
    for name in found:
        client.delete(name)


def test_plugins_and_validation_are_the_same(served: Served) -> None:
    both, cluster = Both(served), served.client.cluster
    listed = cluster.ListPlugins(cluster_pb2.ListPluginsRequest(connectors_only=True)).plugins
    assert [
        {"class": each.class_name, "type": each.type, "version": each.version} for each in listed
    ] == both.http("GET", "/connector-plugins")
    keys = cluster.GetPlugin(cluster_pb2.GetPluginRequest(class_name="FileStreamSource")).keys
    shown = both.http("GET", "/connector-plugins/FileStreamSource/config")
    assert [(key.name, key.type, key.required) for key in keys] == [
        (key["name"], key["type"], key["required"]) for key in shown
    ]
    config = {"connector.class": "FileStreamSource", "name": "x", "tasks.max": "none"}
    infos = both.http("PUT", "/connector-plugins/FileStreamSource/config/validate", config)
    found = cluster.ValidateConfig(cluster_pb2.ValidateConfigRequest(config=config))
    assert found.error_count == infos["error_count"] > 0
    assert {key.key.name: list(key.errors) for key in found.keys} == {
        each["definition"]["name"]: each["value"]["errors"] for each in infos["configs"]
    }


def test_loggers_and_the_cluster_are_the_same(served: Served) -> None:
    both, cluster = Both(served), served.client.cluster
    cluster.SetLoggerLevel(cluster_pb2.SetLoggerLevelRequest(logger="some.one", level="debug"))
    assert both.http("GET", "/admin/loggers/some.one")["level"] == "DEBUG"
    both.http("PUT", "/admin/loggers/some.one", {"level": "WARN"}, 200)
    found = cluster.GetLogger(cluster_pb2.GetLoggerRequest(logger="some.one")).logger
    assert found.level == "WARN"
    listed = {
        each.name: each.level
        for each in cluster.ListLoggers(cluster_pb2.ListLoggersRequest()).loggers
    }
    assert listed == {
        name: each["level"] for name, each in both.http("GET", "/admin/loggers").items()
    }
    everywhere = cluster_pb2.SetLoggerLevelRequest(logger="some.two", level="ERROR", cluster=True)
    cluster.SetLoggerLevel(everywhere)
    until = time.monotonic() + 10
    while "some.two" not in both.http("GET", "/admin/loggers"):
        assert time.monotonic() < until
    root, view = both.http("GET", "/"), both.http("GET", "/headgate/worker")
    shown = served.client.get_cluster()
    assert (shown.version, shown.commit, shown.kafka_cluster_id) == (
        root["version"],
        root["commit"],
        root["kafka_cluster_id"],
    )
    (worker,) = shown.workers
    assert worker.answers and worker.leader and worker.settled
    assert (worker.url, worker.generation) == (served.rest.url, view["generation"])
