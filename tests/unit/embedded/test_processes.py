"""Several processes use one log: some are killed, some stopped, and all write at once."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate_embedded import EmbeddedTransport, open_transport, transport_settings
from headgate_embedded.database import Database
from headgate_embedded.lock_holder import LockHolders
from headgate_embedded.schema import FILE_NAME

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[2]


@contextmanager
def started(role: str, folder: Path, argument: str = "") -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", "support.embedded.processes", role, str(folder), argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
    )
    assert process.stdout is not None
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def opened(folder: Path, **settings: str) -> tuple[EmbeddedTransport, list[str]]:
    said: list[str] = []
    transport = open_transport(transport_settings(folder) | settings, warn=said.append)
    transport.record_log.create_topic("t", 1)
    return transport, said


def values(transport: EmbeddedTransport) -> list[tuple[bytes | None, int]]:
    found = transport.record_log.read("t", 0, 0, 1 << 40, 1 << 40)
    return [(r.key, int(r.value or b"-1")) for r in found]


def test_process_stopped_inside_a_transaction_is_killed_after_the_lease(tmp_path: Path) -> None:
    transport, said = opened(tmp_path, **{"lock.lease.ms": "500"})
    with started("stop_inside_a_transaction", tmp_path) as zombie:
        assert line(zombie) == "stopping"
        # Readers are not held up.
        assert transport.config_log.read(0) == ([], 0)
        before = time.monotonic()
        assert transport.config_log.append([("k", b"v")], privileged=False) == 1
        waited = time.monotonic() - before
        assert zombie.wait(30) == -signal.SIGKILL
    assert 0.5 <= waited < 30
    assert len(said) == 1
    assert f"process {zombie.pid} has held the write lock" in said[0]
    assert "killed it" in said[0]
    assert "stop_inside_a_transaction" in said[0]
    # Nothing of its transaction is there.
    assert [r.key for r in transport.config_log.read(0)[0]] == [b"k"]
    transport.close()


def test_stranger_that_holds_the_lock_is_told_of_not_killed(tmp_path: Path) -> None:
    transport, said = opened(tmp_path, **{"lock.lease.ms": "200"})
    with started("stranger_inside_a_transaction", tmp_path) as stranger:
        assert line(stranger) == "holding"
        assert stranger.stdin is not None
        holders = LockHolders(tmp_path / FILE_NAME)
        assert holders.holder() == stranger.pid
        assert "none of this cluster" in holders.end(stranger.pid, 300)
        assert stranger.poll() is None
        stranger.stdin.write("\n")
        stranger.stdin.flush()
        transport.config_log.append([("k", b"v")], privileged=False)
        assert stranger.wait(30) == 0
    assert all("killed it" not in message for message in said)
    transport.close()


def test_this_process_is_never_killed_by_itself(tmp_path: Path) -> None:
    transport, _ = opened(tmp_path)
    holders = LockHolders(tmp_path / FILE_NAME)
    holders.register()
    database = Database(tmp_path / FILE_NAME)
    with database.write():
        assert holders.holder() is None
    assert "cannot be named" in holders.end(os.getpid(), 1)
    transport.close()
    database.close()


def test_process_that_does_not_hold_the_lock_any_more_is_left_alone(tmp_path: Path) -> None:
    transport, _ = opened(tmp_path)
    with started("idle", tmp_path) as idle:
        assert line(idle) == "opened"
        assert "has let it go" in LockHolders(tmp_path / FILE_NAME).end(idle.pid, 300)
        assert idle.poll() is None
    transport.close()


def test_holder_that_commits_in_time_is_left_alone(tmp_path: Path) -> None:
    transport, said = opened(tmp_path, **{"lock.lease.ms": "1500"})
    with started("slow_commits", tmp_path) as busy:
        assert line(busy) == "started"
        time.sleep(0.05)
        transport.status_log.append([(b"k", b"v")])
        assert busy.wait(60) == 0
    assert said == []
    transport.close()


def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    chance = random.Random(8)
    transport, _ = opened(tmp_path)
    for _ in range(12):
        before = transport.record_log.end_offsets(["t"])
        with started("produce", tmp_path, "g-c-0") as producer:
            assert line(producer) == "started"
            while transport.record_log.end_offsets(["t"]) == before:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.02))
            producer.kill()
            producer.wait()
        found = values(transport)
        assert found == [(b"g-c-0", n) for n in range(len(found))]
        assert len(found) % 100 == 0
        [offset] = [r.value for r in transport.offset_log.read(0)[0]] or [b"0"]
        assert offset == b"%d" % len(found)
    transport.close()


def test_several_processes_append_at_once(tmp_path: Path) -> None:
    transport, said = opened(tmp_path)
    names = [f"w{n}" for n in range(4)]
    count, size = 60, 500
    running = []
    for name in names:
        context = started("append", tmp_path, f"{name},{count},{size}")
        running.append((context, context.__enter__()))
    slowest = [float(line(process)) for _, process in running]
    for context, process in running:
        assert process.wait(60) == 0
        context.__exit__(None, None, None)
    found = values(transport)
    for name in names:
        mine = [value for key, value in found if key == name.encode()]
        assert mine == list(range(count * size))
    assert len(found) == len(names) * count * size
    records, _ = transport.config_log.read(0, 10_000)
    assert [r.offset for r in records] == list(range(len(names) * count))
    for name in names:
        assert [r.value for r in records if r.key == name.encode()] == [
            b"%d" % n for n in range(count)
        ]
    # Nobody starves.
    assert max(slowest) < 10_000, slowest
    assert said == []
    transport.close()
