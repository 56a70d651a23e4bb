"""Listeners of the gRPC API, and addresses that clients take."""

import os
import re
import socket
import stat
from pathlib import Path

import pytest

from headgate.herder.messages import ErrorKind, Failure
from headgate_grpc.client import connect, find_address
from headgate_grpc.client.address import OPTIONS
from headgate_grpc.listeners import Listener, ListenError, listeners_of
from headgate_grpc.server import GrpcServer


class NotReady:
    """Stands behind a server in these tests: it is starting for ever."""

    ready = False


def test_listeners_are_hosts_with_ports_or_paths() -> None:
    assert listeners_of(["grpc://:8085", "grpc://[::1]:1", " unix:/run/x.sock "]) == (
        Listener("127.0.0.1", 8085),
        Listener("::1", 1),
        Listener(path=Path("/run/x.sock")),
    )


@pytest.mark.parametrize(
    "given",
    [
        "8085",
        "http://:8085",
        "grpc://host",
        "grpc://host:x",
        "grpc:host:1",
        "unix:",
        "grpc://h:70000",
    ],
)
def test_what_is_no_listener_is_refused_by_name(given: str) -> None:
    with pytest.raises(ValueError, match="is no listener; expected one like grpc://"):
        listeners_of([given])


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = GrpcServer((Listener("127.0.0.1", port),), NotReady())  # type: ignore[arg-type]
        with pytest.raises(ListenError) as caught:
            server.start()
    assert f"cannot listen at grpc://127.0.0.1:{port}" in str(caught.value.strerror)


@pytest.mark.parametrize("depth", [1, 12])
def test_a_socket_is_its_owners_alone_however_deep_it_lies(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*(["a-folder-deep-down"] * depth))
    folder.mkdir(parents=True)
    path = folder / "grpc.sock"
    server = GrpcServer((Listener(path=path),), NotReady())  # type: ignore[arg-type]
    server.start()
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [each.name for each in folder.iterdir() if each.is_socket()] == ["grpc.sock"]
        with connect(f"unix:{path}") as client, pytest.raises(Exception) as caught:
            client.get("orders")
        assert "still starting up" in str(caught.value)
        assert caught.value.reason == "NOT_READY"  # type: ignore[attr-defined]
    finally:
        server.close()
    assert not path.exists()
    assert list(folder.iterdir()) == []


class Hearing:
    """Stands behind a server, and refuses all that it is asked."""

    ready = True

    def __init__(self) -> None:
        self.origins: list[str] = []

    async def ask(self, call: object, timeout_ms: int, origin: str = "") -> Failure:
        self.origins.append(origin)
        return Failure(ErrorKind.NOT_FOUND, "no such connector")

    def watch(self, touched: object) -> None: ...


@pytest.mark.parametrize("ours", [True, False])
def test_on_a_socket_a_client_of_ours_says_who_it_is(
    tmp_path: Path, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Unix socket has no address, so the worker's log could not name the caller."""
    if not ours:
        monkeypatch.setattr("headgate_grpc.client.sync.options", lambda _: OPTIONS)
    path, backend = tmp_path / "grpc.sock", Hearing()
    server = GrpcServer((Listener(path=path),), backend)  # type: ignore[arg-type]
    server.start()
    try:
        refused = pytest.raises(Exception, match="no such connector")
        with connect(f"unix:{path}") as client, refused:
            client.pause("orders")
    finally:
        server.close()
    assert len(backend.origins) == 1
    said = rf"over gRPC by \w+, process {os.getpid()}" if ours else "over gRPC by a local client"
    assert re.fullmatch(said, backend.origins[0])


def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "grpc.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    server = GrpcServer((Listener(path=path),), NotReady())  # type: ignore[arg-type]
    server.start()
    server.close()
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "grpc.sock"
    path.write_text("mine")
    server = GrpcServer((Listener(path=path),), NotReady())  # type: ignore[arg-type]
    with pytest.raises(ListenError):
        server.start()
    assert path.read_text() == "mine"


def test_the_one_socket_below_a_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LookupError, match="no headgate up runs"):
        find_address(tmp_path, {})
    held = []
    for name in ("state", "other"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].bind("grpc.sock")
        monkeypatch.chdir(tmp_path)
        if name == "state":
            assert find_address(tmp_path, {}) == f"unix:{tmp_path}/state/grpc.sock"
    with pytest.raises(LookupError, match="several headgate up"):
        find_address(tmp_path, {})
    assert find_address(tmp_path, {"HEADGATE_URL": "grpc://h:1"}) == "grpc://h:1"
    for each in held:
        each.close()


@pytest.mark.parametrize("address", ["http://h:1", "h:1", "grpc://h", "unix:"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of the gRPC API"):
        connect(address)
