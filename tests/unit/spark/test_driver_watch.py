"""A driver that is frozen is ended and started again. One that is busy, late or dead is not.

The driver here is a small process with a gRPC server, like Spark Connect's. It does not know the
watch's method either.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from support.commands.processes import signal_if_alive

from headgate_runtime.spark.service import SparkService, WorkerSpark
from headgate_runtime.spark.settings import SparkSettings
from headgate_spark import guard
from headgate_spark import server as server_module
from headgate_spark.driver_watch import DriverWatch
from headgate_spark.guard import Guarded, descendants
from headgate_spark.server import SparkServer, free_port
from headgate_spark.sessions import OUTAGE, Sessions

LIMIT_S = 1.5
PATIENCE_S = 40.0
DRIVER = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import grpc

class Late(grpc.GenericRpcHandler):
    def service(self, _details):
        time.sleep(float(sys.argv[2]))

server = grpc.server(ThreadPoolExecutor(4), handlers=[Late()])
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
while True:
    sum(range(100_000))
    time.sleep(0.01)
"""
Fake = Callable[[float], None]


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"it did not come to pass within {PATIENCE_S} s"
        time.sleep(0.02)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Servers that are made from now on are drivers that take so long to answer."""
    monkeypatch.setattr(server_module, "check_java", lambda: None)

    def late(seconds: float) -> None:
        def command(server: SparkServer) -> list[str]:
            return [sys.executable, "-c", DRIVER, str(server.port), str(seconds)]

        monkeypatch.setattr(SparkServer, "_command", command)

    return late


class Service:
    """The Spark service of a worker, run as `headgate worker` runs it."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        settings = SparkSettings(master="local[1]", driver_timeout_ms=int(LIMIT_S * 1000))
        self.service = SparkService(
            WorkerSpark("spark", folder, settings),
            warn=self.said.append,
            marked=lambda _who, _what: None,
        )
        self.service.start([1])
        self._over = threading.Event()
        self._ticks = threading.Thread(target=self._tick, daemon=True)
        self._ticks.start()
        self.wait_for("Spark is up at")

    def _tick(self) -> None:
        while not self._over.wait(0.05):
            self.service.tick()

    @property
    def server(self) -> SparkServer:
        assert self.service._server is not None
        return self.service._server

    @property
    def pid(self) -> int:
        assert self.server.pid is not None
        return self.server.pid

    def wait_for(self, text: str) -> str:
        until(lambda: any(text in line for line in self.said))
        return next(line for line in self.said if text in line)

    def why(self) -> str:
        """Return what a task says of a call that ended with the driver."""
        settings = {f"spark.{key}": each for key, each in self.service.worker_settings().items()}
        assert OUTAGE in settings
        return Sessions.of_task("sc://nowhere", settings).why(RuntimeError("Socket closed"))

    def close(self) -> None:
        self._over.set()
        self._ticks.join()
        self.service.close()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Callable[[], Service]]:
    made: list[Service] = []

    def make() -> Service:
        made.append(Service(tmp_path))
        return made[-1]

    yield make
    for each in made:
        each.close()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_driver_that_stands_still_is_ended_and_another_is_started(
    fake: Fake, services: Callable[[], Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(0)
    go_on = threading.Event()
    restart = SparkServer.restart

    def later(server: SparkServer) -> None:
        assert go_on.wait(PATIENCE_S)
        restart(server)

    monkeypatch.setattr(SparkServer, "restart", later)
    one = services()
    frozen = one.pid
    os.kill(frozen, signal.SIGSTOP)
    why = f"Spark's driver (pid {frozen}) has not answered for {LIMIT_S:g} s and was ended"
    assert f"{why}; it starts again in" in one.wait_for("has not answered")
    until(lambda: is_gone(frozen))
    assert one.why() == why
    go_on.set()
    one.wait_for("Spark is up again")
    assert one.pid != frozen and one.server.starts == 2
    assert one.why() == "RuntimeError: Socket closed"
    time.sleep(2 * LIMIT_S)
    assert one.server.starts == 2 and not is_gone(one.pid)


def test_a_driver_that_is_busy_and_late_is_left_alone(
    fake: Fake, services: Callable[[], Service]
) -> None:
    fake(LIMIT_S / 4)
    one = services()
    time.sleep(3 * LIMIT_S)
    assert one.server.starts == 1 and not is_gone(one.pid)
    assert not any("has not answered" in line for line in one.said)


def test_a_driver_that_goes_on_in_time_is_left_alone(
    fake: Fake, services: Callable[[], Service]
) -> None:
    fake(0)
    one = services()
    for _ in range(5):
        os.kill(one.pid, signal.SIGSTOP)
        time.sleep(LIMIT_S / 4)
        os.kill(one.pid, signal.SIGCONT)
        time.sleep(LIMIT_S / 4)
    assert one.server.starts == 1 and not is_gone(one.pid)
    assert not any("has not answered" in line for line in one.said)


def test_one_that_is_killed_is_not_said_to_have_stood_still(
    fake: Fake, services: Callable[[], Service]
) -> None:
    fake(0)
    one = services()
    os.kill(one.pid, signal.SIGKILL)
    one.wait_for("Spark ended; it starts again in")
    one.wait_for("Spark is up again")
    assert one.why() == "RuntimeError: Socket closed"


def test_a_note_of_an_earlier_run_is_not_told(
    fake: Fake, tmp_path: Path, services: Callable[[], Service]
) -> None:
    fake(0)
    (tmp_path / "spark").mkdir()
    note = tmp_path / "spark" / "outage"
    note.write_text("Spark's driver (pid 1) has not answered")
    server = SparkServer("local[1]", 1, tmp_path / "spark")
    server.launch()
    assert not note.exists()
    server.stop()


class Driver:
    """A process of a driver that is not there."""

    def __init__(self, code: int | None = None) -> None:
        self.pid = 4711
        self.ended = threading.Event()
        self._code = code

    def poll(self) -> int | None:
        return self._code

    def end(self) -> None:
        self.ended.set()


class Slow(Driver):
    """A driver whose end takes until the test lets it go."""

    def __init__(self) -> None:
        super().__init__()
        self.found, self.let_go = threading.Event(), threading.Event()

    def poll(self) -> int | None:
        self.found.set()
        assert self.let_go.wait(PATIENCE_S)
        return None


def test_a_watch_ends_the_process_that_it_was_begun_for() -> None:
    """And no other that has its place by then."""
    told: list[str] = []
    watch = DriverWatch(free_port(), 1.0, told.append)
    first, second = Slow(), Driver(1)
    watch.begin(first)
    assert first.found.wait(PATIENCE_S)
    watch.begin(second)
    first.let_go.set()
    assert first.ended.wait(PATIENCE_S)
    assert not second.ended.is_set() and watch.told == ""
    assert told == ["Spark's driver (pid 4711) has not answered for 1 s and was ended"]


class Unreached(grpc.GenericRpcHandler):
    """Says what gRPC says of a connection that broke."""

    def service(self, _details: object) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._abort)

    def _abort(self, _request: bytes, context: grpc.ServicerContext) -> None:
        context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def test_a_call_that_reached_nobody_is_not_answered() -> None:
    server = grpc.server(ThreadPoolExecutor(2), handlers=[Unreached()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    watch, driver = DriverWatch(port, 1.0, lambda _why: None), Driver()
    watch.begin(driver)
    assert driver.ended.wait(PATIENCE_S)
    server.stop(None)


def test_a_watch_begins_anew_with_each_process() -> None:
    watch = DriverWatch(free_port(), LIMIT_S, lambda _why: None)
    first, second = Driver(), Driver()
    watch.begin(first)
    time.sleep(LIMIT_S / 3)
    watch.begin(second)
    begun = time.monotonic()
    assert second.ended.wait(PATIENCE_S)
    assert time.monotonic() - begun >= 0.9 * LIMIT_S
    assert not first.ended.is_set() and "pid 4711" in watch.told


def test_a_driver_that_is_dead_is_not_said_to_stand_still() -> None:
    told: list[str] = []
    watch = DriverWatch(free_port(), 1.0, told.append)
    dead = Driver(1)
    watch.begin(dead)
    until(lambda: not any(each.name == "spark-driver" for each in threading.enumerate()))
    assert not told and not watch.told and not dead.ended.is_set()


@pytest.mark.parametrize("limit_s", [0.0, 0.5])
def test_a_watch_that_is_over_or_not_wanted_ends_nobody(limit_s: float) -> None:
    watch = DriverWatch(free_port(), limit_s, lambda _why: None)
    driver = Driver()
    watch.begin(driver)
    if limit_s:
        watch.end()
    time.sleep(1.5)
    assert not driver.ended.is_set() and watch.told == ""


FAMILY = """
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, flush=True)
time.sleep(600)
"""


def test_a_driver_is_ended_whose_guard_stands_still_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal to their process group freezes both."""
    monkeypatch.setattr(guard, "STOP_TIMEOUT_S", 0.5)
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = Guarded([sys.executable, "-c", FAMILY], tmp_path, file, os.environ)
    until(lambda: log.read_text().strip())
    below = descendants(process.guard_pid)
    assert len(below) == 2
    for pid in (process.guard_pid, *below):
        os.kill(pid, signal.SIGSTOP)
    process.end()
    try:
        until(lambda: all(map(is_gone, below)))
    finally:
        for pid in below:
            signal_if_alive(pid, signal.SIGKILL)
