"""The daemon of Python workers in an executor ends when it was not used for long."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.ports import LogBatch
from headgate_arrow.arrow_types import arrow_schema, struct_schema
from headgate_arrow.rows import record_batch, schema_bytes, to_bytes
from headgate_embedded import open_transport, transport_settings
from headgate_runtime.transports.select import OPENER, opener_argument
from headgate_spark import daemon
from headgate_spark.slices import SliceTask

IDLE_S = 0.4
SECRET = "secret"


@contextmanager
def started(idle_s: float = IDLE_S) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A daemon that has said its port. Nothing is loaded ahead: that takes a second."""
    code = (
        "from headgate_spark import daemon; from pyspark.daemon import manager;"
        f"daemon.wait_for_children(); daemon.end_when_idle({idle_s}); manager()"
    )
    environment = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET}
    environment.pop("PYTHON_UNIX_DOMAIN_ENABLED", None)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        (port,) = struct.unpack("!i", process.stdout.read(4))
        try:
            yield process, port
        finally:
            process.kill()


@contextmanager
def child(port: int) -> Iterator[int]:
    """Has a child forked, which waits for its task until the end. Yields its pid."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        yield pid


def test_a_daemon_without_children_ends() -> None:
    with started() as (process, _):
        process.wait(10)


def test_a_daemon_with_a_child_stays_and_ends_after_it() -> None:
    with started() as (process, port):
        with child(port) as pid:
            assert pid > 0
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(IDLE_S * 3)
        process.wait(10)


def test_each_child_keeps_it_for_the_whole_time() -> None:
    with started() as (process, port):
        for _ in range(6):
            with child(port):
                pass
            time.sleep(IDLE_S / 2)
            assert process.poll() is None


def test_a_connection_that_is_accepted_is_seen() -> None:
    before = daemon._has_accepted()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert daemon._has_accepted() is before
        with socket.create_connection(listening.getsockname()) as ours:
            accepted, _ = listening.accept()
            assert daemon._is_connection(accepted.fileno())
            assert not daemon._is_connection(listening.fileno())
            assert daemon._has_accepted()
            accepted.close()
            ours.close()
    assert not daemon._is_connection(10_000)


_PART = """
import importlib.metadata, os, sys
from headgate_spark import daemon
version = importlib.metadata.version("headgate")
os.environ[daemon.PRELOAD_VARIABLE] = "headgate_runtime.tasks.main,headgate_embedded"
daemon.preload()
loaded = set(sys.modules)
def refused(name):
    raise AssertionError("the version is looked up again")
importlib.metadata.version = refused
import pyarrow as pa
from headgate_spark.skin import run_checked
task, *log = sys.argv[1:]
work = run_checked(version, "headgate_spark.slices:run_slices", (log, [task]), iter([
    pa.record_batch({"id": [0]})
]))
print(next(work).column(0)[0].as_py())
late = sorted(set(sys.modules) - loaded - {"headgate_spark.skin", "pyarrow.vendored.version"})
print([name for name in late if name.startswith(("concurrent", "headgate", "pyarrow"))])
"""


def test_a_task_finds_the_version_and_what_it_imports_loaded(tmp_path: Path) -> None:
    """Otherwise each task of each batch would import it, and look the version up in PySpark's
    archive: 90 ms of CPU."""
    table = pa.table({"n": range(1000)})
    columns = struct_schema(table.schema)
    data = to_bytes(record_batch(table.cast(arrow_schema(columns))))
    transport = open_transport({"path": str(tmp_path)})
    transport.record_log.create_topic("t", 1)
    producer = transport.record_log.producer("c", None, None)
    producer.send_batch(LogBatch("t", None, 1000, None, (), 5, schema_bytes(columns), data))
    producer.acks()
    task = SliceTask(
        "t", 0, 0, 1000, str(tmp_path), 0, 0, "parquet", (), {}, tolerate=False, envelope=False
    )
    log = OPENER, opener_argument(transport_settings(tmp_path), {}, "c")
    command = [sys.executable, "-c", _PART, task.to_json(), *log]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    transport.close()
    result, late = done.stdout.splitlines() or pytest.fail(done.stderr)
    assert json.loads(result)[1]["records"] == 1000
    assert late == "[]"
