"""Clients of a real worker that are killed, do not read, do not answer, or ping without end.

Each loses its connection, no other client notices, and nothing is left of it.
"""

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.grpc.http2 import CALM, GOAWAY, PING, RawHttp2
from support.grpc.worker import Served, grpc_worker
from support.rest.world import wait_until

from headgate_grpc import server
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
STOPPED = connector_pb2.TARGET_STATE_STOPPED
WATCH = "/headgate.v1.ConnectorService/WatchConnectors"
PROMISED_S = 40
"""By docs/run/grpc.md a client that does not answer pings is closed after so long."""
PINGS = 200_000
WATCHES = 20
WATCHING = """
import sys
from headgate_grpc.client import connect
from headgate_grpc.v1 import connector_service_pb2 as pb

with connect(sys.argv[1]) as client:
    streams = [client.connectors.WatchConnectors(pb.WatchConnectorsRequest()) for _ in range(20)]
    for stream in streams:
        while not next(stream).synced:
            pass
    print("watching", flush=True)
    sys.stdin.read()
"""


def options(changed: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return the options of the server, with other times."""
    known = dict(server.OPTIONS)
    found = {f"grpc.{name}": value for name, value in changed.items()}
    assert found.keys() <= known.keys(), "the server has no such option"
    return tuple({**known, **found}.items())


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    """The parameter: options of the server that are changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "OPTIONS", options(getattr(request, "param", {})))
        with grpc_worker(tmp_path) as served:
            yield served


def watches(served: Served) -> int:
    assert served.server.hub is not None
    return len(served.server.hub._watchers)


@contextlib.contextmanager
def watching_process(served: Served) -> Iterator["subprocess.Popen[str]"]:
    """A process with `WATCHES` watches."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    words = [sys.executable, "-c", WATCHING, served.address]
    with subprocess.Popen(words, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "watching\n"
            assert watches(served) == WATCHES
            yield process
        finally:
            process.kill()


@pytest.mark.exhaustive
def test_watches_of_a_client_that_is_killed_are_gone_at_once(served: Served) -> None:
    with watching_process(served) as process:
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: watches(served) == 0, 10)


SILENT: tuple[dict[str, int], ...] = (
    {"keepalive_time_ms": 1_000, "keepalive_timeout_ms": 500, "http2.ping_timeout_ms": 1_500},
    {},
)
"""Quick times, and those of the server."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("served", SILENT, indirect=True, ids=["quick", "as shipped"])
def test_watches_of_a_client_that_is_frozen_are_gone_when_promised(
    served: Served, request: pytest.FixtureRequest
) -> None:
    """The client lives, and its machine acknowledges what is sent. A client behind a lost link
    would not."""
    quick = "quick" in request.node.name
    with watching_process(served) as process:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: watches(served) == 0, 10 if quick else PROMISED_S + 5)


@pytest.mark.parametrize("served", SILENT[:1], indirect=True)
def test_a_client_that_reads_nothing_costs_little_and_loses_its_connection(served: Served) -> None:
    """All connectors change many times while the client is connected."""
    for n in range(10):
        served.client.create(f"c{n}", {**SINK, "filler": "x" * 20_000}, STOPPED)
    with RawHttp2(served.address, window=0) as raw:
        raw.greet()
        raw.call(1, WATCH)
        wait_until(lambda: watches(served) == 1, 10)
        assert served.server.hub is not None
        (watcher,) = served.server.hub._watchers
        for n in range(20):
            served.client.put_config(f"c{n % 10}", {**SINK, "filler": str(n) + "x" * 20_000})
        assert len(watcher.pending) <= 10
        wait_until(lambda: watches(served) == 0, 20)
        assert served.client.get("c9").config["filler"].startswith("19x")


@pytest.mark.parametrize("served", [{"max_connection_idle_ms": 500}], indirect=True)
def test_a_connection_without_a_call_is_closed(served: Served) -> None:
    with RawHttp2(served.address) as raw:
        raw.greet()
        frames = raw.until_closed(10)
        assert GOAWAY in [frame.type for frame in frames]


@pytest.mark.parametrize("served", [{"server_handshake_timeout_ms": 500}], indirect=True)
@pytest.mark.parametrize("greets", [True, False])
def test_who_connects_and_says_nothing_is_closed(served: Served, greets: bool) -> None:
    with RawHttp2(served.address) as raw:
        if greets:
            raw.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        raw.until_closed(10)


def test_pings_without_end_are_not_answered_without_end(served: Served) -> None:
    with RawHttp2(served.address) as raw:
        raw.greet()
        with pytest.raises(ConnectionError):
            for _ in range(PINGS):
                raw.send(PING, body=bytes(8))
        frames = raw.until_closed(10)
        goaways = [frame for frame in frames if frame.type == GOAWAY]
        assert [frame.error_code for frame in goaways] == [CALM]
    assert served.client.get_cluster().workers


def test_more_calls_than_one_connection_may_have_wait_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "OPTIONS", options({"max_concurrent_streams": 3}))
    with grpc_worker(tmp_path) as served:
        streams = [
            served.client.connectors.WatchConnectors(pb.WatchConnectorsRequest()) for _ in range(3)
        ]
        for stream in streams:
            next(stream)
        shown: list[object] = []
        waits = threading.Thread(target=lambda: shown.append(served.client.get_cluster()))
        waits.start()
        with RawHttp2(served.address) as raw:
            raw.greet()
            raw.call(1, WATCH)
            wait_until(lambda: watches(served) == 4, 10)
        assert not shown
        streams[0].cancel()
        waits.join(20)
        assert shown
        for stream in streams:
            stream.cancel()
