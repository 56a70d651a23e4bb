"""The connectors of docs/build/connectors.md run as the page says."""

import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.commands.pipelines import HEADGATE

EXAMPLE = Path(__file__).parents[2] / "examples" / "connector"

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
def test_the_example_runs_and_goes_on_where_it_was(tmp_path: Path) -> None:
    for name in ("pipeline.toml", "numbers_example.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    expected = Counter(f"c{task}:{n}" for task in range(2) for n in range(1, 501))
    for new in (1_000, 0):
        done = subprocess.run(
            [HEADGATE, "up", tmp_path / "pipeline.toml", "--until-idle"],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert Counter((tmp_path / "counted.txt").read_text().splitlines()) == expected
        assert f"topic counted: 1,000 records in the log, {new:,} of them new" in done.stdout
    summary = json.loads((tmp_path / "state" / "logs" / "summary.json").read_text())
    assert summary["topics"] == {"counted": {"records": 1_000, "new": 0}}
    assert summary["connectors"]["append"]["committed"] == 1_000
