"""DeltaSink is killed at each step of a commit. The next task loses and doubles nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.task import delta_process
from support.task.delta_process import RECORDS, STEPS, rows

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

CASES = [(step, mode) for mode in ("rows", "keys") for step in reversed(STEPS)]


@pytest.mark.parametrize(("step", "mode"), CASES)
def test_killed_at_a_step(tmp_path: Path, step: str, mode: str) -> None:
    once = step in ("create", "created", "alter")
    ends = [run(tmp_path, mode, step, count) for count in ((1,) if once else (1, 2))]
    assert ends == [-signal.SIGKILL] * len(ends), "it was not killed at that step"
    assert run(tmp_path, mode, step, 1000) == 0
    assert rows(tmp_path) == list(range(RECORDS))


def run(folder: Path, mode: str, step: str, count: int) -> int:
    arguments = [str(folder), mode, step, str(count), str(int(signal.SIGKILL))]
    command = [sys.executable, delta_process.__file__, *arguments]
    return subprocess.run(command, check=False, timeout=100).returncode
