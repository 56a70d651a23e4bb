"""Measures CPU time and memory of process trees by /proc. Linux only, as the embedded log is."""

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

PEAK_LOOK_S = 0.5
"""Seconds between two looks. They are rare, since each look walks all pages of a JVM."""
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds of process `root` and all below it. They include processes that have
    ended and were waited for by their parents."""
    spent, children = _look()
    return sum(spent.get(pid, 0.0) for pid in _below(root, children))


def below(root: int) -> list[int]:
    """Return the ids of process `root` and all below it."""
    return _below(root, _look()[1])


def pss_mib(root: int) -> float:
    """Return the proportional set size, in MiB, of `root` and all below it. Pages that they share
    with each other count once. Pages that they share with other processes count in part."""
    return sum(map(_pss_kib, below(root))) / 1024


class Peak:
    """Measures the largest `pss_mib` of `root` during the context, by two looks a second."""

    def __init__(self, root: int) -> None:
        self.mib = 0.0
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        self.mib = pss_mib(self._root)
        while not self._over.wait(PEAK_LOOK_S):
            self.mib = max(self.mib, pss_mib(self._root))


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # the process has ended meanwhile
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    found, pending = [], [root]
    while pending:
        found.append(pid := pending.pop())
        pending += children.get(pid, ())
    return found


def _look() -> tuple[dict[int, float], dict[int, list[int]]]:
    """Return the CPU seconds of each process, and the children of each process."""
    spent: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        # After the command in parentheses: state, parent, ..., utime, stime, cutime, cstime.
        fields = text.rpartition(")")[2].split()
        spent[int(folder.name)] = sum(map(int, fields[11:15])) / _TICKS_PER_S
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    return spent, children


def command(pid: int) -> str:
    """Return the command line of `pid`, with a null after each argument. Empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def spark_drivers(pid: int) -> list[int]:
    """Return the ids of JVMs below `pid` that are Spark Connect servers."""
    return [
        one
        for one in below(pid)
        if "SparkConnectServer" in command(one) and "java" in command(one).split("\0")[0]
    ]
