"""A command says what it found at an address where another server listens, on real sockets."""

import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from support.grpc.pem import make_pem
from support.grpc.worker import grpc_worker
from typer.testing import CliRunner

from headgate_runtime.command.parser import app
from headgate_runtime.remote.listener import listens


@contextmanager
def answering(said: bytes, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port whose server says the same to everybody, and hangs up."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                connection.recv(4096)
                connection.sendall(said)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


@contextmanager
def grpc_with_tls(pem: Path, *, clients: bool = False) -> Iterator[int]:
    """`clients`: whether they need a certificate."""
    key, certificate = Path(pem, "server.key"), Path(pem, "server.pem")
    server = grpc.server(ThreadPoolExecutor(1))
    pairs = [(key.read_bytes(), certificate.read_bytes())]
    authority = Path(pem, "ca.pem").read_bytes() if clients else None
    proof = grpc.ssl_server_credentials(pairs, authority, clients)
    port = server.add_secure_port("127.0.0.1:0", proof)
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait(5)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A port for each thing that may listen."""
    folder = tmp_path_factory.mktemp("listener")
    pem = make_pem(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem / "server.pem", pem / "server.key")
    with ExitStack() as stack:
        worker = stack.enter_context(grpc_worker(folder / "worker"))
        yield {
            "grpc": int(worker.address.rpartition(":")[2]),
            "http": int(worker.rest.url.rstrip("/").rpartition(":")[2]),
            "grpcs": stack.enter_context(grpc_with_tls(pem)),
            "https": stack.enter_context(answering(b"HTTP/1.1 200 OK\r\n\r\n", tls)),
            "other": stack.enter_context(answering(b"220 mail.example ESMTP\r\n")),
            "silent": stack.enter_context(answering(b"")),
        }


@pytest.mark.parametrize("kind", ["grpc", "http", "grpcs", "https", "other", "silent"])
def test_what_listens_is_found_out(ports: dict[str, int], kind: str) -> None:
    found = listens("127.0.0.1", ports[kind])
    assert found == (kind if kind not in ("other", "silent") else "")


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert listens("127.0.0.1", port) is None


@pytest.mark.parametrize(
    ("scheme", "kind", "words"),
    [
        ("http", "grpc", "the port speaks gRPC without TLS\n  next: --url grpc://127.0.0.1:{}"),
        ("grpc", "http", "the port speaks HTTP without TLS\n  next: --url http://127.0.0.1:{}"),
        ("grpcs", "grpc", "the port speaks gRPC without TLS\n  next: --url grpc://127.0.0.1:{}"),
        ("grpc", "grpcs", "the port speaks gRPC with TLS\n  next: --url grpcs://127.0.0.1:{}"),
        ("https", "http", "the port speaks HTTP without TLS\n  next: --url http://127.0.0.1:{}"),
        ("http", "https", "the port speaks HTTP with TLS\n  next: --url https://127.0.0.1:{}"),
        ("grpcs", "grpcs", "its certificate is not trusted\n  next: set HEADGATE_CA_FILE"),
        ("https", "https", "its certificate is not trusted\n  next: set HEADGATE_CA_FILE"),
        ("grpc", "other", "speaks neither HTTP nor gRPC\n  next: give the address of a worker's"),
        ("http", "silent", "speaks neither HTTP nor gRPC\n  next: give the address of a worker's"),
    ],
)
def test_a_wrong_address_ends_with_the_right_one(
    ports: dict[str, int], scheme: str, kind: str, words: str
) -> None:
    port = ports[kind]
    done = CliRunner().invoke(app, ["status", "--url", f"{scheme}://127.0.0.1:{port}"])
    assert done.exit_code == 1
    assert words.format(port) in done.stderr, done.stderr


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_a_listener_that_wants_certificates_says_so(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the message was "Socket closed" and "ask again in a moment"."""
    pem = make_pem(tmp_path)
    monkeypatch.setenv("HEADGATE_CA_FILE", f"{pem}/ca.pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem / "server.pem", pem / "server.key")
    tls.load_verify_locations(pem / "ca.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    with ExitStack() as stack:
        if scheme == "grpcs":
            port = stack.enter_context(grpc_with_tls(pem, clients=True))
        else:
            port = stack.enter_context(answering(b"HTTP/1.1 200 OK\r\n\r\n", tls))
        asked = ["status", "--url", f"{scheme}://127.0.0.1:{port}"]
        done = CliRunner().invoke(app, asked)
    assert done.exit_code == 1
    assert "it takes only clients with a certificate" in done.stderr, done.stderr
    assert "next: set HEADGATE_CERTIFICATE_FILE and HEADGATE_KEY_FILE" in done.stderr


def test_rest_with_tls_trusts_the_authority_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = make_pem(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem / "server.pem", pem / "server.key")
    body = b'{"root": {"level": "INFO"}}'
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with answering(head.encode() + body, tls) as port:
        listed = ["loggers", "list", "--url", f"https://127.0.0.1:{port}"]
        assert CliRunner().invoke(app, listed).exit_code == 1
        monkeypatch.setenv("HEADGATE_CA_FILE", f"{pem}/ca.pem")
        done = CliRunner().invoke(app, listed)
        assert (done.exit_code, done.stdout.split()) == (0, ["LOGGER", "LEVEL", "root", "INFO"])
        monkeypatch.setenv("HEADGATE_CA_FILE", f"{pem}/none.pem")
        done = CliRunner().invoke(app, listed)
        assert (done.exit_code, "cannot be read" in done.stderr) == (2, True)
