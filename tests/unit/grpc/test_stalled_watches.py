"""The cost, for its worker, of a client that opens a watch and never reads what it is sent."""

import contextlib
import os
import re
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
from support.grpc.http2 import ACK, DATA, PING, SETTINGS, RawHttp2

from headgate_grpc.client import Client
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1.connector_service_pb2 import WatchConnectorsRequest

pytestmark = pytest.mark.slow

WATCH = "/headgate.v1.ConnectorService/WatchConnectors"
CONNECTORS = 100
PAD = 10_000
"""Bytes of each config: all together are 1 MB, and no window takes a tenth of that."""
CLIENTS = 200
ROUNDS = 3
"""How often each connector is changed, before and while the clients stall."""
EACH_KIB_MAX = 210
"""Promised are 256. A message that is kept beside its bytes while a client stalls costs 90 more."""
SERVE = """
import sys
from pathlib import Path
from support.grpc.worker import grpc_worker

with grpc_worker(Path(sys.argv[1])) as served:
    print(served.address, flush=True)
    sys.stdin.read()
"""


class Stalled:
    """Clients that are alive, and answer pings, but take no more than one window of a watch."""

    def __init__(self, address: str, count: int) -> None:
        self.received = [0] * count
        self.closed = 0
        self._connections = [RawHttp2(address) for _ in range(count)]
        self._over = threading.Event()
        request = WatchConnectorsRequest(view=connector_pb2.CONNECTOR_VIEW_BASIC)
        for connection in self._connections:
            connection.greet()
            connection.call(1, WATCH, request.SerializeToString())
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for connection in self._connections:
            connection.socket.close()

    def _live(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number, connection in enumerate(self._connections):
                selector.register(connection.socket, selectors.EVENT_READ, number)
            while not self._over.is_set():
                for key, _ in selector.select(0.2):
                    if not self._take(key.data):
                        selector.unregister(key.fileobj)
                        self.closed += 1

    def _take(self, number: int) -> bool:
        """Takes the frames that have come. False: the server has closed the connection."""
        connection = self._connections[number]
        with contextlib.suppress(TimeoutError):
            while (frame := connection.frame(0.001)) is not None:
                if frame.type == DATA:
                    self.received[number] += len(frame.body)
                elif frame.type == PING and not frame.flags & ACK:
                    connection.send(PING, ACK, 0, frame.body)
                elif frame.type == SETTINGS and not frame.flags & ACK:
                    connection.send(SETTINGS, ACK)
            return False
        return True


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of a worker in a process of its own."""
    tests = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tests)},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.communicate(timeout=60)


def pss_kib(pid: int) -> int:
    found = re.search(r"^Pss: +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found is not None
    return int(found[1])


def change_all(client: Client) -> None:
    for _ in range(ROUNDS):
        for number in range(CONNECTORS):
            pad = f"{time.monotonic_ns()}".ljust(PAD, "x")
            client.patch_config(f"connector-{number}", {"pad": pad})


def test_a_client_that_stalls_costs_at_most_256_kib(
    worker: tuple[str, int], say: Callable[[str], None]
) -> None:
    address, pid = worker
    with Client(address, timeout_s=60) as client:
        sink = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
        for number in range(CONNECTORS):
            name = f"connector-{number}"
            client.create(name, {**sink, "pad": "x"}, connector_pb2.TARGET_STATE_STOPPED)
        with Stalled(address, 1) as first:  # the table of all connectors is there from now on
            change_all(client)
            assert first.received[0]
            before = pss_kib(pid)
            with Stalled(address, CLIENTS) as stalled:
                change_all(client)
                taken = (pss_kib(pid) - before) / CLIENTS
                say(f"{taken:.0f} KiB for each of {CLIENTS} clients")
                assert stalled.closed == 0
                # Each has got its window, and no client the 1 MB that there is.
                assert all(30_000 < size < 70_000 for size in stalled.received)
    assert taken <= EACH_KIB_MAX
