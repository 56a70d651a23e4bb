"""PySpark's daemon of executors with what tasks need loaded already.

The daemon forks a process for each task. What it has imported, its children have for nothing: a
task then begins in a fraction of a second, where it would spend most of one second of CPU on
imports, and idle tasks share that memory.
"""

import contextlib
import gc
import importlib
import os
import signal
from types import FrameType

PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.json",
    "pyarrow.parquet",
    "orjson",
    "apsw",
    "headgate.connector.api",
    "headgate_spark.executor",
    "headgate_spark.slices",
)
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
PRELOAD_VARIABLE = "HEADGATE_PRELOAD"
"""Names of further modules, parted by commas: the task body and what it needs."""


def preload() -> None:
    """Imports what is there. A module that is missing fails where it is needed, if at all."""
    # A fork copies one thread only; neither a library's pool nor a helper may be among what is
    # lost, holding a lock that nobody will give back.
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    named = [name for name in os.environ.get(PRELOAD_VARIABLE, "").split(",") if name]
    for name in (*PRELOADED, *named):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # A collection in a child would write to, and so copy, every page that it shares with us.
    gc.collect()
    gc.freeze()


def wait_for_children() -> None:
    """Wait for each child that ends, from the next fork on.

    PySpark's daemon ignores SIGCHLD. The kernel then drops the CPU time of children that have
    ended, and whoever measures the executor sees too little.
    """
    os.register_at_fork(before=_heed_children)


def _heed_children() -> None:
    if signal.getsignal(signal.SIGCHLD) is not _reap:
        signal.signal(signal.SIGCHLD, _reap)


def _reap(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    wait_for_children()
    manager()
