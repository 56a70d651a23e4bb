"""`headgate worker` as a process, on the same brokers and with the same keys as Java's."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import httpx
import javaproperties
import pytest

from headgate_spark.guard import Guarded
from local_kafka.java_connect import Rest, defaults
from local_kafka.jvm import free_ports

START_S = 150.0
"""Seconds that a start may take. A worker with a Spark of its own has needed 50 s on a busy
machine."""


class HeadgateWorker:
    """One `headgate worker` process.

    Args:
        folder: for its properties file and its log.
        properties: override the properties that Java's worker has in tests. Tasks run on threads.
        file: a properties file that is used as it is; `properties` are its content. None: a file is
            made of `properties` at each start.
    """

    def __init__(
        self, folder: Path, properties: Mapping[str, str], file: Path | None = None
    ) -> None:
        self.folder = folder
        self.file = file or folder / "worker.properties"
        self._makes_file = file is None
        self.url = properties["listeners"] if file else f"http://127.0.0.1:{free_ports(1)[0]}"
        self.rest = Rest(self.url)
        self.properties = {
            **defaults(properties["group.id"], self.url),
            "headgate.task.runner": "thread",
            **properties,
        }
        del self.properties["plugin.discovery"]
        if self.properties["headgate.task.runner"] == "spark":  # no test shares that of another
            own = {"headgate.data": str(folder / "data"), "headgate.spark.idle.ms": "0"}
            self.properties = {**own, **self.properties}
        self._process: Guarded | None = None

    @classmethod
    def on(cls, folder: Path, file: Path) -> Self:
        """Return a worker on a properties file that other workers may use, too. It answers at the
        file's `listeners`."""
        return cls(folder, javaproperties.loads(file.read_text()), file)

    def start(self) -> None:
        """Start the worker, and return when its `/health` answers 200."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start the worker without waiting until it has joined its group."""
        self._write_properties()
        with self.log.open("ab") as log:
            self._process = Guarded(self.command(), self.folder, log, dict(os.environ))

    def _write_properties(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._makes_file:
            self.file.write_text(javaproperties.dumps(self.properties, timestamp=False))

    def command(self) -> list[str]:
        return [sys.executable, "-m", "headgate_runtime.cli", "worker", str(self.file)]

    def await_ready(self) -> None:
        assert self._process is not None
        until = time.monotonic() + START_S
        while not self._healthy():
            assert self._process.poll() is None, f"the worker ended:\n{self.tail()}"
            assert time.monotonic() < until, f"the worker is not ready:\n{self.tail()}"
            time.sleep(0.05)

    @property
    def log(self) -> Path:
        return self.folder / "worker.log"

    def tail(self) -> str:
        return self.log.read_text()[-3_000:]

    def _healthy(self) -> bool:
        try:
            return self.rest.get("/health").status == 200
        except httpx.TransportError:
            return False

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGTERM)

    def stop(self) -> None:
        """Send SIGTERM and wait for the process to end. The worker leaves its group."""
        self.terminate()
        if self._process is not None and self._process.pid is not None:
            self._process.wait(30)

    def kill(self) -> None:
        """Send SIGKILL to the worker and its child processes, and return when they are gone. The
        worker can be started again."""
        if self._process is not None:
            self._process.end()

    def close(self) -> None:
        self.kill()
        self.rest.close()


@pytest.fixture
def headgate_worker(tmp_path: Path) -> Iterator[Callable[..., HeadgateWorker]]:
    """``make(address, group, properties)`` starts a `HeadgateWorker`, which ends with the test.
    `java_worker` is the same for Java."""
    made: list[HeadgateWorker] = []

    def make(
        address: str, group: str, properties: Mapping[str, str] | None = None
    ) -> HeadgateWorker:
        fixed = {"bootstrap.servers": address, "group.id": group}
        folder = tmp_path / f"headgate-{len(made)}"
        worker = HeadgateWorker(folder, {**fixed, **(properties or {})})
        made.append(worker)
        worker.start()
        return worker

    yield make
    for worker in made:
        worker.close()


def ended(
    folder: Path, properties: Mapping[str, str], code: int = 1
) -> "tuple[subprocess.CompletedProcess[str], float]":
    """Run a worker that cannot start. Return what it printed and the seconds until it ended."""
    folder.mkdir(parents=True, exist_ok=True)
    worker = HeadgateWorker(folder, properties)
    worker.rest.close()
    worker.file.write_text(javaproperties.dumps(worker.properties, timestamp=False))
    since = time.monotonic()
    done = headgate("worker", str(worker.file))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done, time.monotonic() - since


def headgate(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "headgate_runtime.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
