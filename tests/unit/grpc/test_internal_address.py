"""Which of a worker's listeners is the address for other workers."""

import pytest
from support.kafka.worker_file import WORKER_FILE

from headgate_grpc.listeners import listeners_of
from headgate_runtime.api.serving import UnservedError, internal_address
from headgate_runtime.config.properties import parse_properties
from headgate_runtime.config.settings import DISTRIBUTED, WorkerSettings
from headgate_runtime.config.worker_file import check_worker_file


def settings(more: str = "") -> WorkerSettings:
    return check_worker_file(parse_properties(WORKER_FILE + more, "f"), DISTRIBUTED).settings


def address(host: str, *listeners: str, more: str = "") -> str:
    return internal_address(settings(more), host, listeners_of(listeners))


@pytest.mark.parametrize(
    ("host", "listeners", "told"),
    [
        ("w1.example", ["grpc://127.0.0.1:8085", "grpc://0.0.0.0:8086"], "w1.example:8086"),
        ("10.0.0.7", ["grpc://localhost:8085", "grpc://[::]:8086"], "10.0.0.7:8086"),
        ("10.0.0.7", ["unix:/run/h.sock", "grpcs://0.0.0.0:1", "grpc://10.0.0.7:2"], "10.0.0.7:2"),
        ("127.0.0.1", ["grpc://10.0.0.7:8086", "grpc://:8085"], "127.0.0.1:8085"),
        ("localhost", ["grpc://0.0.0.0:8086", "grpc://:8085"], "localhost:8086"),
        ("2001:db8::1", ["grpc://[::1]:1", "grpc://[::]:2"], "[2001:db8::1]:2"),
    ],
)
def test_a_listener_that_others_reach_is_told(host: str, listeners: list[str], told: str) -> None:
    assert address(host, *listeners) == told


def test_listeners_that_nobody_else_reaches_are_named() -> None:
    listeners = ("grpc://:8085", "grpc://localhost:8086")
    with pytest.raises(UnservedError) as caught:
        address("w1.example", *listeners)
    assert "know this one as w1.example" in str(caught.value)
    assert "grpc://127.0.0.1:8085, grpc://localhost:8086" in str(caught.value)
    told = address("w1.example", *listeners, more="headgate.grpc.advertised=proxy:9\n")
    assert told == "proxy:9"


def test_a_listener_with_no_port_is_named() -> None:
    with pytest.raises(UnservedError, match="has no grpc://HOST:PORT"):
        address("w1.example", "unix:/run/h.sock")


def test_with_certificates_it_is_a_listener_with_tls() -> None:
    ca = "headgate.grpc.internal.ca.file=ca.pem\n"
    listeners = ("grpc://0.0.0.0:1", "grpcs://0.0.0.0:2")
    assert address("w1.example", *listeners, more=ca) == "grpcs://w1.example:2"
    more = ca + "headgate.grpc.advertised=proxy:9\n"
    assert address("w1.example", *listeners, more=more) == "grpcs://proxy:9"
    with pytest.raises(UnservedError, match="has no grpcs://HOST:PORT"):
        address("w1.example", "grpc://0.0.0.0:1", more=ca)
