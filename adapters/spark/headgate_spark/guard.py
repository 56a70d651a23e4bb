"""Stands between a parent and the JVM it started: when either ends, all that the JVM began ends.

Run as ``python -m headgate_spark.guard PARENT_PID COMMAND...``. Its stdin is a pipe whose other
end only the parent holds, so the end of the parent, however it came, is the end of the pipe. The
parent's pid is watched too, because a fork of the parent would keep the pipe open.

Executors are children of the driver JVM, their Python daemons are children of executors. On Linux
the guard is the subreaper of them all: whoever loses its parent becomes its child, so none
escapes. Elsewhere only the JVM and its process group are ended; executors notice within seconds.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.25
KILL_S = 8.0
"""How long descendants are looked for and killed after the JVM has gone."""
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def guard(parent: int, command: list[str]) -> int:
    """Run `command` till it ends or `parent` does; returns its exit code."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_die_with_guard)
    print(child.pid, flush=True)
    try:
        while child.poll() is None and os.getppid() == parent:
            if _pipe_ended():
                break
    finally:
        _end(child)
    return child.returncode


def descendants(root: int) -> list[int]:
    """Pids below `root`, children first; empty where there is no ``/proc``."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            # The name, in parentheses, may hold anything; the fields behind it do not.
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
    """Runs in the child: a guard that is killed takes the JVM with it."""
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
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        _reap()
        below = descendants(os.getpid())


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), sys.argv[2:]))
