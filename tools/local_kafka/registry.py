"""A schema registry of another project, for tests: Apicurio Registry, from pinned artifacts."""

import contextlib
import os
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from local_kafka.jars import REGISTRY, ensure, java, pinned
from local_kafka.jvm import free_ports

START_S: Final = 240
"""Maximum seconds until it is ready. On a busy machine it needs long."""


@contextlib.contextmanager
def schema_registry(folder: Path) -> Iterator[str]:
    """Run a registry for the duration of the context. Gives the address of its Confluent API.

    The registry keeps schemas in memory.

    Args:
        folder: folder for the program and its log. It is created if needed.

    Raises:
        RuntimeError: the registry did not start. The message has the end of its log.
    """
    folder.mkdir(exist_ok=True)
    with tarfile.open(ensure(REGISTRY) / pinned(REGISTRY)[0].name) as archive:
        archive.extractall(folder, filter="data")
    (jar,) = folder.glob("*-runner.jar")
    (port,) = free_ports(1)
    told = folder / "registry.log"
    with told.open("w") as log:
        process = subprocess.Popen(
            [java(), "-Xmx512m", "-jar", str(jar)],
            env={**os.environ, "QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)},
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        _await(url, process, told)
        yield url
    finally:
        process.kill()
        process.wait()


def _await(url: str, process: "subprocess.Popen[bytes]", told: Path) -> None:
    end = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/subjects") as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the schema registry did not start: {told.read_text()[-2000:]}")
