"""A worker's REST server under slow, huge and hung requests, all kinds at once.

`HEADGATE_UNKIND_S` gives the seconds, and the measurements are printed (``pytest -s``). The clients
share the machine with the worker. A server beside it that only answers shows what that costs.
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.rest.hanging_source import CLASS
from support.rest.world import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

SECONDS = float(os.environ.get("HEADGATE_UNKIND_S", "30"))
HEALTH_S = float(os.environ.get("HEADGATE_UNKIND_HEALTH_S", "1"))
"""How much longer than the idle server's longest answer one of ``/health`` may take."""
TESTS = Path(__file__).resolve().parents[1]
READ_TIMEOUT_S = 10
ANSWER_S = 100
"""How long answers are waited for: a worker gives a change up after 90 s."""
GROWN_MIB = 96
"""What memory may have grown by when all is over. `GROWN_BLOCKS` tells whether something is kept.
What remains beside it are gaps: the interpreter gives only whole MiB back, and something that is
alive is left in many of them. They are used again: 40 to 80 MiB after two minutes and after ten.
"""
GROWN_BLOCKS = 20_000
"""How many more objects, of half a million, there may be when all is over."""
LOG_BYTES = 100_000


@contextmanager
def worker(folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """URL and process of a worker that has as few descriptors as a shell gives."""
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
            yield process.stdout.readline().decode().strip(), process
        finally:
            process.stdin.close()
            process.wait(60)


@contextmanager
def idle_server() -> Iterator[str]:
    """URL of a server that shares nothing with the worker but the machine."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.rest.idle_server"],
        cwd=TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.stdin.close()
        process.wait(60)


def blocks_of(process: "subprocess.Popen[bytes]") -> int:
    """Return how many blocks of memory the worker's objects have."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def memory_mib(pid: int) -> float:
    """Return the memory of the process and of its child processes."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            found = dict(line.split(":", 1) for line in status.read_text().splitlines())
            if str(pid) in (found["Pid"].strip(), found["PPid"].strip()):
                total += int(found.get("VmRSS", "0").split()[0])
    return total / 1024


class Answer:
    def __init__(self, status: int, body: bytes) -> None:
        self.status_code = status
        self.text = body.decode()


def asked(url: str, method: str, path: str, body: object = None) -> tuple[float, Answer]:
    """Seconds that it took on a connection of its own, and the answer."""
    connection = http.client.HTTPConnection(url.split("/")[2], timeout=ANSWER_S)
    begun = time.monotonic()
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    text = answer.read()
    took = time.monotonic() - begun
    connection.close()
    return took, Answer(answer.status, text)


class Watched:
    """Measurements of the worker while the clients were active."""

    def __init__(self, url: str, idle_url: str, pid: int, good: dict[str, str]) -> None:
        self._url, self._idle_url, self._pid, self._good = url, idle_url, pid, good
        self.before = self.highest = self.after = memory_mib(pid)
        self._executor = ThreadPoolExecutor(200)
        """A late answer does not keep the next question from being asked."""
        self._health: list[Future[float]] = []
        self._idle: list[Future[float]] = []
        self._puts: list[Future[float]] = []
        self.closed = 0
        """How often the connection of a PUT was closed."""
        self.unwell: list[str] = []
        """Answers of ``/health`` other than 200, with the second of the attack in which they came
        and the machine's load."""
        self._begun = time.monotonic()

    def look(self) -> None:
        for found, url in ((self._health, self._url), (self._idle, self._idle_url)):
            found.append(self._executor.submit(self._health_took, url))
        if len(self._health) % 40 == 0:
            changed = {**self._good, "batch.size": str(1 + len(self._health))}
            path = "/connectors/good/config"
            self._puts.append(self._executor.submit(self._again, "PUT", path, changed))
        if len(self._health) % 5 == 0:
            self.highest = max(self.highest, memory_mib(self._pid))

    def _health_took(self, url: str) -> float:
        took, answer = asked(url, "GET", "/health")
        if answer.status_code != 200:
            at_s, load = time.monotonic() - self._begun, os.getloadavg()[0]
            self.unwell.append(f"{at_s:.0f} s, load {load:.0f}: {answer.text}")
        return took

    def _took(self, url: str, method: str, path: str, body: object = None) -> float:
        took, answer = asked(url, method, path, body)
        assert answer.status_code == 200, answer.text
        return took

    def _again(self, method: str, path: str, body: object) -> float:
        """Send the request again, as a client does whose connection was closed to make room for
        others."""
        begun = time.monotonic()
        for _ in range(5):
            with suppress(ConnectionError):
                self._took(self._url, method, path, body)
                break
            self.closed += 1
        else:
            pytest.fail(f"{method} {path}: five connections were closed")
        return time.monotonic() - begun

    @property
    def health(self) -> list[float]:
        return sorted(each.result() for each in self._health)

    @property
    def idle(self) -> list[float]:
        return sorted(each.result() for each in self._idle)

    def told(self) -> dict[str, Any]:
        puts = sorted(each.result() for each in self._puts)
        return {
            "seconds": SECONDS,
            "health ms": in_ms(self.health),
            "idle server ms": in_ms(self.idle),
            "put ms": in_ms(puts),
            "puts closed": self.closed,
            "unwell": [len(self.unwell), *self.unwell[:3], *self.unwell[-1:]],
            "memory MiB before, highest, after": [
                round(mib) for mib in (self.before, self.highest, self.after)
            ],
        }


def in_ms(times: Sequence[float]) -> dict[str, int]:
    shown = {"median": len(times) // 2, "99th percentile": len(times) * 99 // 100, "longest": -1}
    return {"calls": len(times), **{name: round(times[n] * 1000) for name, n in shown.items()}}


@pytest.mark.timeout(SECONDS + 300)
def test_health_is_answered_and_memory_comes_back(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    hangs.touch()
    (tmp_path / "in.txt").write_text("")
    good = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "in.txt"),
        "topic": "t",
    }
    with worker(tmp_path) as (url, process), idle_server() as idle_url:
        pid = process.pid
        for _ in range(20):
            assert (
                asked(url, "GET", "/connector-plugins?connectorsOnly=false")[1].status_code == 200
            )
        assert asked(url, "PUT", "/connectors/good/config", good)[1].status_code == 201
        large = {**good, "x": "y" * 900_000}
        assert asked(url, "PUT", "/connectors/large/config", large)[1].status_code == 201
        for kind in ("FileStreamSource", "FileStreamSink"):  # loads what validations need
            path = f"/connector-plugins/{kind}/config/validate"
            body = {"connector.class": kind, "name": "x"}
            assert asked(url, "PUT", path, body)[1].status_code == 200
        blocks = blocks_of(process)
        watched = Watched(url, idle_url, pid, good)
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
        # Threads without work end after 10 s. A busy machine has more to do before that.
        with suppress(AssertionError):
            wait_until(lambda: blocks_of(process) < blocks + GROWN_BLOCKS // 4, 90)
        with suppress(AssertionError):
            wait_until(lambda: memory_mib(pid) < watched.before + GROWN_MIB, 20)
        watched.after = memory_mib(pid)
        more_blocks = blocks_of(process) - blocks
    log = (tmp_path / "worker.log").stat().st_size
    told = {
        **watched.told(),
        "more blocks": more_blocks,
        "log bytes": log,
        "connected": connected,
    }
    print(json.dumps(told))
    assert not watched.unwell, told
    assert watched.health[-1] < watched.idle[-1] + HEALTH_S, told
    assert watched.after < watched.before + GROWN_MIB, told
    assert more_blocks < GROWN_BLOCKS, told
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
    """There are twice as many connections as descriptors. asyncio alone would fill the disk with
    its log."""
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
