"""What a worker on Kafka has learned of its cluster before it does anything else."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import headgate_kafka.topics
from headgate_kafka.client_settings import FEW_BROKERS, producer_settings
from headgate_kafka.topics import Cluster
from headgate_runtime.settings import DISTRIBUTED, STANDALONE
from headgate_runtime.worker_command import Rest, Stop, reach_brokers
from headgate_runtime.worker_file import WorkerFile, read_worker_file

DISTRIBUTED_LINES = """
group.id=g
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
"""
STANDALONE_LINES = "offset.storage.file.filename=offsets\n"
LINES = {DISTRIBUTED: DISTRIBUTED_LINES, STANDALONE: STANDALONE_LINES}
ASKS = {DISTRIBUTED: "prepare_internal_topics", STANDALONE: "find_cluster"}


def worker_file(folder: Path, kind: str) -> WorkerFile:
    path = folder / "worker.properties"
    path.write_text(
        "bootstrap.servers=kafka:9092\nkey.converter=StringConverter\n"
        f"value.converter=StringConverter\n{LINES[kind]}"
    )
    return read_worker_file(str(path), kind)


@pytest.mark.parametrize("kind", [DISTRIBUTED, STANDALONE])
@pytest.mark.parametrize(("count", "at_once"), [(FEW_BROKERS, "false"), (FEW_BROKERS + 1, None)])
def test_tasks_know_whether_the_cluster_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, count: int, at_once: str | None
) -> None:
    cluster = Cluster("an id", tuple(f"kafka-{number}:9092" for number in range(count)))

    def ask(properties: Any, **_more: Any) -> Cluster:
        assert properties["bootstrap.servers"] == "kafka:9092"
        return cluster

    monkeypatch.setattr(headgate_kafka.topics, ASKS[kind], ask)
    rest = SimpleNamespace(root={"kafka_cluster_id": None})
    file = worker_file(tmp_path, kind)
    found = reach_brokers(file, cast(Rest, rest), Stop())
    assert rest.root == {"kafka_cluster_id": "an id"}
    producer = producer_settings(found.properties, {}, client_id="c", transactional_id="t")
    assert producer.get("enable.sparse.connections") == at_once
    assert dict(file.properties).items() <= dict(found.properties).items()
