"""A task whose config names brokers that cannot be reached is FAILED. Brokers that go away later
are awaited."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.task.body_bench import BodyBench
from support.task.scripted_source import scripted

from headgate.ports import RefusedError
from headgate.task.messages import StopTask, TaskKind, TaskOutcome
from headgate_kafka.admin import first_answer
from headgate_runtime.tasks import first_reach
from headgate_runtime.tasks.body import run_body
from headgate_runtime.tasks.first_reach import PATIENCE_S, await_brokers
from headgate_runtime.tasks.lifeline import LifelineGone, MemoryLifeline

WORKER = {"kind": "kafka", "bootstrap.servers": "127.0.0.1:1", "offset.storage.topic": "o"}
NOBODY = "127.0.0.1:1, localhost:2"
SOURCE = {"producer.override.bootstrap.servers": NOBODY}
SINK = {"consumer.override.bootstrap.servers": NOBODY}


def lifeline(folder: Path, kind: TaskKind, config: dict[str, str], **more: Any) -> MemoryLifeline:
    spec = BodyBench(folder, scripted(), kind=kind, config=config).lifeline.spec
    return MemoryLifeline(replace(spec, **{"transport": WORKER, **more}), 60_000, print)


def waited(line: MemoryLifeline, at: int | None = None, then: Any = None) -> int:
    """Return how often the task waited until brokers were there, or were no longer needed."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == at:
            then()

    await_brokers(line, sleep=sleep, now=lambda: sum(waits))
    return len(waits)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.mark.parametrize(
    ("kind", "config", "role"),
    [(TaskKind.SOURCE, SOURCE, "producer"), (TaskKind.SINK, SINK, "consumer")],
)
def test_nobody_answers(tmp_path: Path, kind: TaskKind, config: Any, role: str) -> None:
    line = lifeline(tmp_path, kind, config)
    said = (
        rf"no broker was reached within {PATIENCE_S} s: 127.0.0.1:1: Connection refused, "
        rf"localhost:2: Connection refused. Check {role}.override.bootstrap.servers"
    )
    with pytest.raises(RefusedError, match=said):
        waited(line)


def test_the_body_fails_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_reach, "PATIENCE_S", 0)
    ended = run_body(lifeline(tmp_path, TaskKind.SOURCE, SOURCE))
    assert ended.outcome is TaskOutcome.FAILED
    assert "no broker was reached" in ended.reason


@pytest.mark.parametrize(
    ("kind", "config", "more"),
    [
        (TaskKind.SOURCE, SOURCE, {"reached": True}),
        (TaskKind.SOURCE, SINK, {}),
        (TaskKind.SINK, SOURCE, {}),
        (TaskKind.SOURCE, {}, {}),
        (TaskKind.SINK, {}, {}),
        (TaskKind.SOURCE, SOURCE, {"transport": {"kind": "embedded"}}),
    ],
)
def test_brokers_that_the_worker_or_a_run_has_reached_are_not_asked(
    tmp_path: Path, kind: TaskKind, config: Any, more: Any
) -> None:
    assert waited(lifeline(tmp_path, kind, config, **more)) == 0


def test_one_that_answers_is_enough(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = f"{NOBODY},PLAINTEXT://127.0.0.1:{listener.getsockname()[1]}"
    config = {"producer.override.bootstrap.servers": servers}
    monkeypatch.setattr(first_answer, "ASK_S", 0.1)  # this one does not answer
    assert waited(lifeline(tmp_path, TaskKind.SOURCE, config)) == 0


@pytest.fixture
def closing(listener: socket.socket) -> Iterator[str]:
    """A listener for TLS, as a client without TLS sees it."""
    listener.settimeout(0.05)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            with suppress(TimeoutError):
                taken, _ = listener.accept()
                taken.recv(1000)
                taken.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    ended.set()
    thread.join()


@pytest.mark.parametrize("kind", [TaskKind.SOURCE, TaskKind.SINK])
def test_a_login_of_the_worker_alone_is_told(
    tmp_path: Path, closing: str, kind: TaskKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task was RUNNING and RESTARTING for good, with "Timed out" as its reason."""
    monkeypatch.setattr(first_reach, "PATIENCE_S", 0)
    worker = {**WORKER, "bootstrap.servers": closing, "security.protocol": "SSL"}
    line = lifeline(tmp_path, kind, {}, transport=worker)
    role = "producer" if kind is TaskKind.SOURCE else "consumer"
    said = (
        rf"{closing}: the other side closes each connection before it answers; check "
        rf"security.protocol, here PLAINTEXT, and the port. The worker's own security settings are "
        rf"not for a connector's {role}s: give the worker {role}.sasl"
    )
    with pytest.raises(RefusedError, match=said):
        waited(line)


def test_a_login_that_is_the_workers_is_not_tried_again(tmp_path: Path, closing: str) -> None:
    worker = {**WORKER, "bootstrap.servers": closing}
    assert waited(lifeline(tmp_path, TaskKind.SOURCE, {}, transport=worker)) == 0


def test_a_host_without_an_address_is_judged_elsewhere(tmp_path: Path) -> None:
    config = {"producer.override.bootstrap.servers": "nobroker.invalid:9092"}
    assert waited(lifeline(tmp_path, TaskKind.SOURCE, config)) == 0


def test_a_stop_is_not_kept_waiting(tmp_path: Path) -> None:
    line = lifeline(tmp_path, TaskKind.SOURCE, SOURCE)
    assert waited(line, 2, lambda: line.deliver(StopTask())) == 2
    line = lifeline(tmp_path, TaskKind.SOURCE, SOURCE)
    with pytest.raises(LifelineGone):
        waited(line, 2, lambda: line.lose("the worker is gone"))
