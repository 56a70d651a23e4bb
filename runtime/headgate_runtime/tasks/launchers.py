"""Starts task bodies as processes of this machine."""

import contextlib
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

_log = logging.getLogger("headgate.task")

DRAIN_S = 2.0
"""How long output may keep coming after the process is over (a grandchild may hold the pipe)."""


class ProcessLauncher:
    """A fresh Python process per task. What it prints goes to the worker's log."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = list(command or (sys.executable, "-m", "headgate_runtime.tasks.main"))
        self._lock = threading.Lock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._closed = False

    def launch(self, run: str, argument: str, ended: Callable[[str | None], None]) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the launcher is closed")
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            self._processes[run] = process
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it died at once: its exit status will tell
            process.stdin.write(argument.encode() + b"\n")
            process.stdin.flush()
        name = str(json.loads(argument).get("task", run))
        threading.Thread(
            target=self._follow, args=(run, name, process, ended), name=f"task-{name}", daemon=True
        ).start()

    def kill(self, run: str) -> None:
        with self._lock:
            process = self._processes.get(run)
        if process is not None:
            process.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            processes = list(self._processes.values())
        for process in processes:
            process.kill()

    def _follow(
        self,
        run: str,
        name: str,
        process: "subprocess.Popen[bytes]",
        ended: Callable[[str | None], None],
    ) -> None:
        drained = threading.Thread(target=_relay, args=(name, process), daemon=True)
        drained.start()
        status = process.wait()
        drained.join(DRAIN_S)
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        with self._lock:
            del self._processes[run]
        ended(None if status == 0 else _why(status))


def _relay(name: str, process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            _log.info("%s: %s", name, line.decode(errors="replace").rstrip())


def _why(status: int) -> str:
    if status < 0:
        return f"its process was ended by signal {-status}"
    return f"its process ended with status {status}"
