"""Connectors whose brokers' host has no address. Source: ConnectWorkerIntegrationTest,
testRestartFailedTask: the connector is RUNNING and its task FAILED, until the config is mended."""

from pathlib import Path
from typing import Any

import pytest
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.kafka.worker import kafka_worker

pytestmark = pytest.mark.slow

NOBODY = "nobroker.invalid:9092"
SECONDS = 60


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_the_task_fails_with_the_reason_and_runs_once_the_config_is_mended(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, support: str
) -> None:
    (tmp_path / "in.txt").write_text("a line\n")
    create_topic(kafka_broker.address, kafka_name)
    wrong: dict[str, dict[str, str]] = {
        "source": {
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / "in.txt"),
            "topic": kafka_name,
            "producer.override.bootstrap.servers": NOBODY,
        },
        "sink": {
            "connector.class": "FileStreamSink",
            "file": str(tmp_path / "out.txt"),
            "topics": kafka_name,
            "consumer.override.bootstrap.servers": NOBODY,
        },
    }
    properties = {"exactly_once_source_support": support}
    with kafka_worker(tmp_path, kafka_broker.address, kafka_name, **properties) as worker:

        def tasks(name: str) -> list[Any]:
            status = worker.rest.status(name).body
            found: list[Any] = status.get("tasks", [])
            return [status.get("connector", {}).get("state"), *found]

        def states(name: str) -> list[str]:
            connector, *found = tasks(name)
            return [connector, *(one["state"] for one in found)]

        for name, config in wrong.items():
            assert worker.rest.create(name, config).status == 201
        for name in wrong:
            await_true(
                f"end of {name}",
                lambda name=name: states(name) == ["RUNNING", "FAILED"],
                SECONDS,
                lambda name=name: f"{tasks(name)}",
            )
            trace = tasks(name)[1]["trace"]
            assert "No resolvable bootstrap urls given in bootstrap.servers" in trace
            assert "nobroker.invalid: " in trace
        for name, config in wrong.items():
            mended = {key: text for key, text in config.items() if text != NOBODY}
            worker.rest.put(f"/connectors/{name}/config", mended)
        for name in wrong:
            await_true(name, lambda name=name: states(name) == ["RUNNING", "RUNNING"], SECONDS)
        await_true(
            "line",
            lambda: (
                (tmp_path / "out.txt").exists()
                and ((tmp_path / "out.txt").read_text() == "a line\n")
            ),
            SECONDS,
        )
