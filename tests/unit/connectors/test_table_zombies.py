"""DeltaSink or IcebergSink is stopped at a step while other tasks go on, and wakes up as a zombie.

Its view is stale if it had looked at the table before, and fresh if it looks after.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from support.task import delta_process, iceberg_process
from support.task.delta_process import BATCH, RECORDS

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

STALE, FRESH, AFTER = "stale", "fresh", "after the commit"
VIEWS = {
    delta_process: {"write": STALE, "batch": FRESH, "written": AFTER},
    iceberg_process: {"write": STALE, "staged": STALE, "batch": FRESH, "written": AFTER},
}
"""What a process that was stopped at a step knows of the table when it wakes up."""


Process = subprocess.Popen[bytes]
Begin = Callable[..., Process]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts a process that gets a signal the second time that it is at a step."""
    begun: list[Process] = []

    def started(
        which: ModuleType, folder: Path, mode: str, step: str, number: signal.Signals
    ) -> Process:
        arguments = [str(folder), mode, step, "2", str(int(number))]
        begun.append(subprocess.Popen([sys.executable, str(which.__file__), *arguments]))
        return begun[-1]

    yield started
    for process in begun:
        process.kill()
        process.wait()


@pytest.mark.parametrize("mode", ["rows", "keys"])
@pytest.mark.parametrize("which", VIEWS, ids=["delta", "iceberg"])
def test_zombies_wake_up(
    tmp_path: Path, begin: Begin, which: ModuleType, mode: str, say: Callable[[str], None]
) -> None:
    """Each in a table of its own, in which another has committed two batches meanwhile."""
    woken: Counter[str] = Counter()
    for step, view in VIEWS[which].items():
        folder = tmp_path / step
        folder.mkdir()
        zombie = begin(which, folder, mode, step, signal.SIGSTOP)
        _, status = os.waitpid(zombie.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), step
        there = len(which.rows(folder))
        other = begin(which, folder, mode, "group", signal.SIGKILL)
        assert other.wait(200) == -signal.SIGKILL
        assert len(which.rows(folder)) == there + 2 * BATCH
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.wait(200) == 0, step
        assert which.rows(folder) == list(range(RECORDS)), step
        woken[view] += 1
    say(f"zombies woken, by view: {dict(woken)}; {RECORDS} rows once each")
    assert set(woken) == {STALE, FRESH, AFTER}
