"""Every capability has a live test in `make test`: docs/contribute/testing.md names it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "contribute" / "testing.md"
HEADING = "## A live test of every capability"
ROW = re.compile(r"^\| ([^|]+?) \| `([^`|]+)` \|$", re.MULTILINE)


def named() -> dict[str, str]:
    """Tests of the table, by capability."""
    section = PAGE.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    rows = ROW.findall(section)
    assert len(rows) == section.count("\n|") - 2, "a row of the table is not read"
    return dict(rows)


def test_every_capability_has_a_live_test_in_make_test() -> None:
    tests = named()
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not exhaustive"]
    done = subprocess.run(
        [*command, *tests.values()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    run = {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}
    missing = {what: test for what, test in tests.items() if test not in run}
    assert not missing, done.stdout + done.stderr
