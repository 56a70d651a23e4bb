"""Processes of this machine: find them, kill them and freeze them."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_KINDS = {
    "headgate_runtime.worker": "worker",
    "headgate_runtime.tasks.zygote": "zygote",
    "headgate_runtime.tasks.main": "task",
}
_SPARE = "(no task yet)"


@dataclass
class Process:
    pid: int
    parent: int
    command: str

    def alive(self) -> bool:
        """Return whether the process exists and is no zombie."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"

    @property
    def kind(self) -> str:
        """The role of the process in a pipeline: ``worker``, ``task``, ``task ahead`` (a spare
        process without a task yet), ``zygote`` or ``other``."""
        for module, kind in _KINDS.items():
            if module in self.command:
                return "task ahead" if _SPARE in self.command else kind
        return "other"

    def same(self) -> bool:
        """Return whether this is still the process that was seen. The system may give its pid to
        another."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return False
        return command == self.command


def processes() -> Iterator[Process]:
    """Yield all processes of this machine that can be seen."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            stat = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        yield Process(int(folder.name), int(stat.rpartition(")")[2].split()[1]), command)


def descendants(pid: int) -> list[Process]:
    """Return every process below `pid`: children, their children, and so on."""
    table = list(processes())
    found: list[Process] = []
    parents = {pid}
    while True:
        more = [p for p in table if p.parent in parents and p not in found]
        if not more:
            return found
        found += more
        parents = {p.pid for p in more}


def signal_if_alive(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def seldom_hurt(alive: Sequence[Process], hurt: Counter[str], chance: random.Random) -> Process:
    """Choose a process of the kind that was hurt least often, so that each kind gets its turn.

    `hurt` counts by the texts that the function `hurt` returns.
    """
    counts = {one.kind: 0 for one in alive}
    for what, count in hurt.items():
        kind = what.rpartition(" ")[0]
        counts[kind] = counts.get(kind, 0) + count
    least = min(counts[one.kind] for one in alive)
    return chance.choice([one for one in alive if counts[one.kind] == least])


def hurt(victim: Process, frozen_s: float = 0.0) -> str:
    """Kill a process, or freeze it for a while. It then goes on as a zombie, with a stale view.

    Returns the kind of the process and what was done, for example ``worker killed``.
    """
    if not frozen_s:
        os.kill(victim.pid, signal.SIGKILL)
        return f"{victim.kind} killed"
    os.kill(victim.pid, signal.SIGSTOP)
    time.sleep(frozen_s)
    os.kill(victim.pid, signal.SIGCONT)
    return f"{victim.kind} frozen"
