"""Headgate takes over a cluster of Java's whose configs refer to config providers, as it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands.worker import HeadgateWorker
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic, read_committed

from local_kafka.java_connect import SOURCE, JavaWorker

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SECONDS = 90
SECRET = "s3cr3t-word"
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
Worker = JavaWorker | HeadgateWorker


class Cluster:
    def __init__(self, address: str, name: str, tmp: Path) -> None:
        self.address, self.name = address, name
        self.input = tmp / f"{SECRET}.txt"
        self.input.write_text("")
        create_topic(address, name)
        self.secrets = tmp / "secrets.properties"
        self.secrets.write_text(f"input={self.input}\ntasks=1\nconverter={STRINGS}\n")
        self.properties = {
            "key.converter": STRINGS,
            "value.converter": self.reference("converter"),
            "offset.flush.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "500",
            "config.providers": "file",
            "config.providers.file.class": (
                "org.apache.kafka.common.config.provider.FileConfigProvider"
            ),
            "config.providers.file.param.allowed.paths": str(tmp),
        }
        self.config = {
            "connector.class": SOURCE,
            "file": self.reference("input"),
            "topic": name,
            "tasks.max": self.reference("tasks"),
        }

    def reference(self, key: str) -> str:
        return f"${{file:{self.secrets}:{key}}}"

    def runs(self, worker: Worker, line: str) -> None:
        """The connector's task reads what is new."""
        worker.rest.await_tasks("src", ["RUNNING"], SECONDS)
        with self.input.open("a") as file:
            file.write(f"{line}\n")
        await_true(
            line,
            lambda: (
                line.encode() in [value for _, value in read_committed(self.address, self.name)]
            ),
            SECONDS,
            lambda: str(worker.rest.status("src")),
        )

    def logged(self, group: str) -> dict[str, Any]:
        """Return the records of the connector and its task in the config topic."""
        records = read_committed(self.address, f"{group}-configs")
        found = {key.decode(): json.loads(value) for key, value in records if value is not None}
        return {key: found[key] for key in ("connector-src", "task-src-0", "commit-src")}


@pytest.fixture
def cluster(kafka_broker: Found, kafka_name: str, tmp_path: Path) -> Cluster:
    return Cluster(kafka_broker.address, kafka_name, tmp_path)


def test_one_goes_on_where_the_other_was(
    cluster: Cluster,
    java_worker: Callable[..., JavaWorker],
    headgate_worker: Callable[..., HeadgateWorker],
) -> None:
    java = java_worker(cluster.address, cluster.name, cluster.properties)
    made = java.rest.create("src", cluster.config)
    assert made.status == 201, made
    cluster.runs(java, "read by Java's")
    theirs = cluster.logged(cluster.name)
    assert SECRET not in str(theirs)
    path = f"/connector-plugins/{SOURCE}/config/validate"
    asked = {**cluster.config, "name": "src"}
    assert SECRET in str(java.rest.put(path, asked).body)  # which is where we differ
    java.stop()

    ours = headgate_worker(cluster.address, cluster.name, cluster.properties)
    cluster.runs(ours, "read by ours")
    assert cluster.logged(cluster.name) == theirs  # taken over as it was
    values = [value for _, value in read_committed(cluster.address, cluster.name)]
    assert values == [b"read by Java's", b"read by ours"]

    # The same connector, made here in a group of its own, is logged in the same words.
    own = f"{cluster.name}-own"
    other = headgate_worker(cluster.address, own, cluster.properties)
    assert other.rest.create("src", {**cluster.config, "topic": own}).status == 201
    other.rest.await_tasks("src", ["RUNNING"], SECONDS)
    written = json.loads(json.dumps(cluster.logged(own)).replace(own, cluster.name))
    assert written["connector-src"].pop("changed") > 0  # our etag, which Java passes over
    assert written == theirs
    answer = ours.rest.put(path, asked)
    assert (answer.status, answer.body["error_count"]) == (200, 0)
    assert SECRET not in str(answer.body)
