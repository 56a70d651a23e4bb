"""``--metrics`` of `headgate up` serves metrics. Some of its clients send nothing, or no
request."""

import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.depth import tries
from support.rest.world import wait_until

from headgate.herder.messages import WorkerView
from headgate_embedded import open_transport, transport_settings
from headgate_runtime.command.errors import UpError
from headgate_runtime.up import metrics_server
from headgate_runtime.up.metrics_server import CONNECTIONS_MAX, MetricsServer
from headgate_runtime.up.observe import Observer
from headgate_runtime.up.snapshot import Phase, Snapshot, WorkerSnapshot
from headgate_runtime.worker.loop import Worker, WorkerConfig


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    made = MetricsServer("127.0.0.1:0")
    yield made
    made.close()


def connected(server: MetricsServer, sent: bytes = b"") -> socket.socket:
    host, _, port = server.address.split("/")[2].rpartition(":")
    made = socket.create_connection((host, int(port)), 10)
    made.sendall(sent)
    return made


def scraped(server: MetricsServer) -> int:
    with urllib.request.urlopen(server.address, timeout=10) as answer:
        answer.read()
        status: int = answer.status
    return status


def test_it_shows_how_busy_the_loop_of_a_worker_is(tmp_path: Path, server: MetricsServer) -> None:
    """`headgate up` asks the worker over the log."""
    settings = {"headgate.task.runner": "thread"}
    worker = Worker(WorkerConfig("w", "w", transport_settings(tmp_path), settings))
    serving = threading.Thread(target=worker.run)
    serving.start()
    transport = open_transport(transport_settings(tmp_path))
    observer = Observer(transport, {})
    found: list[WorkerView | None] = []

    def answered() -> bool:
        found[:] = observer.describe(["w"])
        return found != [None]

    try:
        wait_until(answered, 20)
    finally:
        worker.stop()
        serving.join()
        observer.close()
        transport.close()
    (view,) = found
    assert view is not None
    assert view.loop is not None
    assert view.loop.commands >= 1
    assert 0 < view.loop.longest_s <= view.loop.seconds
    server.show(Snapshot(0.0, (WorkerSnapshot("w", Phase.UP, 1, view, view),), (), 1))
    with urllib.request.urlopen(server.address, timeout=10) as answer:
        text = answer.read().decode()
    assert f'headgate_worker_loop_commands_total{{worker="w"}} {view.loop.commands}.0' in text
    assert 'headgate_worker_loop_longest_seconds{worker="w"}' in text


def test_connections_that_say_nothing_keep_nobody_out_and_are_few(server: MetricsServer) -> None:
    """Each kept a thread and a descriptor for ever."""
    threads = threading.active_count()
    half = b"GET /metrics HTTP/1.1\r\nX: "
    many = tries(2, 10) * CONNECTIONS_MAX
    silent = [connected(server, half if n % 2 else b"") for n in range(many)]
    assert scraped(server) == 200
    wait_until(lambda: threading.active_count() <= threads + CONNECTIONS_MAX + 1)
    for each in silent:
        each.close()
    wait_until(lambda: threading.active_count() <= threads)


def test_who_says_nothing_is_hung_up_on(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server._Handler, "timeout", 0.2)
    silent = connected(server)
    silent.settimeout(10)
    assert silent.recv(1) == b""


def test_what_is_no_request_is_not_told_on_the_terminal(
    server: MetricsServer, capfd: pytest.CaptureFixture[str]
) -> None:
    with connected(server, b"\x16\x03\x01" + b"\xff" * 70_000 + b"\r\n\r\n") as one:
        one.settimeout(10)
        while one.recv(65_536):
            pass
    assert scraped(server) == 200
    assert capfd.readouterr() == ("", "")


def test_a_taken_port_is_told(server: MetricsServer) -> None:
    with pytest.raises(UpError, match="Address already in use"):
        MetricsServer(server.address.split("/")[2])
