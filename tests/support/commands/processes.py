"""Processes of this machine, looked at and hurt from outside."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Process:
    pid: int
    parent: int
    command: str

    def alive(self) -> bool:
        """Not gone and no zombie."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"

    def same(self) -> bool:
        """Still the process that was seen, not another that got its number."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            return False
        return command == self.command


def processes() -> Iterator[Process]:
    """All processes of this machine that can be seen."""
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
    """Every process below `pid`, whoever stands between."""
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
