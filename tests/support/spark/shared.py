"""One Spark for all tests that need executors, so that a session starts one JVM."""

import contextlib
import json
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands.processes import signal_if_alive

from headgate_spark.guard import descendants
from headgate_spark.server import SparkServer

SLOTS = 8
MASTER = "local-cluster[2,1,1024]"
TESTS = str(Path(__file__).parents[2])


def make_server(folder: Path, master: str = MASTER, slots: int = SLOTS) -> SparkServer:
    """Return a server, not started, whose executors find the modules of `support`.

    It does not end a silent driver by itself: a test that freezes its driver decides for how long.
    """
    return SparkServer(master, slots, folder, python_path=[TESTS], driver_timeout_s=0)


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    """A running server with two executors. A test that kills it must start it again."""
    server = make_server(tmp_path_factory.mktemp("spark"))
    server.start()
    try:
        yield server
    finally:
        server.stop()


def executors(server: SparkServer) -> list[int]:
    """Return the process ids of the JVMs that run tasks."""
    assert server.pid is not None
    return [pid for pid in descendants(server.pid) if parent_of(pid) == server.pid]


def parent_of(pid: int) -> int:
    """Return the process id of the parent, or 0 if the process has ended."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if state == "Z" else int(parent)


class Losses:
    """A context in which all executors are killed as soon as one of them has work."""

    def __init__(self, server: SparkServer) -> None:
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self._browser = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.times = 0
        """How often there was none left."""

    def __enter__(self) -> "Losses":
        self._thread.start()
        return self

    def __exit__(self, *_given: object) -> None:
        self._over.set()
        self._thread.join()

    def _kill(self) -> None:
        self._kill_all()  # those that replace them are slow, so that their work is seen
        while not self._over.wait(0.05):
            with contextlib.suppress(OSError):  # Spark's pages are slow to answer
                if self._at_work():
                    self._kill_all()

    def _kill_all(self) -> None:
        found = executors(self._server)
        for pid in found:
            signal_if_alive(pid, signal.SIGKILL)
        self.times += bool(found)

    def _at_work(self) -> bool:
        (application,) = self._asked("applications")
        found = self._asked(f"applications/{application['id']}/executors")
        return any(one["activeTasks"] for one in found if one["id"] != "driver")

    def _asked(self, what: str) -> Any:
        with self._browser.open(f"{self._server.ui}/api/v1/{what}", timeout=30) as answer:
            return json.load(answer)
