"""The machine that this process runs on: its clock, its boot and its processes. Linux only."""

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class MonotonicClock:
    """A clock of milliseconds since this machine booted, the same for all its processes. It stands
    still while the machine sleeps."""

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Return the wall time, for people, timestamps of records and retention. No other decision of
    the log depends on it."""
    return time.time_ns() // 1_000_000


def boot_id() -> str:
    """Return the id of this boot of this machine.

    A value of the monotonic clock is only meaningful together with it. Two processes with the same
    boot id share files, clock and process ids.
    """
    return _BOOT_ID.read_text(encoding="ascii").strip()


def same_machine(other_boot_id: str) -> bool:
    """Return whether a process that saw `other_boot_id` runs on this machine, in the same boot."""
    return other_boot_id == boot_id()


def start_ticks(pid: int) -> int | None:
    """Return when process `pid` started, in clock ticks since boot. None: there is no such process.

    Together with the pid it identifies a process for good. Pids are used again, such pairs are not.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the command in parentheses. It may contain anything, also parentheses.
    return int(text.rpartition(")")[2].split()[19])


def command_line(pid: int) -> str:
    """Return the command line of process `pid`, for messages. Empty: the process is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    return raw.replace(b"\0", b" ").decode("utf-8", "replace").strip()
