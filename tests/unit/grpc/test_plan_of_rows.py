"""Plans on rows that the test makes up: passwords of converters, and the cost of many rows."""

import asyncio
import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from headgate.herder.messages import Success
from headgate_grpc import planning
from headgate_grpc.v1 import connector_service_pb2 as pb
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.rest import RestPlugins

USER = "value.converter.basic.auth.user.info"
"""Its name does not look like a secret's: only the converter says that it is one."""
SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null", "name": "c"}
AVRO = {
    **SINK,
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
    "value.converter.basic.auth.credentials.source": "USER_INFO",
    USER: "bob:hunter2",
}
JSON = {**SINK, "value.converter": "org.apache.kafka.connect.json.JsonConverter"}


class WritingPlugins(RestPlugins):
    """Plugins whose code writes into the config that it is given."""

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> Mapping[str, Any]:
        found = super().validate(plugin, config)
        config["topics"] = "written"  # type: ignore[index]
        return found


class AskedOfRows:
    """The calls of one request, answered with `rows`."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.rows = list(rows)
        self.backend = self
        self.plugins = WritingPlugins(WorkerSettings.parse({}))

    async def value(self, call: object) -> dict[str, Any]:
        return {"rows": self.rows, "config_offset": 1, "more": False}

    async def result(self, call: object) -> Success:
        return Success({"moves": [], "count": 0})

    async def on_thread(self, work: Callable[[], Any]) -> Any:
        return work()


def row(name: str, config: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "type": "sink",
        "target_state": "STARTED",
        "task_count": 1,
        "settled": True,
        "etag": 1,
        "status": None,
        "config": dict(config),
    }


def planned(request: pb.PlanConnectorsRequest, asked: AskedOfRows) -> pb.PlanConnectorsResponse:
    given: Any = asked
    return asyncio.run(planning.plan(request, given))


@pytest.mark.parametrize(
    "config",
    [
        {**AVRO, USER: "bob:other"},
        JSON,
        {**JSON, "connector.class": "FileStreamSource"},
        {**JSON, "connector.class": "NoSuchSink"},
    ],
    ids=["value", "converter", "class", "unknown class"],
)
def test_a_password_of_the_old_config_is_not_shown(config: dict[str, str]) -> None:
    request = pb.PlanConnectorsRequest(connectors=[pb.PlannedConnector(name="c", config=config)])
    found = planned(request, AskedOfRows(row("c", AVRO)))
    (change,) = found.changes
    (user,) = (each for each in change.differences if each.key == USER)
    assert user.hidden and user.is_before and not user.before
    assert "bob:" not in str(found)


def test_plugins_cannot_write_into_a_row_or_into_the_plan() -> None:
    kept = row("c", AVRO)
    before = copy.deepcopy(kept)
    request = pb.PlanConnectorsRequest(connectors=[pb.PlannedConnector(name="c", config=JSON)])
    (change,) = planned(request, AskedOfRows(kept)).changes
    assert kept == before
    assert "topics" not in {each.key for each in change.differences}


class CountedList(list[Any]):
    """A list that counts how often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        self.times += 1
        return super().__iter__()


def test_rows_to_prune_do_not_each_go_through_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a plan of 5,000 connectors holds up the server's loop for seconds."""
    wanted = CountedList(planning._wanted([pb.PlannedConnector(name="c", config=AVRO)]))
    monkeypatch.setattr(planning, "_wanted", lambda given: wanted)
    request = pb.PlanConnectorsRequest()
    request.prune.SetInParent()
    rows = [row(name, AVRO) for name in ("c", *(f"gone-{n}" for n in range(50)))]
    found = planned(request, AskedOfRows(*rows))
    assert len(found.changes) == 50
    assert wanted.times <= 3
