"""The brokers' host of a connector has no address, or no broker listens there.

Source: ConnectWorkerIntegrationTest, testRestartFailedTask. The connector is RUNNING and its task
FAILED, until the config is corrected.
"""

from pathlib import Path
from typing import Any

import pytest
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.kafka.worker import kafka_worker

pytestmark = pytest.mark.slow

SECONDS = 60
NO_ADDRESS = "nobroker.invalid:9092"
NO_ADDRESS_TOLD = (
    "No resolvable bootstrap urls given in bootstrap.servers",
    "nobroker.invalid: ",
)
NO_LISTENER = "127.0.0.1:1"
NO_LISTENER_TOLD = ("no broker was reached within ", "127.0.0.1:1: Connection refused")


@pytest.mark.parametrize(
    ("support", "nobody", "told"),
    [
        ("disabled", NO_ADDRESS, NO_ADDRESS_TOLD),
        ("enabled", NO_ADDRESS, NO_ADDRESS_TOLD),
        pytest.param("disabled", NO_LISTENER, NO_LISTENER_TOLD, marks=pytest.mark.exhaustive),
        pytest.param("enabled", NO_LISTENER, NO_LISTENER_TOLD, marks=pytest.mark.exhaustive),
    ],
)
def test_the_task_fails_with_the_reason_and_runs_once_the_config_is_mended(
    tmp_path: Path,
    kafka_broker: Found,
    kafka_name: str,
    support: str,
    nobody: str,
    told: tuple[str, ...],
) -> None:
    (tmp_path / "in.txt").write_text("a line\n")
    create_topic(kafka_broker.address, kafka_name)
    wrong: dict[str, dict[str, str]] = {
        "source": {
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / "in.txt"),
            "topic": kafka_name,
            "producer.override.bootstrap.servers": nobody,
        },
        "sink": {
            "connector.class": "FileStreamSink",
            "file": str(tmp_path / "out.txt"),
            "topics": kafka_name,
            "consumer.override.bootstrap.servers": nobody,
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
            assert all(words in trace for words in told), trace
        for name, config in wrong.items():
            mended = {key: text for key, text in config.items() if text != nobody}
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
