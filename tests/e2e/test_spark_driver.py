"""The driver of a real Spark answers while it computes, and does not while it is frozen."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_spark.server import SparkServer
from headgate_spark.sessions import Sessions, session_is_over

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

LIMIT_S = 6.0
SECONDS = 60.0
ROWS = 2_000_000
PARTS = 8
"""More than a small machine has cores."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SparkServer]:
    made = SparkServer(f"local[{PARTS}]", PARTS, tmp_path / "spark", driver_timeout_s=LIMIT_S)
    made.start()
    yield made
    made.stop()


def test_a_driver_that_computes_is_left_alone(server: SparkServer) -> None:
    pid, deadline = server.pid, time.monotonic() + 4 * LIMIT_S
    sessions = Sessions(server.address)
    while time.monotonic() < deadline:
        frame = sessions.get().range(0, ROWS, 1, PARTS)
        (row,) = frame.selectExpr("count(sha2(cast(id as string), 512)) as found").collect()
        assert row["found"] == ROWS
    sessions.close()
    assert server.poll() is None and server.pid == pid and not server.stood_still


def test_a_driver_that_goes_on_in_time_ends_the_call_that_waited(server: SparkServer) -> None:
    assert server.pid is not None
    sessions = Sessions(server.address)
    sessions.get().range(1).count()
    threading.Timer(LIMIT_S / 2, os.kill, (server.pid, signal.SIGCONT)).start()
    os.kill(server.pid, signal.SIGSTOP)
    assert sessions.get().range(7).count() == 7
    sessions.close()
    assert server.poll() is None and not server.stood_still


def test_a_call_ends_with_the_driver_that_stands_still(server: SparkServer) -> None:
    frozen = server.pid
    assert frozen is not None
    sessions = Sessions(server.address, outage=str(server.outage_file))
    session = sessions.get()
    begun = time.monotonic()
    os.kill(frozen, signal.SIGSTOP)
    with pytest.raises(Exception, match="UNAVAILABLE") as caught:
        session.range(7).count()
    assert LIMIT_S - 1 < time.monotonic() - begun < SECONDS
    assert session_is_over(caught.value)
    why = f"Spark's driver (pid {frozen}) has not answered for {LIMIT_S:g} s and was ended"
    assert sessions.why(caught.value) == server.stood_still == why
    while server.poll() is None:
        assert time.monotonic() - begun < SECONDS
        time.sleep(0.05)
    assert not Path(f"/proc/{frozen}").exists()
    sessions.drop(session)
    server.restart()
    assert sessions.get().range(7).count() == 7
    sessions.close()
