"""A wait right after a restart that writes nothing to the config topic, on a real broker whose
status topic is slow to take records."""

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.kafka.broker import Found
from support.kafka.cluster import await_true, create_topic
from support.kafka.worker import KafkaWorker, kafka_worker

from headgate_grpc.client import Client, connect
from headgate_kafka.logs.keyed_log import KafkaKeyedLog

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SLOW_S = 0.5
"""How long each write to the status topic takes."""


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Keys and states that are in the status topic, in order; all workers write it slowly."""
    found: list[tuple[str, str]] = []
    append = KafkaKeyedLog.append

    def slowly(self: KafkaKeyedLog, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        ours = [(key, value) for key, value in records if key.startswith(b"status-")]
        if ours:
            time.sleep(SLOW_S)
        append(self, records)
        found.extend(
            (key.decode(), "" if value is None else json.loads(value).get("state", ""))
            for key, value in ours
        )

    monkeypatch.setattr(KafkaKeyedLog, "append", slowly)
    return found


@contextlib.contextmanager
def two_workers(
    folder: Path, broker: Found, name: str
) -> Iterator[tuple[list[KafkaWorker], list[Client]]]:
    """And a client of each; the first one leads."""
    with contextlib.ExitStack() as stack:
        sockets = stack.enter_context(tempfile.TemporaryDirectory())  # short names
        workers, clients = list[KafkaWorker](), list[Client]()
        for number in range(2):
            listener = f"unix:{sockets}/{number}.sock"
            made = kafka_worker(
                folder / str(number), broker.address, name, headgate_grpc_listeners=listener
            )
            workers.append(stack.enter_context(made))
            clients.append(stack.enter_context(connect(listener)))
        await_true(
            "one leader",
            lambda: workers[0].leads and all(not each.pending for each in workers),
            60,
            lambda: f"{[each.pending for each in workers]}",
        )
        yield workers, clients


def sink(topic: str, file: Path) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSink",
        "file": str(file),
        "topics": topic,
        "tasks.max": "1",
    }


def test_a_wait_right_behind_a_restart_sees_the_new_run(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, written: list[tuple[str, str]]
) -> None:
    """Each is asked of another worker."""
    create_topic(kafka_broker.address, kafka_name)
    task, connector = ("status-task-c-0", "RUNNING"), ("status-connector-c", "RUNNING")
    with two_workers(tmp_path, kafka_broker, kafka_name) as (_, clients):
        clients[0].create("c", sink(kafka_name, tmp_path / "out"))
        clients[0].wait("c", timeout_s=60)
        for asked, other in (clients, clients[::-1]):
            before = written.count(task)
            asked.restart_task("c", 0)
            assert other.wait("c", timeout_s=60).settled and written.count(task) > before
        before = written.count(connector)
        clients[1].restart("c")
        assert clients[0].wait("c", timeout_s=60).settled and written.count(connector) > before


def test_a_wait_right_behind_a_restart_does_not_end_with_the_failure_before(
    tmp_path: Path, kafka_broker: Found, kafka_name: str, written: list[tuple[str, str]]
) -> None:
    create_topic(kafka_broker.address, kafka_name)
    folder = tmp_path / "later"
    with two_workers(tmp_path, kafka_broker, kafka_name) as (_, clients):
        clients[0].create("c", sink(kafka_name, folder / "out"))
        await_true("it fails", lambda: ("status-task-c-0", "FAILED") in written, 60)
        folder.mkdir()
        clients[1].restart_task("c", 0)
        assert clients[0].wait("c", timeout_s=60).settled
