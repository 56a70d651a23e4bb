"""Config providers as users of `headgate worker` have them. Files, topics and answers show
references; only the code that does the work gets the values."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands.worker import HeadgateWorker, headgate_worker  # noqa: F401
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic, read_committed

from local_kafka.java_connect import SOURCE, Reply

pytestmark = pytest.mark.slow

SECONDS = 90
SECRET = "s3cr3t-word"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
FLAGS = "restart?includeTasks=true&onlyFailed=false"


class Story:
    """A worker whose connectors read files with secret names, which a file of secrets tells."""

    def __init__(self, make: Callable[..., HeadgateWorker], servers: str, name: str, tmp: Path):
        self.servers, self.name = servers, name
        self.secrets = tmp / "secrets.properties"
        self.inputs = [tmp / f"{SECRET}-{n}.txt" for n in range(2)]
        for path in self.inputs:
            path.write_text("")
        self.tell(self.inputs[0])
        create_topic(servers, name)
        provider = "config.providers.file"
        self.worker = make(
            servers,
            name,
            {
                "key.converter": STRINGS,
                "value.converter": f"${{file:{self.secrets}:converter}}",
                "headgate.task.runner": "process",
                "exactly.once.source.support": "enabled",
                "session.timeout.ms": "6000",
                "heartbeat.interval.ms": "500",
                "offset.flush.interval.ms": "500",
                "config.providers": "file",
                f"{provider}.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
                f"{provider}.param.allowed.paths": str(tmp),
            },
        )
        self.config = {
            "connector.class": SOURCE,
            "file": self.reference("input"),
            "topic": name,
            "tasks.max": self.reference("tasks"),
        }

    def tell(self, path: Path) -> None:
        self.secrets.write_text(f"input={path}\ntasks=1\nconverter={STRINGS}\n")

    def reference(self, key: str) -> str:
        return f"${{file:{self.secrets}:{key}}}"

    def get(self, path: str) -> Any:
        return self.worker.rest.get(path).body

    def values(self) -> list[str]:
        return [value.decode() for _, value in read_committed(self.servers, self.name)]

    def logged(self) -> list[tuple[bytes, bytes | None]]:
        """The config topic and the status topic."""
        topics = ((f"{self.name}-configs", 1), (f"{self.name}-status", 2))
        return [record for topic, n in topics for record in read_committed(self.servers, topic, n)]

    def count(self, key: str) -> int:
        return [found for found, _ in self.logged()].count(key.encode())

    def await_values(self, expected: list[str]) -> None:
        await_true(f"{expected}", lambda: self.values() == expected, SECONDS, self.worker.tail)

    def await_running(self, *names: str) -> None:
        for name in names:
            self.worker.rest.await_tasks(name, ["RUNNING"], SECONDS)


@pytest.fixture
def story(
    headgate_worker: Callable[..., HeadgateWorker],  # noqa: F811
    kafka_broker: Found,
    kafka_name: str,
    tmp_path: Path,
) -> Story:
    return Story(headgate_worker, kafka_broker.address, kafka_name, tmp_path)


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


def nowhere(texts: Mapping[str, object]) -> None:
    """Assert that none of the texts has a secret value."""
    assert [what for what, text in texts.items() if SECRET in str(text)] == []


@pytest.mark.exhaustive
def test_secrets_are_where_the_work_is_and_nowhere_else(story: Story) -> None:
    rest, config = story.worker.rest, story.config
    made = rest.create("src", config)
    assert made.status == 201, made
    assert made.body["config"] == {**config, "name": "src"}
    story.await_running("src")
    append(story.inputs[0], "from the first")
    story.await_values(["from the first"])

    # References in the topic, and in answers; also of task configs, which echo the connector's.
    shown = {
        "config": story.get("/connectors/src/config"),
        "tasks": story.get("/connectors/src/tasks"),
        "info": story.get("/connectors?expand=info&expand=status"),
        "topics": story.logged(),
    }
    nowhere(shown)
    assert shown["config"]["file"] == config["file"]
    assert [task["config"]["file"] for task in shown["tasks"]] == [config["file"]]

    # A new value: the connector is restarted, and its tasks are given it.
    story.tell(story.inputs[1])
    append(story.inputs[1], "from the second")
    assert rest.post("/connectors/src/restart").status == 204
    story.await_values(["from the first", "from the second"])
    story.await_running("src")
    assert story.count("commit-src") == 2
    assert rest.post("/connectors/src/restart").status == 204  # nothing new: the tasks go on
    time.sleep(1.0)
    assert story.count("commit-src") == 2
    nowhere({"topics": story.logged(), "log": story.worker.log.read_text()})


@pytest.mark.exhaustive
def test_a_provider_that_fails_costs_that_connector_only(story: Story, tmp_path: Path) -> None:
    rest = story.worker.rest
    refused = rest.create("bad", {**story.config, "file": "${file:/etc/hostname:x}"})
    assert refused.status == 400
    said = "config provider file, path '/etc/hostname', key 'x': the path is outside of "
    assert said in refused.body["message"]

    (tmp_path / "plain.txt").write_text("")
    plain = {**story.config, "file": str(tmp_path / "plain.txt"), "tasks.max": "1"}
    for name, config in (("src", story.config), ("plain", plain)):
        made = rest.create(name, config)
        assert made.status == 201, made
    story.await_running("src", "plain")
    whole = story.secrets.read_text()
    story.secrets.unlink()

    def status() -> Reply:
        return rest.status("src")

    assert rest.post("/connectors/src/tasks/0/restart").status in (204, 500)
    await_true(
        "a failed task", lambda: status().body["tasks"][0]["state"] == "FAILED", SECONDS, str
    )
    path = f"config provider file, path '{story.secrets}', keys "
    assert path in status().body["tasks"][0]["trace"]
    assert rest.post(f"/connectors/src/{FLAGS}").status == 202
    await_true(
        "a failed connector",
        lambda: status().body["connector"]["state"] == "FAILED",
        SECONDS,
        lambda: str(status()),
    )
    assert path in status().body["connector"]["trace"]
    assert "No such file or directory" in status().body["connector"]["trace"]
    append(tmp_path / "plain.txt", "still here")
    story.await_values(["still here"])

    story.secrets.write_text(whole)
    assert rest.post(f"/connectors/src/{FLAGS}").status == 202
    story.await_running("src")
    append(story.inputs[0], "back")
    story.await_values(["still here", "back"])
    nowhere({"topics": story.logged(), "log": story.worker.log.read_text(), "status": status()})
