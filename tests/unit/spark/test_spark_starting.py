"""Spark starts beside the workers. Tasks that need it wait, and everything else goes on."""

import importlib.metadata
import queue
import socket
import sys
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.spark.starting import LISTENS_WHEN_TOLD, until

from headgate_runtime.command.errors import UpError
from headgate_runtime.command.worker import CommandError, SparkWatch
from headgate_runtime.spark.service import SparkService, WorkerSpark
from headgate_runtime.spark.settings import SparkSettings
from headgate_spark.check import OLDEST
from headgate_spark.launcher import SparkLauncher
from headgate_spark.server import START_TIMEOUT_S, SparkServer, free_port
from headgate_spark.sessions import (
    NotListeningError,
    Sessions,
    wait_listening,
    with_cause,
)

ROOT = Path(__file__).parents[3]


def test_a_wait_ends_when_the_server_listens() -> None:
    port = free_port()
    over = threading.Event()

    def wait() -> None:
        wait_listening(f"sc://localhost:{port}/;token=x", 20)
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not over.wait(0.2)
    with socket.create_server(("127.0.0.1", port)):
        assert over.wait(20)


def test_a_wait_ends_in_time_or_when_nobody_waits() -> None:
    remote = f"sc://localhost:{free_port()}"
    with pytest.raises(NotListeningError, match=r"does not listen after 0\.1 s; its log says why"):
        wait_listening(remote, 0.1)
    with pytest.raises(NotListeningError, match="still starting when the task was stopped"):
        wait_listening(remote, 20, lambda: True)


@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_task_that_is_ended_while_spark_starts_is_not_launched_later(end: str) -> None:
    launcher = SparkLauncher(f"sc://localhost:{free_port()}", "headgate_spark:body", 60)
    ended = threading.Event()
    errors: list[str | None] = []

    def tell(error: str | None) -> None:
        errors.append(error)
        ended.set()

    launcher.launch("run", "", tell)
    assert not ended.wait(0.2)
    if end == "kill":
        launcher.kill("run")
    else:
        launcher.close()
    assert ended.wait(20)
    assert "still starting when the task was stopped" in str(errors[0])


def test_tasks_are_given_to_spark_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job of one does not wait until that of another has begun, or is over."""
    together = threading.Barrier(4)

    class Job:
        def mapInArrow(self, *_given: object) -> "Job":  # noqa: N802
            return self

        def collect(self) -> list[dict[str, None]]:
            together.wait(20)
            return [{"error": None}]

    session = SimpleNamespace(addTag=lambda _tag: None, range=lambda *_given: Job())
    monkeypatch.setattr(Sessions, "get", lambda _self, _given_up: session)
    launcher = SparkLauncher("sc://localhost:1", "headgate_spark:body", 60)
    ended = queue.Queue[str | None]()
    for number in range(4):
        launcher.launch(f"run/{number}", "", ended.put)
    assert [ended.get(timeout=20) for _ in range(4)] == [None] * 4


def service_in(folder: Path, said: list[str]) -> SparkService:
    wanted = WorkerSpark("spark", folder, SparkSettings(master="local[1]"))
    return SparkService(wanted, warn=said.append, marked=lambda _who, _what: None)


def test_workers_start_while_spark_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def command(server: SparkServer) -> list[str]:
        return [sys.executable, "-c", LISTENS_WHEN_TOLD, str(go), str(server.port)]

    monkeypatch.setattr(SparkServer, "_command", command)
    said: list[str] = []
    service = service_in(tmp_path, said)
    try:
        service.start([1])
        known = service.worker_settings()
        assert known["remote"].startswith("sc://localhost:")
        of_tasks = {f"spark.{key}": value for key, value in known.items()}
        sessions = Sessions.of_task(known["remote"], of_tasks, shares=True)
        assert sessions._patience_s == START_TIMEOUT_S and sessions._shared
        service.tick()
        assert not any("Spark is up" in line for line in said)
        go.touch()
        until(lambda: any("Spark is up" in line for line in said))
        service.tick()
    finally:
        service.close()


def test_a_cluster_for_a_log_that_is_a_file_is_told_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(SparkServer, "_command", lambda _self: ["sleep", "60"])
    wanted = WorkerSpark("spark", tmp_path, SparkSettings(master="spark://127.0.0.1:7077"))
    for adapter, count in (("headgate_embedded", 1), ("headgate_kafka", 0)):
        said: list[str] = []
        service = SparkService(
            wanted, warn=said.append, marked=lambda _who, _what: None, adapter=adapter
        )
        try:
            service.start([1])
        finally:
            service.close()
        told = "[spark] master is spark://127.0.0.1:7077: its executors must run on this machine"
        assert len([line for line in said if line.startswith(told)]) == count
        assert service.worker_settings()["host"] == "127.0.0.1"


def test_a_first_start_that_fails_ends_the_run_with_spark_s_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        SparkServer, "_command", lambda _self: ["sh", "-c", "echo bad setting >&2; exit 3"]
    )
    service = service_in(tmp_path, [])
    try:
        service.start([1])
        with pytest.raises(UpError, match=r"ended with code 3 while it started.*\n.*bad setting"):
            until(lambda: service.tick() is not None)
    finally:
        service.close()


@pytest.mark.parametrize("version", ["3.5.4", "4.2.0", "unknown"])
def test_a_spark_that_is_too_old_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    class Old:
        def __init__(self, _remote: str) -> None: ...

        def get(self) -> Any:
            return SimpleNamespace(version=version)

        def close(self) -> None: ...

    monkeypatch.setattr("headgate_spark.check.Sessions", Old)
    told = f"is of version {version}, and Headgate needs 4.3 or newer"
    remote = WorkerSpark("spark", tmp_path, SparkSettings(remote="sc://127.0.0.1:1"))
    service = SparkService(remote, warn=lambda _: None, marked=lambda _who, _what: None)
    with pytest.raises(UpError, match=f"Spark at sc://127.0.0.1:1 {told}"):
        service.start([1])
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)
    with pytest.raises(UpError, match=rf"the pyspark that is installed {told}.*pip install"):
        service_in(tmp_path, []).start([1])


def test_the_oldest_spark_is_the_one_that_is_installed_with_headgate() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert f"pyspark[connect]>={OLDEST[0]}.{OLDEST[1]}" in extras["spark"]


def test_the_cause_at_the_bottom_of_an_error_of_spark_is_told() -> None:
    error = RuntimeError("[FAILED_READ_FILE] Encountered error while reading c.json.\n\nmore")
    first = "RuntimeError: [FAILED_READ_FILE] Encountered error while reading c.json."
    assert with_cause(error) == first
    error._stacktrace = (  # type: ignore[attr-defined]
        "a.Outer\n\tat one\nCaused by: a.B: [MALFORMED] x: [null]\n\tat two\n"
        "Caused by: a.C: [CANNOT_PARSE] the value x: no number\n\tat three\n"
    )
    assert with_cause(error) == f"{first}; cause: [CANNOT_PARSE] the value x: no number"


def test_a_worker_whose_spark_cannot_start_stops_and_says_why() -> None:
    stopped = threading.Event()

    def tick() -> None:
        raise UpError("Spark ended with code 3", 1)

    watch = SparkWatch(tick, stopped.set)
    assert stopped.wait(20)
    with pytest.raises(CommandError, match="Spark ended with code 3"):
        watch.close()
