"""Task bodies on real executors: many at once, interrupted, and left behind when processes die."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spark.shared import TESTS, executors, parent_of, spark_server  # noqa: F401

from bench.processes import cpu_seconds
from headgate.ports import LaunchRefusal
from headgate_spark import daemon, skin
from headgate_spark.check import check_slots, free_slots
from headgate_spark.guard import descendants
from headgate_spark.launcher import SparkLauncher
from headgate_spark.server import SparkServer
from headgate_spark.sessions import Sessions, shown_remote
from headgate_spark.slots import SlotsError

pytestmark = pytest.mark.slow


class Ended:
    """Collects how runs ended."""

    def __init__(self) -> None:
        self.errors: dict[str, str | None] = {}
        self._changed = threading.Condition()

    def of(self, run: str) -> Callable[[str | None], None]:
        def ended(error: str | None) -> None:
            with self._changed:
                assert run not in self.errors, f"{run} ended twice"
                self.errors[run] = error
                self._changed.notify_all()

        return ended

    def wait(self, run: str, seconds: float = 60) -> str | None:
        with self._changed:
            assert self._changed.wait_for(lambda: run in self.errors, seconds), f"{run} runs on"
            return self.errors[run]


@pytest.fixture
def launcher(spark_server: SparkServer) -> Iterator[SparkLauncher]:  # noqa: F811
    """A launcher as in `headgate up`, where all workers share a session."""
    made = SparkLauncher(spark_server.address, "support.task.toy_body:resident", 60.0)
    yield made
    made.close()


def argument(file: Path, **more: Any) -> str:
    return json.dumps({"file": str(file), **more})


def started(file: Path, attempts: int = 1, seconds: float = 60) -> dict[str, int]:
    """Return what the body wrote at its start."""
    wait_for(lambda: file.exists() and file.read_text().count("\n") >= attempts, seconds)
    found: dict[str, int] = json.loads(file.read_text().splitlines()[-1])
    return found


def wait_for(condition: Callable[[], bool], seconds: float) -> float:
    """Wait for a condition. Return how long it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, f"not within {seconds} s"
        time.sleep(0.02)
    return time.monotonic() - begin


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.exhaustive
def test_tasks_run_at_once_each_in_a_process_of_its_own(
    launcher: SparkLauncher, tmp_path: Path
) -> None:
    ended = Ended()
    files = [tmp_path / str(n) for n in range(12)]
    for n, file in enumerate(files):
        launcher.launch(f"w/{n}", argument(file), ended.of(f"w/{n}"))
    pids = {started(file)["pid"] for file in files}
    assert len(pids) == len(files)
    for file in files:
        Path(f"{file}.stop").touch()
    assert [ended.wait(f"w/{n}") for n in range(len(files))] == [None] * len(files)


@pytest.mark.exhaustive
def test_a_body_that_raises_is_told_and_not_tried_again(
    spark_server: SparkServer,  # noqa: F811
) -> None:
    launcher = SparkLauncher(spark_server.address, "support.task.toy_body:raising")
    ended = Ended()
    launcher.launch("w/1", "x", ended.of("w/1"))
    error = ended.wait("w/1")
    launcher.close()
    assert error is not None
    assert "ValueError: no good: x" in error


def daemons(sessions: Sessions) -> set[int]:
    """The processes that forked the Python workers of a job."""

    def parents(batches: Iterator[Any]) -> Iterator[Any]:
        import os

        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"pid": pa.array([os.getppid()] * batch.num_rows)})

    frame = sessions.get().range(0, 4, 1, 4).mapInArrow(parents, "pid long")
    return {row["pid"] for row in frame.collect()}


@pytest.mark.exhaustive
def test_who_shares_a_session_shares_the_daemon_that_forks_workers(
    spark_server: SparkServer,  # noqa: F811
) -> None:
    """Spark starts one for each session, which took 3 s of CPU before the first record."""
    found: set[int] = set()
    for _ in range(4):
        shared = Sessions(spark_server.address, 5.0, shared=True)
        found |= daemons(shared)
        shared.close()
    assert len(found) <= 2, "one on each executor"
    alone = Sessions(spark_server.address)
    assert not daemons(alone) & found
    alone.close()


@pytest.mark.exhaustive
def test_a_launcher_that_closes_leaves_the_tasks_of_others_in_the_session(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    ended, stays, goes = Ended(), tmp_path / "stays", tmp_path / "goes"
    launchers = [
        SparkLauncher(spark_server.address, "support.task.toy_body:resident", 5.0) for _ in range(2)
    ]
    for launcher, run, file in zip(launchers, ("stays", "goes"), (stays, goes), strict=True):
        launcher.launch(run, argument(file), ended.of(run))
    for file in (stays, goes):
        started(file)
    launchers[1].close()
    assert ended.wait("goes") is not None
    assert "stays" not in ended.errors
    launchers[0].kill("stays")
    assert ended.wait("stays") is not None
    launchers[0].close()


@pytest.mark.exhaustive
def test_the_server_lets_in_only_those_who_have_its_token(
    spark_server: SparkServer,  # noqa: F811
) -> None:
    """A client that is accepted can run Python as the worker's user, so other users must not find
    the token."""
    bare = f"sc://localhost:{spark_server.port}"
    token = spark_server.address.partition("token=")[2]
    assert len(token) > 40 and token not in shown_remote(spark_server.address)
    for remote in (bare, f"{bare}/;token={token[:-1]}"):
        with pytest.raises(Exception, match=r"(?i)unauthenticated|invalid authentication token"):
            Sessions(remote).get().range(1).count()
    sessions = Sessions(spark_server.address)
    assert sessions.get().range(3).count() == 3
    sessions.close()
    assert spark_server.pid is not None
    for pid in (spark_server.pid, *descendants(spark_server.pid)):
        assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert token not in spark_server.log_file.read_text()
    assert spark_server.log_file.stat().st_mode & 0o077 == 0
    assert spark_server.folder.stat().st_mode & 0o077 == 0


@pytest.mark.exhaustive
def test_the_daemon_that_forks_tasks_has_one_thread(
    spark_server: SparkServer,  # noqa: F811
) -> None:
    """A fork copies one thread; a lock that another held would never be free in the child."""
    launcher = SparkLauncher(spark_server.address, "support.task.toy_body:threads")
    ended = Ended()
    launcher.launch("w/1", "x", ended.of("w/1"))
    error = ended.wait("w/1")
    launcher.close()
    assert "daemon has 1 threads" in str(error)


@pytest.mark.exhaustive
def test_a_daemon_that_is_idle_ends_and_the_session_gets_another(tmp_path: Path) -> None:
    """Each session has one in each executor, which Spark would keep as long as the executor."""
    conf = {f"spark.executorEnv.{daemon.IDLE_VARIABLE}": "2"}
    server = SparkServer("local-cluster[1,4,1024]", 4, tmp_path, conf, start_timeout_s=180)
    server.start()
    try:
        sessions = Sessions(server.address)
        found: list[int] = []
        for _ in range(3):
            [now] = daemons(sessions)
            assert now not in found
            found.append(now)
            wait_for(lambda: not alive(found[-1]), 30)
        sessions.close()
    finally:
        server.stop()


@pytest.mark.exhaustive
def test_the_cpu_of_tasks_that_have_ended_is_counted(
    spark_server: SparkServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    """`bench` reads it of whole process trees; PySpark's own daemon loses it."""
    launcher = SparkLauncher(spark_server.address, "support.task.toy_body:burning")
    ended = Ended()

    burnt = 0.0
    counted: dict[int, float] = {}
    """CPU of each daemon after its last task."""
    first: dict[int, float] = {}
    for n in range(8):
        launcher.launch(f"{n}", argument(tmp_path / f"{n}"), ended.of(f"{n}"))
        assert ended.wait(f"{n}") is None
        used = json.loads((tmp_path / f"{n}").read_text())
        wait_for(lambda pid=used["pid"]: not Path(f"/proc/{pid}").exists(), 10)  # type: ignore[misc]
        parent = used["daemon"]
        counted[parent] = cpu_seconds(parent)
        # What a daemon used before its first task had ended is not told apart.
        burnt += used["cpu_s"] if parent in first else 0
        first.setdefault(parent, counted[parent])
    launcher.close()
    assert burnt >= 4
    assert sum(counted.values()) - sum(first.values()) == pytest.approx(burnt, rel=0.05)


@pytest.mark.exhaustive
def test_kill_ends_one_task_and_leaves_the_others(launcher: SparkLauncher, tmp_path: Path) -> None:
    ended = Ended()
    for name in ("a", "b"):
        launcher.launch(name, argument(tmp_path / name), ended.of(name))
    victim, other = started(tmp_path / "a"), started(tmp_path / "b")
    launcher.kill("a")
    assert "CANCELED" in str(ended.wait("a", 10))
    wait_for(lambda: not alive(victim["pid"]), 10)
    assert alive(other["pid"])
    assert "b" not in ended.errors
    Path(f"{tmp_path / 'b'}.stop").touch()
    assert ended.wait("b") is None


@pytest.mark.exhaustive
def test_a_killed_python_worker_is_not_started_again_by_spark(
    launcher: SparkLauncher, tmp_path: Path
) -> None:
    ended = Ended()
    launcher.launch("w", argument(tmp_path / "w"), ended.of("w"))
    os.kill(started(tmp_path / "w")["pid"], signal.SIGKILL)
    assert "attempt 1 of Spark's own is refused" in str(ended.wait("w", 40))
    assert (tmp_path / "w").read_text().count("\n") == 1


@pytest.mark.exhaustive
def test_executors_with_headgate_of_another_version_are_refused(
    launcher: SparkLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = importlib.metadata.version("headgate")
    monkeypatch.setattr(skin.importlib.metadata, "version", lambda _: "9.9")
    ended = Ended()
    launcher.launch("w", "x", ended.of("w"))
    error = ended.wait("w")
    assert isinstance(error, LaunchRefusal), "another try would end the same"
    assert f"has Headgate {here}, and the worker has 9.9: install headgate==9.9 there" in error


def test_a_killed_executor_takes_its_tasks_and_spark_retries_none(
    spark_server: SparkServer,  # noqa: F811
    launcher: SparkLauncher,
    tmp_path: Path,
) -> None:
    ended = Ended()
    launcher.launch("w", argument(tmp_path / "w"), ended.of("w"))
    pids = started(tmp_path / "w")
    executor = parent_of(pids["daemon"])
    assert executor in executors(spark_server)
    os.kill(executor, signal.SIGKILL)
    wait_for(lambda: not alive(pids["pid"]), 10)
    assert "attempt 1 of Spark's own is refused" in str(ended.wait("w", 60))
    assert (tmp_path / "w").read_text().count("\n") == 1
    launcher.launch("again", argument(tmp_path / "again"), ended.of("again"))
    started(tmp_path / "again")
    Path(f"{tmp_path / 'again'}.stop").touch()
    assert ended.wait("again") is None


@pytest.mark.exhaustive
def test_a_killed_server_is_told_and_serves_again_on_the_same_address(
    spark_server: SparkServer,  # noqa: F811
    launcher: SparkLauncher,
    tmp_path: Path,
) -> None:
    ended = Ended()
    launcher.launch("w", argument(tmp_path / "w"), ended.of("w"))
    pids = started(tmp_path / "w")
    assert spark_server.pid is not None
    address, below = spark_server.address, descendants(spark_server.pid)
    os.kill(spark_server.pid, signal.SIGKILL)
    assert "Spark:" in str(ended.wait("w", 10))
    wait_for(lambda: spark_server.poll() is not None, 10)
    wait_for(lambda: not any(map(alive, [*below, pids["pid"]])), 10)
    spark_server.restart()
    assert spark_server.address == address
    launcher.launch("again", argument(tmp_path / "again"), ended.of("again"))
    started(tmp_path / "again")
    Path(f"{tmp_path / 'again'}.stop").touch()
    assert ended.wait("again") is None
    assert (tmp_path / "w").read_text().count("\n") == 1


@pytest.mark.exhaustive
def test_slots_are_measured_and_too_few_are_refused(
    spark_server: SparkServer,  # noqa: F811
) -> None:
    slots = spark_server.slots
    assert free_slots(spark_server.address, slots + 5) == slots
    check_slots(spark_server.address, 2, [2])
    with pytest.raises(SlotsError, match=f"has {slots} free slots, but 46 are needed"):
        check_slots(spark_server.address, 3, [30, 10])


_PARENT = """
import os, sys, time
from headgate_spark.server import SparkServer
server = SparkServer("local-cluster[1,1,512]", 2, sys.argv[1])
server.start()
from headgate_spark.launcher import SparkLauncher
launcher = SparkLauncher(server.address, "time:sleep_is_no_body")
launcher.launch("w", "", lambda error: print(server.pid, flush=True))
time.sleep(600)
"""


@pytest.mark.exhaustive
def test_all_ends_within_ten_seconds_of_the_parents_kill(tmp_path: Path) -> None:
    # Its memory is not the one that executors ask for by default.
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": TESTS},
        text=True,
    )
    try:
        assert parent.stdout is not None
        driver = int(parent.stdout.readline())
        everything = [driver, parent_of(driver), *descendants(driver)]
        assert len(everything) >= 4  # driver, guard, executor, its Python daemon
        parent.kill()
        wait_for(lambda: not any(map(alive, everything)), 10)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
