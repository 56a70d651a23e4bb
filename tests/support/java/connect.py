"""Java for tests: workers of Kafka Connect, and small programs that call Apache's own classes.

The session's worker is the one whose URL is in HEADGATE_CONNECT. Without it, one is started from
the pinned jars, on the session's broker. A test that stops, kills or configures a worker gets one
of its own, always from the jars.
"""

import contextlib
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from support.kafka.broker import Found

from local_kafka.broker import version
from local_kafka.java_connect import JavaWorker, Rest
from local_kafka.jvm import compile_java, open_java

ADDRESS = "HEADGATE_CONNECT"
SOURCES = Path(__file__).resolve().parents[2] / "java"


@dataclass(frozen=True, slots=True)
class FoundWorker:
    """A Java worker to which tests only send requests. Tests share it, so each removes its
    connectors."""

    url: str
    origin: str
    """Where it was found: ``environment`` or ``jars``."""
    rest: Rest


@pytest.fixture(scope="session")
def java_connect(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FoundWorker]:
    """The session's Java worker, found or started when the first test asks for it."""

    def broker() -> str:
        found: Found = request.getfixturevalue("kafka_broker")
        return found.address

    with find_worker(tmp_path_factory.mktemp("connect"), broker) as found:
        yield found


@contextlib.contextmanager
def find_worker(folder: Path, broker: Callable[[], str]) -> Iterator[FoundWorker]:
    """Find the worker of `java_connect`, or start one. `folder` and `broker`, which returns a
    broker's address, are for a worker that has to be started."""
    url = os.environ.get(ADDRESS, "").rstrip("/")
    if url:
        with Rest(url) as rest:
            await_worker(rest, url)
            yield FoundWorker(url, "environment", rest)
        return
    settings = {"bootstrap.servers": broker(), "group.id": f"t{uuid.uuid4().hex[:12]}"}
    worker = JavaWorker(folder, settings)
    try:
        worker.start()
        yield FoundWorker(worker.url, "jars", worker.rest)
    finally:
        worker.kill()
        worker.rest.close()


def await_worker(rest: Rest, url: str, timeout_s: float = 30.0) -> None:
    """Return when a Java worker answers that tests can be compared with.

    Raises `RuntimeError` if none answers, if its version is not that of the jars, or if it has
    connectors.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            root = rest.get("/")
        except httpx.TransportError as error:
            seen = str(error)
        else:
            if root.status == 200:
                break
            seen = f"status {root.status}"
        if time.monotonic() > deadline:
            raise RuntimeError(f"no Connect worker answers at {url} within {timeout_s:g} s: {seen}")
        time.sleep(0.1)
    has = root.body.get("version") if isinstance(root.body, dict) else None
    if has != version():
        raise RuntimeError(f"at {url} is Connect {has}; tests compare with Java's {version()}")
    there = rest.get("/connectors").body
    if there:
        raise RuntimeError(f"the worker at {url} has connectors: {', '.join(there)}")


@pytest.fixture
def java_worker(tmp_path: Path) -> Iterator[Callable[..., JavaWorker]]:
    """``make(address, group, properties)`` starts a worker, which ends with the test.

    `properties` override `local_kafka.java_connect.defaults`.
    """
    made: list[JavaWorker] = []

    def make(address: str, group: str, properties: Mapping[str, str] | None = None) -> JavaWorker:
        fixed = {"bootstrap.servers": address, "group.id": group}
        worker = JavaWorker(tmp_path / f"worker-{len(made)}", {**fixed, **(properties or {})})
        made.append(worker)
        worker.start()
        return worker

    yield make
    for worker in made:
        worker.kill()
        worker.rest.close()


@pytest.fixture(scope="session")
def java_program(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """``run("Name", arguments)`` compiles ``tests/java/Name.java`` once and starts it.

    Its class path has Kafka's jars, and those of the list `more`. The program reads lines on stdin
    and answers on stdout, in UTF-8, and must end when its stdin does.
    """
    classes: dict[str, Path] = {}
    started: list[subprocess.Popen[str]] = []

    def run(name: str, *arguments: str, more: Path | None = None) -> "subprocess.Popen[str]":
        if name not in classes:
            into = tmp_path_factory.mktemp(name)
            compile_java(SOURCES / f"{name}.java", into, more)
            classes[name] = into
        process = open_java(classes[name], name, arguments, more=more)
        started.append(process)
        return process

    yield run
    for process in started:
        with process:  # closes its pipes, and waits
            process.kill()
