"""The machine this process runs on: its clock, its boot, its processes. Linux only."""

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class MonotonicClock:
    """Milliseconds since this machine booted, the same for all its processes; stands still while
    the machine sleeps."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Wall time for people and for the timestamps of records; no decision of the log
    rests on it."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Names this boot of this machine: a value of the monotonic clock means something only
    together with it, and two processes with equal ones share files, clock and process ids."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def same_machine(other_boot_id: str) -> bool:
    """Whether a process that saw `other_boot_id` runs on this machine, in this boot of it."""
    return other_boot_id == boot_id()


def start_ticks(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot; None if there is no such process.

    Together with the pid it names a process for good: pids are used again, pairs are not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses and may hold anything, parentheses too.
    return int(text.rpartition(")")[2].split()[19])


def command_line(pid: int) -> str:
    """What process `pid` was started as, for messages; empty if it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()
