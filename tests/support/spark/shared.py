"""One Spark for all tests that need executors: a JVM is started once per session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_spark.server import SparkServer

SLOTS = 8
MASTER = "local-cluster[2,1,1024]"
TESTS = str(Path(__file__).parents[2])


def make_server(folder: Path, master: str = MASTER, slots: int = SLOTS) -> SparkServer:
    """A server whose executors find the modules of `support`; not started."""
    return SparkServer(master, slots, folder, python_path=[TESTS], start_timeout_s=180)


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkServer]:
    """A running server over two executors. Who kills it starts it again."""
    server = make_server(tmp_path_factory.mktemp("spark"))
    server.start()
    try:
        yield server
    finally:
        server.stop()
