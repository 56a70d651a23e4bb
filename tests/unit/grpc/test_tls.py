"""TLS of the gRPC API, with certificates made by openssl and real clients on real sockets."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from support.grpc.pem import make_pem
from support.kafka.worker_file import WORKER_FILE
from support.rest.worker import whole_worker

from headgate_grpc.client import Client, HeadgateError, aio
from headgate_grpc.client.address import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from headgate_grpc.tls import Tls
from headgate_runtime.api.serving import UnservedError, serve_worker
from headgate_runtime.api.worker_backend import WorkerBackend
from headgate_runtime.config.properties import parse_properties
from headgate_runtime.config.settings import DISTRIBUTED, WorkerSettings
from headgate_runtime.config.worker_file import check_worker_file
from headgate_runtime.plugins.rest import RestPlugins
from headgate_runtime.worker.loggers import Loggers

LISTENER = "grpcs://127.0.0.1:0"


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pem(tmp_path_factory.mktemp("pem"))


def settings(pem: Path, *, clients: bool = False, **more: str) -> WorkerSettings:
    texts = {
        "headgate.grpc.listeners": LISTENER,
        "headgate.grpc.ssl.certificate.file": f"{pem}/server.pem",
        "headgate.grpc.ssl.key.file": f"{pem}/server.key",
    }
    if clients:
        texts["headgate.grpc.ssl.client.ca.file"] = f"{pem}/ca.pem"
    named = {f"headgate.grpc.{key.replace('_', '.')}": text for key, text in more.items()}
    lines = "".join(f"{key}={text}\n" for key, text in {**texts, **named}.items())
    return check_worker_file(parse_properties(WORKER_FILE + lines, "f"), DISTRIBUTED).settings


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerBackend]:
    with whole_worker(tmp_path_factory.mktemp("tls")) as (rest, worker):
        root = {"version": "test", "commit": "c", "kafka_cluster_id": "embedded"}
        made = WorkerBackend(rest, root, RestPlugins(worker.settings), Loggers())
        made.serve(worker)
        made.ready = True
        yield made


@pytest.fixture
def trusting(pem: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a client that trusts the server's authority."""
    monkeypatch.setenv(CA_VARIABLE, f"{pem}/ca.pem")
    return monkeypatch


def show(environment: pytest.MonkeyPatch, pem: Path, name: str) -> None:
    environment.setenv(CERTIFICATE_VARIABLE, f"{pem}/{name}.pem")
    environment.setenv(KEY_VARIABLE, f"{pem}/{name}.key")


def version_told(address: str) -> str:
    with Client(address, timeout_s=10) as client:
        return client.get_cluster().version


def test_clients_that_trust_it_are_answered_and_nobody_else(
    pem: Path, backend: WorkerBackend, trusting: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        server = serve_worker(settings(pem), backend, stack)
        address = str(server.bound[0])
        assert address.startswith("grpcs://127.0.0.1:")
        assert version_told(address) == "test"
        with pytest.raises(HeadgateError, match="UNAVAILABLE"):
            version_told(address.replace("grpcs:", "grpc:"))
        trusting.setenv(CA_VARIABLE, f"{pem}/other-ca.pem")
        with pytest.raises(HeadgateError, match="UNAVAILABLE"):
            version_told(address)


def test_the_client_for_asyncio_has_it_too(
    pem: Path, backend: WorkerBackend, trusting: pytest.MonkeyPatch
) -> None:
    async def told(address: str) -> str:
        async with aio.AsyncClient(address, timeout_s=10) as client:
            return (await client.get_cluster()).version

    with ExitStack() as stack:
        server = serve_worker(settings(pem), backend, stack)
        assert asyncio.run(told(str(server.bound[0]))) == "test"


def test_where_clients_need_a_certificate_it_must_be_of_their_authority(
    pem: Path, backend: WorkerBackend, trusting: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        server = serve_worker(settings(pem, clients=True), backend, stack)
        address = str(server.bound[0])
        with pytest.raises(HeadgateError, match="UNAVAILABLE"):
            version_told(address)
        show(trusting, pem, "stranger")
        with pytest.raises(HeadgateError, match="UNAVAILABLE"):
            version_told(address)
        show(trusting, pem, "client")
        assert version_told(address) == "test"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"ssl_certificate_file": ""}, "headgate.grpc.ssl.certificate.file is not set"),
        ({"ssl_key_file": ""}, "headgate.grpc.ssl.key.file is not set"),
        ({"ssl_key_file": "{pem}/client.key"}, "cannot be used together"),
        ({"ssl_key_file": "{pem}/locked.key"}, "is encrypted, and gRPC takes no password"),
        ({"ssl_certificate_file": "{pem}/names"}, "expected a PEM certificate and its key"),
        ({"ssl_certificate_file": "{pem}/none"}, "cannot be read: No such file"),
        ({"ssl_client_ca_file": "{pem}/names"}, "expected PEM certificates of authorities"),
        ({"listeners": "grpc://127.0.0.1:0"}, "write it as grpcs://HOST:PORT"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_cannot_work_is_told_at_the_start(
    pem: Path, backend: WorkerBackend, more: dict[str, str], words: str
) -> None:
    named = {key: text.replace("{pem}", str(pem)) for key, text in more.items()}
    with ExitStack() as stack, pytest.raises(UnservedError) as caught:
        serve_worker(settings(pem, **named), backend, stack)
    assert words in str(caught.value)


def test_a_client_with_half_a_pair_is_told(pem: Path, trusting: pytest.MonkeyPatch) -> None:
    trusting.setenv(KEY_VARIABLE, f"{pem}/client.key")
    with pytest.raises(ValueError, match="go together"):
        Client("grpcs://127.0.0.1:1")
    trusting.setenv(CERTIFICATE_VARIABLE, f"{pem}/none")
    with pytest.raises(ValueError, match=r"HEADGATE_CERTIFICATE_FILE: .* cannot be read"):
        Client("grpcs://127.0.0.1:1")


def test_what_was_read_serves_any_number_of_servers(pem: Path) -> None:
    tls = Tls.read(f"{pem}/server.pem", f"{pem}/server.key", f"{pem}/ca.pem")
    assert isinstance(tls.credentials(), grpc.ServerCredentials)
    assert b"PRIVATE KEY" not in tls.certificate
