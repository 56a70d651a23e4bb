"""Bodies are forked from a zygote. Each behaves like a new interpreter, and starts sooner."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from support.commands.processes import Process, descendants
from support.task.runner_contract import SESSION_TIMEOUT_MS, RunnerBench

from headgate.task.messages import TaskOutcome
from headgate_runtime.tasks import zygote
from headgate_runtime.tasks.select import make_runner
from headgate_runtime.tasks.zygote import SPARE, SPARE_AFTER_S

SETTINGS = {"session.timeout.ms": str(SESSION_TIMEOUT_MS)}
TESTS = Path(__file__).parents[1]
ZYGOTE = "headgate_runtime.tasks.zygote"
TASKS = "headgate_runtime.tasks."

pytestmark = pytest.mark.slow


@pytest.fixture
def make_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., RunnerBench]]:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}{os.pathsep}{tmp_path}")
    made: list[RunnerBench] = []

    def make(preload: Sequence[str] = ()) -> RunnerBench:
        bench = RunnerBench(
            lambda report: make_runner("process", SETTINGS, report, preload=preload), tmp_path
        )
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()


def _started(bench: RunnerBench, plugin: str = "CountingSource") -> tuple[str, int]:
    """Run and pid of a task that is at work."""
    file = bench.folder / "pid"
    file.unlink(missing_ok=True)
    run = bench.start(plugin, {"pause.s": "0.01", "pid.file": str(file)})
    bench.wait_for_records(run, 10)
    return run, int(file.read_text())


def _stop(bench: RunnerBench, run: str) -> None:
    bench.runner.stop(run, 10_000)
    assert bench.wait_for_end(run).outcome is TaskOutcome.STOPPED


def _noted_by(bench: RunnerBench, file: Path) -> list[str]:
    """Return what two tasks, and the zygote before them, have written to a file."""
    for _ in range(2):
        run, _ = _started(bench)
        _stop(bench, run)
    return file.read_text().split()


def _below() -> list[Process]:
    """Zygotes and bodies; a broker of the session may be there too."""
    return [p for p in descendants(os.getpid()) if TASKS in p.command and SPARE not in p.command]


def _spares() -> list[Process]:
    return [p for p in descendants(os.getpid()) if SPARE in p.command and p.alive()]


def _spare() -> Process:
    """The body that waits for a task; there is one when nothing has been asked for a while."""
    until = time.monotonic() + 10
    while not (found := _spares()):
        assert time.monotonic() < until
        time.sleep(0.02)
    (spare,) = found
    return spare


def _zygote() -> Process:
    """The only one. A body has its command line, too, for a moment after its fork."""
    until = time.monotonic() + 10
    while len(found := [p for p in _below() if ZYGOTE in p.command]) != 1:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return found[0]


def _stat(pid: int) -> list[str]:
    """Return the fields of a process's ``stat`` in /proc, from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _signals(status: str, which: str) -> set[int]:
    """Return the signal masks in the text of a process's ``status`` in /proc."""
    for line in status.splitlines():
        name, _, mask = line.partition(":")
        if name == which:
            return {n for n in range(1, 65) if int(mask, 16) >> (n - 1) & 1}
    raise AssertionError(which)


def _status_of_a_new_interpreter() -> str:
    """Return the status of a new interpreter. It ignores the signals that Python itself ignores,
    and those that the parent of these tests ignored."""
    code = "print(open('/proc/self/status').read())"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def _descriptors(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except OSError:
            continue
    return found


def _await_gone(processes: Sequence[Process], seconds: float = 15) -> None:
    until = time.monotonic() + seconds
    while left := [p for p in processes if p.alive()]:
        assert time.monotonic() < until, left
        time.sleep(0.02)


def test_a_body_is_what_a_new_interpreter_would_be(make_bench: Callable[..., RunnerBench]) -> None:
    bench = make_bench()
    run, pid = _started(bench)
    zygote = _zygote()
    assert int(_stat(pid)[1]) == zygote.pid
    # Session and process group are the worker's, as they would be of any child.
    assert _stat(pid)[2:4] == _stat(os.getpid())[2:4]
    # Only what a new one has too, and what asks for a stop, which is the worker's business.
    status = Path(f"/proc/{pid}/status").read_text()
    assert _signals(status, "SigCgt") & {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT} == set()
    new = _signals(_status_of_a_new_interpreter(), "SigIgn")
    assert _signals(status, "SigIgn") == new | {signal.SIGINT, signal.SIGTERM}
    # A pipe that another body held open too would hide the worker's end from this one.
    links = {number: str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in (0, 1, 2)}
    assert links[1] == links[2] != links[0]
    assert not _descriptors(zygote.pid) & set(links.values())
    sockets = {name for name in _descriptors(zygote.pid) if name.startswith("socket")}
    assert sockets
    assert not sockets & _descriptors(pid), "it holds the zygote's connection to the launcher"
    assert _stat(zygote.pid)[17] == "1", "it has threads"
    _stop(bench, run)


def test_a_zygote_that_is_killed_takes_its_bodies_with_it_and_is_replaced(
    make_bench: Callable[..., RunnerBench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench()
    run, _ = _started(bench)
    below = [*_below(), _spare()]
    os.kill(_zygote().pid, signal.SIGKILL)
    ended = bench.wait_for_end(run)
    assert ended.outcome is TaskOutcome.LOST
    assert "gone" in ended.reason or "has ended" in ended.reason
    assert "the process that tasks are forked from has ended, with status -9" in caplog.text
    _await_gone(below)
    again, pid = _started(bench)
    assert int(_stat(pid)[1]) == _zygote().pid
    bench.runner.stop(again, 10_000)
    assert bench.wait_for_end(again).outcome is TaskOutcome.STOPPED


def test_a_body_is_killed_at_its_deadline_though_the_zygote_is_frozen(
    make_bench: Callable[..., RunnerBench],
) -> None:
    bench = make_bench()
    run, pid = _started(bench, "HangingSource")
    time.sleep(0.3)  # it hangs now
    zygote = _zygote()
    os.kill(zygote.pid, signal.SIGSTOP)
    try:
        bench.runner.stop(run, 300)
        until = time.monotonic() + 10
        while _stat(pid)[0] != "Z":
            assert time.monotonic() < until, "it lives"
            time.sleep(0.02)
    finally:
        os.kill(zygote.pid, signal.SIGCONT)
    assert bench.wait_for_end(run).outcome is TaskOutcome.LOST


def test_a_module_that_starts_threads_costs_only_time(
    make_bench: Callable[..., RunnerBench], tmp_path: Path
) -> None:
    """A lock that another thread holds at the moment of a fork would stay held for ever in the
    child."""
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(1e6,)).start()\n"
    (tmp_path / "starts_threads.py").write_text(code)
    bench = make_bench(["starts_threads"])
    run, pid = _started(bench)
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    assert command.endswith(b"\0-m\0headgate_runtime.tasks.main\0c-0\0"), "it was only forked"
    time.sleep(4 * SPARE_AFTER_S)
    assert not _spares()
    _stop(bench, run)


def test_a_task_gets_the_body_that_was_forked_ahead_and_the_next_gets_another(
    make_bench: Callable[..., RunnerBench],
) -> None:
    bench = make_bench()
    run, pid = _started(bench)
    pids = [pid]
    for _ in range(2):
        _stop(bench, run)
        spare = _spare()
        run, pid = _started(bench)
        assert pid == spare.pid
        shown = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0", 1)[0]
        assert shown.endswith(b"main c-0")
        pids.append(pid)
    assert _spare().pid not in pids
    _stop(bench, run)


def test_a_body_that_was_forked_ahead_and_is_gone_costs_no_task(
    make_bench: Callable[..., RunnerBench],
) -> None:
    bench = make_bench()
    run, _ = _started(bench)
    source, spare = _zygote(), _spare()
    held = _descriptors(source.pid)
    _stop(bench, run)
    os.kill(source.pid, signal.SIGSTOP)  # so that it asks the dead one
    os.kill(spare.pid, signal.SIGKILL)
    file = bench.folder / "pid"
    file.unlink()
    run = bench.start("CountingSource", {"pause.s": "0.01", "pid.file": str(file)})
    time.sleep(0.3)
    os.kill(source.pid, signal.SIGCONT)
    bench.wait_for_records(run, 10)
    assert int(file.read_text()) != spare.pid
    _stop(bench, run)
    another = _spare()
    os.kill(another.pid, signal.SIGKILL)  # of this one it is told
    time.sleep(4 * SPARE_AFTER_S)
    assert not _spares(), "once more for nothing"
    run, _ = _started(bench)
    _stop(bench, run)
    assert not [p for p in (spare, another) if Path(f"/proc/{p.pid}").exists()], "not collected"
    _spare()
    assert len(_descriptors(source.pid)) == len(held)


def test_who_ends_before_it_has_its_task_is_not_taken_and_is_collected() -> None:
    ours, its = socket.socketpair()
    its.close()
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not zygote._Spare(process.pid, ours).take("c-0", (0, 1))
        assert not Path(f"/proc/{process.pid}").exists()
    assert ours.fileno() == -1


def test_a_module_that_cannot_be_loaded_keeps_no_task_from_running(
    make_bench: Callable[..., RunnerBench], capfd: pytest.CaptureFixture[str]
) -> None:
    bench = make_bench(["no_such_module"])
    run, _ = _started(bench)
    _stop(bench, run)
    assert "no_such_module cannot be loaded ahead of the tasks" in capfd.readouterr().err


def test_what_a_module_does_for_all_bodies_is_done_once_where_they_are_forked(
    make_bench: Callable[..., RunnerBench], tmp_path: Path
) -> None:
    code = """
import os
from pathlib import Path

def before_forks():
    with Path(__file__).with_name("done").open("a") as file:
        print(os.getpid(), file=file)
"""
    (tmp_path / "prepares.py").write_text(code)
    bench = make_bench(["prepares"])
    assert _noted_by(bench, tmp_path / "done") == [str(_zygote().pid)]


def test_what_a_module_cannot_do_for_all_bodies_keeps_no_task_from_running(
    make_bench: Callable[..., RunnerBench], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cannot.py").write_text("def before_forks():\n    raise OSError('no room')\n")
    bench = make_bench(["cannot"])
    run, _ = _started(bench)
    _stop(bench, run)
    assert "OSError: no room" in capfd.readouterr().err


def test_packages_are_searched_for_connectors_once_and_not_by_each_body(
    make_bench: Callable[..., RunnerBench], tmp_path: Path
) -> None:
    code = """
import os
from pathlib import Path
from headgate_runtime.plugins import find

search, searches = find.entry_points, Path(__file__).with_name("searches")

def noted(**group):
    with searches.open("a") as file:
        print(os.getpid(), file=file)
    return search(**group)

find.entry_points = noted
"""
    (tmp_path / "notes_searches.py").write_text(code)
    bench = make_bench(["notes_searches"])
    assert _noted_by(bench, tmp_path / "searches") == [str(_zygote().pid)]


def test_a_process_that_cannot_be_had_costs_its_own_task_alone(
    make_bench: Callable[..., RunnerBench], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
import errno, os, socket
from pathlib import Path

fork, pair, full = os.fork, socket.socketpair, Path(__file__).with_name("full")

def at_the_limit(of):
    def ask():
        if full.exists():
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return of()
    return ask

os.fork, socket.socketpair = at_the_limit(fork), at_the_limit(pair)
"""
    (tmp_path / "few_processes.py").write_text(code)
    bench = make_bench(["few_processes"])
    first, _ = _started(bench)
    zygote = _zygote()
    _spare()
    held = len(_descriptors(zygote.pid))
    (tmp_path / "full").touch()
    spare = _spare()
    os.kill(spare.pid, signal.SIGKILL)
    _await_gone([spare])  # a task that comes while it dies ends with it
    ended = bench.wait_for_end(bench.start("CountingSource", {}))
    assert (ended.outcome, "ended with status 127" in ended.reason) == (TaskOutcome.LOST, True)
    assert "no process for task c-0: [Errno 11]" in capfd.readouterr().err
    time.sleep(4 * SPARE_AFTER_S)  # nor can one be forked ahead
    assert zygote.alive()
    assert len(_descriptors(zygote.pid)) == held - 1, "the spare one's"
    (tmp_path / "full").unlink()
    bench.runner.stop(first, 10_000)
    assert bench.wait_for_end(first).outcome is TaskOutcome.STOPPED
    second, pid = _started(bench)
    assert int(_stat(pid)[1]) == zygote.pid
    bench.runner.stop(second, 10_000)
    assert bench.wait_for_end(second).outcome is TaskOutcome.STOPPED


LEAVES_WORK = """
import atexit, os, threading, time

def note(word):
    with open({file!r}, "a") as out:
        out.write(f"{{os.getpid()}} {{word}}\\n")

def begin():
    threading.Thread(target=later).start()

def later():
    threading.main_thread().join()
    time.sleep(0.2)
    note("thread")

atexit.register(note, "exit function")
os.register_at_fork(after_in_child=begin)
"""


def test_a_body_waits_for_its_threads_and_exit_functions_and_then_is_gone_at_once(
    make_bench: Callable[..., RunnerBench], tmp_path: Path
) -> None:
    """A body ends as any interpreter does, except that it is not torn down: that would copy the
    shared pages."""
    file = tmp_path / "noted"
    (tmp_path / "leaves_work.py").write_text(LEAVES_WORK.format(file=str(file)))
    bench = make_bench(["leaves_work"])
    run, pid = _started(bench)
    body = next(each for each in _below() if each.pid == pid)
    _stop(bench, run)
    _await_gone([body])
    noted = [line for line in file.read_text().splitlines() if line.startswith(f"{pid} ")]
    assert noted == [f"{pid} thread", f"{pid} exit function"]


def test_closing_ends_bodies_and_zygote(make_bench: Callable[..., RunnerBench]) -> None:
    bench = make_bench()
    _started(bench, "HangingSource")
    below = _below()
    assert len(below) == 2
    below.append(_spare())
    bench.runner.close()
    _await_gone(below, 5)


WORKER = """
import sys, time
from pathlib import Path
from support.task.runner_contract import RunnerBench
from headgate_runtime.tasks.select import make_runner

folder = Path(sys.argv[1])
bench = RunnerBench(lambda report: make_runner("process", {"session.timeout.ms": "3000"}, report),
                    folder)
for number in range(3):
    bench.start("HangingSource", {"pid.file": str(folder / "pid")}, exactly_once=False)
time.sleep(600)
"""


def test_zygote_and_bodies_end_when_their_worker_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    worker = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path)], env=environment)
    try:
        until = time.monotonic() + 30
        while len(below := descendants(worker.pid)) < 4 or not (tmp_path / "pid").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(4 * SPARE_AFTER_S)
        below = descendants(worker.pid)
    finally:
        worker.kill()
        worker.wait()
    _await_gone([p for p in below if ZYGOTE in p.command], 2)
    _await_gone(below)
