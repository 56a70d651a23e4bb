"""`headgate up` as a process, which tests watch, kill and freeze from outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.commands.processes import Process, descendants

from headgate_embedded import RefusedError, open_reader

HEADGATE = Path(sys.executable).with_name("headgate")


@dataclass
class Up:
    """One ``headgate up`` on the pipeline file in `folder`."""

    folder: Path
    arguments: tuple[str, ...] = ()
    process: "subprocess.Popen[str] | None" = None
    family: dict[int, Process] = field(default_factory=dict)
    """Every process ever seen below the command, so that none is missed when its parent has
    ended."""

    @property
    def log_folder(self) -> Path:
        return self.folder / "state"

    def start(self) -> "Up":
        output = (self.folder / "up.txt").open("a")
        self.process = subprocess.Popen(
            [str(HEADGATE), "up", "pipeline.toml", "--plain", *self.arguments],
            cwd=self.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self

    def look(self) -> list[Process]:
        assert self.process is not None
        below = descendants(self.process.pid)
        self.family.update((p.pid, p) for p in below)
        return below

    def workers(self) -> list[Process]:
        return [p for p in self.look() if "headgate_runtime.worker" in p.command]

    def executors(self) -> list[Process]:
        return [p for p in self.look() if "CoarseGrainedExecutorBackend" in p.command]

    def daemons(self) -> set[int]:
        """Return the process ids of the daemons that fork the processes of an executor's tasks."""
        forks = [p for p in self.look() if "headgate_spark.daemon" in p.command]
        pids = {p.pid for p in forks}
        return {p.pid for p in forks if p.parent not in pids}

    def records(self, topic: str) -> int:
        """Return the number of committed records of `topic`, or 0 while there is no log."""
        try:
            reader = open_reader(self.log_folder)
        except RefusedError:
            return 0
        try:
            return sum(reader.record_log.end_offsets([topic]).values())
        finally:
            reader.close()

    def wait_for(self, what: str, true: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"headgate up ended while waiting for {what}\n{self.tail()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} within {seconds} s\n{self.tail()}")
            time.sleep(0.1)

    def tail(self, lines: int = 60) -> str:
        """Return the last lines that the command and each of its workers have printed."""
        parts = []
        for path in [self.folder / "up.txt", *sorted(self.folder.glob("state/logs/*.log"))]:
            if path.exists():
                text = path.read_text(errors="replace").splitlines()[-lines:]
                parts.append(f"== {path.name}\n" + "\n".join(text))
        return "\n".join(parts)

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 40) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(seconds)

    def clean_up(self) -> None:
        """Kill the command and every process ever seen below it, after a test that passed or
        failed."""
        if self.process is not None:
            self.look()
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(10)
        for process in self.family.values():
            if process.alive() and process.same():
                os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def ups(tmp_path: Path) -> Iterator[list[Up]]:
    """A list to which a test adds each `Up` that it starts. None of their processes outlives the
    test."""
    started: list[Up] = []
    yield started
    for up in started:
        up.clean_up()
