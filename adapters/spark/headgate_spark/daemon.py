"""PySpark's daemon on executors, with the modules that tasks need loaded ahead.

The daemon forks a process for each task, and its children share all that it has imported. So a task
begins in a fraction of a second. Otherwise it would spend most of a second of CPU on imports. Idle
tasks share that memory, too.

Spark starts a daemon in each executor for each session of Spark Connect, and ends none before the
executor ends. A worker that comes back has a new session. So a daemon ends once it is idle. Spark
starts another if it finds none.
"""

import contextlib
import gc
import importlib
import os
import signal
import socket
import stat
import time
from pathlib import Path
from types import FrameType

PRELOADED = (
    "pyspark.worker",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.serializers",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.json",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "orjson",
    "apsw",
    "headgate.connector.api",
    "headgate_spark.arrow_chunks",
    "headgate_spark.executor",
    "headgate_spark.loaded_version",
    "headgate_spark.slices",
)
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
PRELOAD_VARIABLE = "HEADGATE_PRELOAD"
"""Variable with the names of further modules, separated by commas: the task body and what it
needs."""

IDLE_S = 600.0
"""Time after which a daemon without children ends, in seconds. The next task of its session then
begins a second later, as the first one did."""
IDLE_VARIABLE = "HEADGATE_DAEMON_IDLE_S"
LOOKS = 4
"""How often it looks for children in that time."""


def preload() -> None:
    """Import the modules that exist. A missing module fails where it is needed, if at all."""
    # A fork copies one thread only. Threads of a library's pool, or a helper, would be lost in the
    # child, with locks that are never released.
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)
    named = [name for name in os.environ.get(PRELOAD_VARIABLE, "").split(",") if name]
    for name in (*PRELOADED, *named):
        with contextlib.suppress(ImportError):  # PackageNotFoundError is one, too
            importlib.import_module(name)
    # A collection in a child would write to, and so copy, every page that it shares with us.
    gc.collect()
    gc.freeze()


def wait_for_children() -> None:
    """Wait for each child that ends, from the next fork on.

    PySpark's daemon ignores SIGCHLD. The kernel then drops the CPU time of children that have
    ended, and measurements of the executor are too low.
    """
    os.register_at_fork(before=_heed_children)


def _heed_children() -> None:
    if signal.getsignal(signal.SIGCHLD) is not _reap:
        signal.signal(signal.SIGCHLD, _reap)


def _reap(_number: int, _frame: FrameType | None) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def end_when_idle(idle_s: float) -> None:
    """End as if Spark had asked for it, once there was no child for `idle_s`."""
    busy = time.monotonic()

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal busy
        if _has_children() or _has_accepted():
            busy = time.monotonic()
        elif time.monotonic() - busy >= idle_s:
            os.kill(os.getpid(), signal.SIGTERM)

    def forked() -> None:
        nonlocal busy
        busy = time.monotonic()

    os.register_at_fork(after_in_parent=forked, after_in_child=_forget_alarm)
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, idle_s / LOOKS, idle_s / LOOKS)


def _forget_alarm() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # a child has no timer, and may use the signal


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _has_accepted() -> bool:
    """Return whether a task waits for its child: its connection is accepted, and the fork has still
    to come."""
    return any(_is_connection(int(each.name)) for each in Path("/dev/fd").iterdir())


def _is_connection(descriptor: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as found:
            return not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:
        return False  # the listing's own descriptor, which is closed by now


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    wait_for_children()
    end_when_idle(float(os.environ.get(IDLE_VARIABLE, IDLE_S)))
    manager()
