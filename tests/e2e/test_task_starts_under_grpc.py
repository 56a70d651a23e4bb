"""Tasks start while gRPC answers. The process from which they are forked has no gRPC."""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.commands.processes import descendants
from support.grpc.worker import Served, grpc_worker

from headgate_grpc.client import connect
from headgate_grpc.v1 import connector_service_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

STARTS = 1_000
CONNECTORS = 8
CALLERS = 4
START_S = 60
"""A start that takes longer hangs."""
OF_GRPC = ("cygrpc", "google/_upb")


class Load:
    """Callers who list and watch, on connections of their own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._over = threading.Event()
        self.calls = 0
        self.rows = 0
        self._threads = [threading.Thread(target=self._list) for _ in range(CALLERS)]
        self._threads.append(threading.Thread(target=self._watch))
        for thread in self._threads:
            thread.start()

    def _list(self) -> None:
        with connect(self._address, timeout_s=30) as client:
            while not self._over.wait(0.005):
                assert len(list(client.list())) <= CONNECTORS
                self.calls += 1

    def _watch(self) -> None:
        with connect(self._address) as client:
            stream = client.connectors.WatchConnectors(pb.WatchConnectorsRequest())
            for response in stream:
                self.rows += len(response.connectors)
                if self._over.is_set():
                    break
            stream.cancel()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def maps_of_children() -> dict[int, str]:
    """Return the mappings of the zygote and of each task's process, by pid. Processes of other
    tests are below this process, too."""
    found: dict[int, str] = {}
    for process in descendants(os.getpid()):
        if process.kind not in ("zygote", "task", "task ahead"):
            continue
        try:
            found[process.pid] = Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:
            continue  # it has just ended
    return found


def restart_again_and_again(served: Served, name: str) -> float:
    """Restart the task again and again. Return how long the longest start took."""
    longest = 0.0
    with connect(served.address, timeout_s=START_S) as client:
        for _ in range(STARTS // CONNECTORS):
            begun = time.monotonic()
            client.restart_task(name, 0)
            assert client.wait(name, timeout_s=START_S).settled
            longest = max(longest, time.monotonic() - begun)
    return longest


@pytest.mark.timeout(1_200)
def test_a_thousand_starts_under_load_neither_hang_nor_know_grpc(
    tmp_path: Path, say: Callable[[str], None]
) -> None:
    assert "grpc" in sys.modules
    (tmp_path / "in.txt").write_text("a line\n")
    with grpc_worker(tmp_path / "log", {"headgate.task.runner": "process"}) as served:
        names = [f"c{n}" for n in range(CONNECTORS)]
        for name in names:
            config = {"connector.class": "FileStreamSource", "topic": f"t-{name}"}
            served.client.create(name, {**config, "file": str(tmp_path / "in.txt")})
        for name in names:
            served.client.wait(name, timeout_s=START_S)
        load = Load(served.address)
        begun = time.monotonic()
        try:
            with ThreadPoolExecutor(CONNECTORS) as pool:
                longest = max(pool.map(lambda name: restart_again_and_again(served, name), names))
        finally:
            load.end()
        say(
            f"{STARTS} starts in {time.monotonic() - begun:.0f} s, the longest {longest:.1f} s; "
            f"meanwhile {load.calls} listings, {load.rows} rows watched"
        )
        kinds = Counter(process.kind for process in descendants(os.getpid()))
        assert kinds["zygote"] == 1 and kinds["task"] >= CONNECTORS, kinds
        maps = maps_of_children()
        for pid, text in maps.items():
            assert "python" in text.lower(), pid
            assert not [word for word in OF_GRPC if word in text], pid
        assert any(word in Path("/proc/self/maps").read_text() for word in OF_GRPC)
        assert load.calls > 100 and load.rows > 100
