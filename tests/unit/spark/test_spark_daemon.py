"""The daemon of Python workers in an executor: it ends when nobody has used it for long."""

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate_spark import daemon

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
