"""A worker on Spark serves before Spark is up, and its first task does not wait long then. The
tests look at what is loaded when, and by which process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_runtime.spark.service import SparkService, WorkerSpark
from headgate_runtime.spark.settings import SparkSettings
from headgate_spark.daemon import PRELOAD_VARIABLE
from headgate_spark.server import SparkServer

BEFORE_SPARK = """
import sys
import threading
from pathlib import Path

import headgate_runtime.command.worker
import headgate_runtime.up.command
import headgate_runtime.worker.loop
from headgate_runtime.spark.launcher import spark_launcher
from headgate_runtime.spark.service import SparkService, WorkerSpark
from headgate_runtime.spark.settings import SparkSettings
from headgate_spark import server, sessions


class Nothing:
    pid = 1

    def __init__(self, *_given):
        pass

    def poll(self):
        return None

    def end(self):
        pass


def waits(_remote, _patience_s, _given_up):
    waiting.set()
    go_on.wait(60)
    raise sessions.NotListeningError("it never listens")


waiting, go_on = threading.Event(), threading.Event()
server.Guarded, sessions.wait_listening = Nothing, waits
wanted = WorkerSpark("spark", Path(sys.argv[1]), SparkSettings(master="local[1]"))
service = SparkService(wanted, warn=print, marked=print)
service.start([1])
told = service.worker_settings()
launcher = spark_launcher(told)
launcher.launch("run", "", lambda error: None)
assert waiting.wait(60), "the task does not wait for Spark"
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "grpc"))
service.close()
go_on.set()
sys.exit(f"loaded: {loaded}" if loaded else 0)
"""
"""Starts a Spark that never comes, and a task that waits for it."""

PRELOADED = """
import sys
import threading
from headgate_spark import daemon

before = set(sys.modules)
daemon.preload()
print(threading.active_count(), *(set(sys.modules) - before))
"""


def run(script: str, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nobody_loads_pyspark_before_spark_is_up(tmp_path: Path) -> None:
    """That holds for the code that starts Spark, for a worker, and for its first task while it
    waits."""
    run(BEFORE_SPARK, str(tmp_path))


def test_what_tasks_need_is_loaded_before_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Once in each executor, by the process that forks tasks, which must have one thread."""
    monkeypatch.setattr(SparkServer, "_command", lambda _self: ["sleep", "60"])
    wanted = WorkerSpark("spark", tmp_path, SparkSettings(master="local[1]"))
    service = SparkService(
        wanted, warn=lambda _: None, marked=lambda _who, _what: None, adapter="headgate_kafka"
    )
    try:
        service.start([1])
        assert service._server is not None
        told = service._server._forced()[f"spark.executorEnv.{PRELOAD_VARIABLE}"]
    finally:
        service.close()
    threads, *loaded = run(PRELOADED, **{PRELOAD_VARIABLE: told}).split()
    assert threads == "1"
    assert {"headgate_runtime.tasks.main", "headgate_kafka", "pyarrow"} <= set(loaded)
