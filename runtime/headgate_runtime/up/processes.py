"""The worker processes of ``headgate up``: started, watched, started again, stopped.

A worker reads its config from the first line of its standard input. It takes the end of that input
as the end of its parent, so nothing outlives a `headgate up` that was killed.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from headgate_runtime.config.private_files import private_opener
from headgate_runtime.tasks.process_restarts import Restarts
from headgate_runtime.up.snapshot import Phase
from headgate_runtime.worker.log_format import STATUS_LOGGER, warning_of

WORKER_COMMAND = (sys.executable, "-m", "headgate_runtime.worker")
_TAIL_BYTES_MAX = 65_536
SAME_WARNING_S = 60.0
WARNINGS_KEPT = 1_000


@dataclass(slots=True)
class LogTail:
    """Follows a log file that a child writes directly. So the child can write it after we are
    gone."""

    path: Path
    position: int = 0
    last_line: str = ""

    def new_lines(self) -> list[str]:
        """Return the whole lines written since the last call."""
        try:
            with self.path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                if size - self.position > _TAIL_BYTES_MAX:
                    self.position = size - _TAIL_BYTES_MAX
                log.seek(self.position)
                data = log.read(_TAIL_BYTES_MAX)
        except FileNotFoundError:
            return []
        whole = data.rfind(b"\n") + 1
        self.position += whole
        lines = data[:whole].decode(errors="replace").splitlines()
        for line in lines:
            if line.strip():
                self.last_line = line.strip()
        return lines


def warnings_of(lines: Sequence[str]) -> list[str]:
    """Return the warnings and errors in a worker's log for the user. States of connectors and tasks
    are left out: their changes are shown anyway."""
    found = [warning for line in lines if (warning := warning_of(line)) is not None]
    return [text for logger, text in found if logger != STATUS_LOGGER]


@dataclass(slots=True)
class WorkerProcess:
    """One worker over all its processes."""

    name: str
    url: str
    config: Mapping[str, Any]
    """The worker's `WorkerConfig` as plain data."""
    tail: LogTail
    process: "subprocess.Popen[bytes] | None" = None
    phase: Phase = Phase.STARTING
    started_at: float = 0.0
    starts: int = 0
    restart_at: float = 0.0
    answered_at: float | None = None
    """When this process last answered a call."""
    note: str = ""
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None


Warn = Callable[[str], None]
Marked = Callable[[str, str], None]
"""Function that takes a worker's name and what happened to it."""


class WorkerProcesses:
    """All workers that this `headgate up` runs. For one thread."""

    def __init__(
        self,
        configs: Sequence[Mapping[str, Any]],
        logs: Path,
        warn: Warn,
        marked: Marked,
        command: Sequence[str] = WORKER_COMMAND,
    ) -> None:
        """
        Args:
            configs: a `WorkerConfig` as plain data for each worker.
            logs: existing folder for the log files, ``<worker name>.log``.
        """
        self._logs = logs
        self._warn = warn
        self._marked = marked
        self._command = tuple(command)
        self._warned: dict[str, float] = {}
        self.workers = [
            WorkerProcess(config["name"], config["url"], config, LogTail(self._log(config["name"])))
            for config in configs
        ]

    def start(self) -> None:
        for worker in self.workers:
            self._start(worker)

    def tick(self) -> None:
        """Notice ended processes, start again those that are due, and pass on the workers'
        warnings."""
        now = time.monotonic()
        for worker in self.workers:
            for text in warnings_of(worker.tail.new_lines()):
                self._warn_once(worker.name, text, now)
            if worker.process is not None and worker.process.poll() is not None:
                self._ended(worker, now)
            if worker.phase is Phase.WAITING and now >= worker.restart_at:
                self._start(worker)

    def _warn_once(self, worker: str, text: str, now: float) -> None:
        """Show a warning once in a while, even if several workers repeat it."""
        if now - self._warned.get(text, -SAME_WARNING_S) < SAME_WARNING_S:
            return
        if len(self._warned) > WARNINGS_KEPT:
            self._warned.clear()
        self._warned[text] = now
        self._warn(f"{worker}: {text}")

    def answered(self, name: str) -> None:
        """Note that the worker has just answered a call."""
        for worker in self.workers:
            if worker.name == name and worker.process is not None:
                worker.answered_at = time.monotonic()
                worker.phase = Phase.UP

    def stop(self, grace_s: float) -> bool:
        """Send SIGTERM to all, and SIGKILL to those that are alive after `grace_s`. Return True if
        none had to be killed. A `KeyboardInterrupt` in it passes through, and living processes
        stay."""
        living = [worker for worker in self.workers if worker.process is not None]
        for worker in living:
            _signal(worker, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        for worker in living:
            assert worker.process is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            worker.tail.new_lines()
        late = [worker for worker in living if _lives(worker)]
        for worker in late:
            self._warn(f"{worker.name} did not stop within {grace_s:g} s and is killed")
        self.kill()
        return not late

    def kill(self) -> None:
        """Kill every worker at once, and the processes that it has started."""
        for worker in self.workers:
            if worker.process is None:
                continue
            # Each worker leads a session of its own, and its tasks' processes are in its group.
            # After a worker is reaped, its number may belong to another process.
            if _lives(worker):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait()
            _close(worker.process.stdin)
            worker.process = None

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _start(self, worker: WorkerProcess) -> None:
        path = self._log(worker.name)
        with open(path, "ab", opener=private_opener) as log:
            worker.tail.position = max(worker.tail.position, log.tell() if not worker.starts else 0)
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal is for us alone
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once: `tick` notices
            process.stdin.write(json.dumps(dict(worker.config)).encode() + b"\n")
            process.stdin.flush()
        worker.process = process
        worker.phase = Phase.STARTING
        worker.started_at = time.monotonic()
        worker.answered_at = None
        worker.starts += 1
        if worker.starts > 1:
            self._warn(f"{worker.name} starts again, process {process.pid}")
            self._marked(worker.name, "started again")

    def _ended(self, worker: WorkerProcess, now: float) -> None:
        assert worker.process is not None
        how = how_it_ended(worker.process.returncode)
        _close(worker.process.stdin)
        worker.process = None
        self._marked(worker.name, how)
        lived = now - worker.started_at
        pause = worker.restarts.ended(answered=worker.answered_at is not None, lived_s=lived)
        last = f"; its last line: {worker.tail.last_line}" if worker.answered_at is None else ""
        if pause is None:
            worker.phase = Phase.GIVEN_UP
            worker.note = f"{worker.restarts.why()}, the last time {how}{last}"
            where = self._log(worker.name)
            self._warn(f"{worker.name} {how} and is given up: {worker.restarts.why()}; see {where}")
        else:
            worker.phase = Phase.WAITING
            worker.restart_at = now + pause
            worker.note = f"{how}; starts again in {pause:g} s"
            self._warn(f"{worker.name} {how}; it starts again in {pause:g} s{last}")


def how_it_ended(returncode: int) -> str:
    """Return how a process ended: ``was killed by SIGKILL``, ``ended with exit code 3``."""
    if returncode < 0:
        try:
            return f"was killed by {signal.Signals(-returncode).name}"
        except ValueError:
            return f"was killed by signal {-returncode}"
    return f"ended with exit code {returncode}"


def _lives(worker: WorkerProcess) -> bool:
    return worker.process is not None and worker.process.poll() is None


def _signal(worker: WorkerProcess, number: signal.Signals) -> None:
    if worker.process is not None:
        with contextlib.suppress(ProcessLookupError):
            worker.process.send_signal(number)
            # A process stopped by SIGSTOP would not handle it before it is continued.
            worker.process.send_signal(signal.SIGCONT)


def _close(pipe: "IO[bytes] | None") -> None:
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
