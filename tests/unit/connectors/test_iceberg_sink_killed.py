"""IcebergSink is killed at each step of a commit. The next task loses and doubles nothing."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.task import iceberg_process
from support.task.delta_process import RECORDS
from support.task.iceberg_process import STEPS, rows

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.mark.parametrize("mode", ["rows", "keys"])
def test_killed_at_each_step(tmp_path: Path, mode: str, say: Callable[[str], None]) -> None:
    """The task is killed on one table at each step, and at each step but the first also in a later
    batch."""
    killed: Counter[str] = Counter()
    for step in STEPS:
        for count in (1,) if step in ("create", "created") else (1, 2):
            if rows_there(tmp_path) == RECORDS:
                break
            assert run(tmp_path, mode, step, count) == -signal.SIGKILL, (step, count)
            killed[step] += 1
    assert run(tmp_path, mode, "none", 1) == 0
    assert rows(tmp_path) == list(range(RECORDS))
    say(f"killed at: {dict(killed)}; {RECORDS} rows once each")
    assert set(killed) == set(STEPS)


def rows_there(folder: Path) -> int:
    return len(rows(folder)) if (folder / "w").exists() else 0


def run(folder: Path, mode: str, step: str, count: int) -> int:
    arguments = [str(folder), mode, step, str(count), str(int(signal.SIGKILL))]
    command = [sys.executable, iceberg_process.__file__, *arguments]
    return subprocess.run(command, check=False, timeout=200).returncode
