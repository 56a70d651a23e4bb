"""The demo of README.md, run in a folder of its own: it compares types, kills a worker, and counts.

`make test` runs it on every fifth flight, `make test-all` on all of them.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.depth import everything

DEMO = Path(__file__).parents[2] / "examples" / "demo"

pytestmark = pytest.mark.slow


def test_the_demo_ends_exactly_once(tmp_path: Path) -> None:
    for name in ("pipeline.toml", "typed.toml", "run.py"):
        shutil.copy(DEMO / name, tmp_path)
    command = [sys.executable, str(tmp_path / "run.py"), f"--every={1 if everything() else 5}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\ndemo: equal\n" in done.stdout
    assert "none: equal by type and value" in done.stdout
    first, second = re.findall(r"^  types +(.+)$", done.stdout, re.MULTILINE)
    assert first == "15 int64, 4 string, 1 timestamp[us, tz=UTC]"
    assert second.startswith("20 string: ")
    assert len(re.findall(r"^  rows/s +\d", done.stdout, re.MULTILINE)) == 2
    assert done.stdout.endswith("demo: exactly once\n"), done.stdout
