"""Java for tests: workers of Kafka Connect, and small programs that drive Apache's own classes."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from local_kafka.java_connect import JavaWorker
from local_kafka.jvm import compile_java, open_java

SOURCES = Path(__file__).resolve().parents[1] / "java"


@pytest.fixture
def java_worker(tmp_path: Path) -> Iterator[Callable[..., JavaWorker]]:
    """``make(address, group, properties)``: starts a worker; it ends with the test.

    `properties` go over `local_kafka.java_connect.defaults`.
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
    """``run("Name", arguments)``: compiles ``tests/java/Name.java`` once and starts it.

    Its class path has Kafka's jars. It is talked to by lines on stdin and stdout, UTF-8, and must
    end when its stdin does.
    """
    classes: dict[str, Path] = {}
    started: list[subprocess.Popen[str]] = []

    def run(name: str, *arguments: str) -> "subprocess.Popen[str]":
        if name not in classes:
            into = tmp_path_factory.mktemp(name)
            compile_java(SOURCES / f"{name}.java", into)
            classes[name] = into
        process = open_java(classes[name], name, arguments)
        started.append(process)
        return process

    yield run
    for process in started:
        with process:  # closes its pipes, and waits
            process.kill()
