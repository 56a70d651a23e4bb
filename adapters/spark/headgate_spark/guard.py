"""A process between a parent and the JVM that it started. When either ends, all processes below the
JVM end.

Run it as ``python -m headgate_spark.guard PARENT_PID COMMAND...``. Its stdin is a pipe whose other
end only the parent holds. So the parent's end, whatever its cause, closes the pipe. The parent's
pid is watched, too, because a fork of the parent would keep the pipe open.

Executors are children of the driver JVM, and their Python daemons are children of executors. On
Linux the guard is the subreaper of them all: an orphan becomes its child, so none escapes.
Elsewhere only the JVM and its process group are ended, and executors notice within seconds.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

POLL_S = 0.25
KILL_S = 8.0
"""How long descendants are looked for and killed after the JVM has gone, in seconds."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOP_TIMEOUT_S = 10.0


class Guarded:
    """A process behind a guard of its own, started at once, as its parent sees it.

    Args:
        command: the process and its arguments. Its stdin is empty.
        folder: its working directory.
        log: gets its stdout and stderr.
        environment: its whole environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        log: IO[bytes],
        environment: Mapping[str, str],
    ) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "headgate_spark.guard", str(os.getpid()), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=environment,
            text=True,
            # Ctrl-C goes to the parent, which ends tasks first, and this process last.
            start_new_session=True,
        )
        line = _pipe(self._guard.stdout).readline()
        self.pid: int | None = int(line) if line.strip() else None
        """Pid of the process. None: it could not be started, and the log says why."""

    @property
    def guard_pid(self) -> int:
        """Pid of the guard. All processes below the command stay below the guard, even if others
        end."""
        return self._guard.pid

    def poll(self) -> int | None:
        """Return the exit code of the command, or 256 less the signal that ended it. None while it
        runs."""
        return self._guard.poll()

    def wait(self, timeout_s: float) -> int:
        """Wait for the end, and return as `poll` does. Raises `subprocess.TimeoutExpired`."""
        return self._guard.wait(timeout_s)

    def end(self) -> None:
        """Kill the process and all below it. Returns when they are gone."""
        _pipe(self._guard.stdin).close()
        try:
            self._guard.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # The guard itself stands still. Processes that are orphaned by its end would have no
            # subreaper.
            below = descendants(self._guard.pid)
            self._guard.send_signal(signal.SIGKILL)  # the kernel ends the child with it
            self._guard.wait()
            _kill(below)
        _pipe(self._guard.stdout).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def guard(parent: int, command: list[str]) -> int:
    """Run `command` until it or `parent` ends. Return its exit code."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # our own stdout is not read after the pid
        preexec_fn=_die_with_guard,
    )
    print(child.pid, flush=True)
    try:
        while child.poll() is None and os.getppid() == parent:
            if _pipe_ended():
                break
    finally:
        _end(child)
    return child.returncode


def descendants(root: int) -> list[int]:
    """Return the pids below `root`, children first. Empty if there is no ``/proc``."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The name, in parentheses, may hold any text. The fields after it do not.
            fields = entry.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                below.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found: list[int] = []
    todo = [root]
    while todo:
        children = below.get(todo.pop(0), [])
        found += children
        todo += children
    return found


def _die_with_guard() -> None:
    """Prepare the child: a guard that is killed takes the JVM with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _pipe_ended() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], POLL_S)
    return bool(ready) and os.read(sys.stdin.fileno(), 1) == b""


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Kill the JVM and every process that it left behind."""
    below = descendants(os.getpid())
    child.kill()
    child.wait()
    deadline = time.monotonic() + KILL_S
    while below and time.monotonic() < deadline:
        _kill(below)
        time.sleep(0.05)
        _reap()
        below = descendants(os.getpid())


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), sys.argv[2:]))
