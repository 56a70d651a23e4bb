"""A worker on Kafka learns the size of its cluster before it does anything else."""

from pathlib import Path
from typing import Any

import pytest

import headgate_kafka.admin.topics
from headgate_kafka.admin.topics import Reached
from headgate_kafka.clients.settings import FEW_BROKERS, producer_settings
from headgate_runtime.command.worker import Stop, reach_brokers
from headgate_runtime.config.settings import DISTRIBUTED, STANDALONE
from headgate_runtime.config.worker_file import WorkerFile, read_worker_file

DISTRIBUTED_LINES = """
group.id=g
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
"""
STANDALONE_LINES = "offset.storage.file.filename=offsets\n"
LINES = {DISTRIBUTED: DISTRIBUTED_LINES, STANDALONE: STANDALONE_LINES}
ASKS = {DISTRIBUTED: "prepare_internal_topics", STANDALONE: "reach_cluster"}


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
    reached = Reached("an id", count, "")

    def ask(properties: Any, **_more: Any) -> Reached:
        assert properties["bootstrap.servers"] == "kafka:9092"
        return reached

    monkeypatch.setattr(headgate_kafka.admin.topics, ASKS[kind], ask)
    file = worker_file(tmp_path, kind)
    found, told = reach_brokers(file, Stop())
    assert told is reached
    producer = producer_settings(found.properties, {}, client_id="c", transactional_id="t")
    assert producer.get("enable.sparse.connections") == at_once
    assert dict(file.properties).items() <= dict(found.properties).items()
