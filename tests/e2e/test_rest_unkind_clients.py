"""A worker's REST server under slow, huge and hung requests, all kinds at once.

`HEADGATE_UNKIND_S` says how many seconds; what was measured is printed (``pytest -s``). On a quiet
machine `HEADGATE_UNKIND_HEALTH_S=1` asks that no ``/health`` takes longer by the clock.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.rest.hanging_source import CLASS
from support.rest.world import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SECONDS = float(os.environ.get("HEADGATE_UNKIND_S", "30"))
HEALTH_S = float(os.environ.get("HEADGATE_UNKIND_HEALTH_S", "20"))
"""Longest answer by the clock, which on a busy machine says little of the worker."""
TESTS = Path(__file__).resolve().parents[1]
READ_TIMEOUT_S = 10
GROWN_MIB = 50
"""What memory may have grown by when all is over: the interpreter keeps some of what it had."""
LOG_BYTES = 100_000


@contextmanager
def worker(folder: Path) -> Iterator[tuple[str, int]]:
    """URL and process id of a worker that has as few descriptors as a shell gives."""
    settings = (f"headgate.rest.read.timeout.ms={READ_TIMEOUT_S * 1000}", "NOFILE=1024")
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "support.rest.worker_process", str(folder / "data"), *settings],
            cwd=TESTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip(), process.pid
        finally:
            process.stdin.close()
            process.wait(60)


def memory_mib(pid: int) -> float:
    [line] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) / 1024


def processor_s(pid: int) -> float:
    """Seconds of processors that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Answer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status_code = status
        self.text = body.decode()


def asked(url: str, method: str, path: str, body: object = None) -> tuple[float, Answer]:
    """Seconds that it took on a connection of its own, and the answer."""
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=30)
    begun = time.monotonic()
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    text = answer.read()
    took = time.monotonic() - begun
    connection.close()
    return took, Answer(answer.status, text)


class Watched:
    """What was seen of the worker while the clients were at it."""

    def __init__(self, url: str, pid: int, good: dict[str, str]) -> None:
        self._url, self._pid, self._good = url, pid, good
        self.before = self.highest = self.after = memory_mib(pid)
        self.health: list[float] = []
        self.own: list[float] = []
        """The same, but no more than the processor time that the worker used meanwhile: what it
        waited for others on its machine says nothing of it."""
        self.puts: list[float] = []

    def look(self) -> None:
        used = processor_s(self._pid)
        took, answer = asked(self._url, "GET", "/health")
        assert answer.status_code == 200, answer.text
        self.health.append(took)
        self.own.append(min(took, processor_s(self._pid) - used))
        if len(self.health) % 20 == 0:
            changed = {**self._good, "batch.size": str(1 + len(self.health))}
            took, answer = asked(self._url, "PUT", "/connectors/good/config", changed)
            assert answer.status_code == 200, answer.text
            self.puts.append(took)
        self.highest = max(self.highest, memory_mib(self._pid))

    def told(self) -> dict[str, Any]:
        times = sorted(self.health)
        return {
            "seconds": SECONDS,
            "health calls": len(times),
            "median ms": round(times[len(times) // 2] * 1000),
            "99th percentile ms": round(times[len(times) * 99 // 100] * 1000),
            "longest ms": round(times[-1] * 1000),
            "longest ms of its own": round(max(self.own) * 1000),
            "longest put ms": round(max(self.puts, default=0) * 1000),
            "memory MiB before, highest, after": [
                round(mib) for mib in (self.before, self.highest, self.after)
            ],
        }


def test_health_is_answered_and_memory_comes_back(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    hangs.touch()
    (tmp_path / "in.txt").write_text("")
    good = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "t",
    }
    with worker(tmp_path) as (url, pid):
        for _ in range(20):
            assert (
                asked(url, "GET", "/connector-plugins?connectorsOnly=false")[1].status_code == 200
            )
        assert asked(url, "PUT", "/connectors/good/config", good)[1].status_code == 201
        large = {**good, "x": "y" * 900_000}
        assert asked(url, "PUT", "/connectors/large/config", large)[1].status_code == 201
        watched = Watched(url, pid, good)
        clients = subprocess.Popen(
            [sys.executable, "-m", "support.rest.unkind_clients", url, str(SECONDS), str(hangs)],
            cwd=TESTS,
            stdout=subprocess.PIPE,
        )
        while clients.poll() is None:
            watched.look()
            time.sleep(0.2)
        assert clients.stdout is not None
        connected = json.loads(clients.stdout.read())
        hangs.unlink()
        path = "/connector-plugins/HangingSource/config/validate"
        config = {"connector.class": CLASS, "hangs.while": str(hangs), "name": "x"}
        wait_until(lambda: asked(url, "PUT", path, config)[1].status_code == 200)
        wait_until(lambda: sockets_of(pid) < 20, READ_TIMEOUT_S + 20)
        with suppress(AssertionError):
            wait_until(lambda: memory_mib(pid) < watched.before + GROWN_MIB, 20)
        watched.after = memory_mib(pid)
    log = (tmp_path / "worker.log").stat().st_size
    told = {**watched.told(), "log bytes": log, "connected": connected}
    print(json.dumps(told))
    assert max(watched.own) < 1.0, told
    assert max(watched.health) < HEALTH_S, told
    assert watched.after < watched.before + GROWN_MIB, told
    assert log < LOG_BYTES, (tmp_path / "worker.log").read_text()[:5_000]


def sockets_of(pid: int) -> int:
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found += str(each.readlink()).startswith("socket:")
        except OSError:
            continue
    return found


def test_few_descriptors_and_many_silent_connections(tmp_path: Path) -> None:
    """As many again as there are descriptors: asyncio would fill the disk with its log."""
    with worker(tmp_path) as (url, _):
        host, _, port = url.split("/")[2].rpartition(":")
        silent = [socket.create_connection((host, int(port)), 10) for _ in range(2_000)]
        for _ in range(20):
            took, answer = asked(url, "GET", "/health")
            assert answer.status_code == 200
            assert took < 1.0
        for each in silent:
            each.close()
    log = (tmp_path / "worker.log").read_text()
    assert len(log) < 10_000
    assert log.count("connections, its limit") == 1
