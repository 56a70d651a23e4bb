"""CPU time of whole process trees, read from /proc. Linux only, as the embedded log is."""

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """CPU that process `root` and all below it have used, those included that have ended and were
    waited for by their parents."""
    spent, children = _look()
    return sum(spent.get(pid, 0.0) for pid in _below(root, children))


def below(root: int) -> list[int]:
    """`root` and all processes below it."""
    return _below(root, _look()[1])


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    found, pending = [], [root]
    while pending:
        found.append(pid := pending.pop())
        pending += children.get(pid, ())
    return found


def _look() -> tuple[dict[int, float], dict[int, list[int]]]:
    """Seconds of each process, and its children."""
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
