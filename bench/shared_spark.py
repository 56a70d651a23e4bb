"""One Spark Connect server for all parts of a bench run, since a JVM takes seconds to start."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from headgate_runtime.spark.launcher import BODY
from headgate_spark.launcher import SparkLauncher
from headgate_spark.server import SparkServer

MASTER = "local[2]"
SLOTS = 12


@functools.cache
def server() -> SparkServer:
    """Return the server. It is started at the first call and stopped at the end of this process.

    Raises:
        ServerError: Java is missing, or Spark does not start.
    """
    root = Path(__file__).parents[1]
    folder = tempfile.mkdtemp(prefix="headgate-bench-spark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    started = SparkServer(
        MASTER,
        SLOTS,
        folder,
        python_path=[str(root), str(root / "tests")],
        preload=["headgate_runtime.tasks.main", "headgate_embedded"],
    )
    atexit.register(started.stop)
    started.start()
    return started


def launcher(body: str = BODY) -> SparkLauncher:
    """Return a launcher of task bodies on the shared server."""
    return SparkLauncher(server().address, body)
