"""The page on the connectors' options says what their definitions say."""

import subprocess
import sys
from pathlib import Path

from headgate_runtime.plugins.describe import listed

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/run/connectors.md"


def test_the_page_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/connectors_page.py", "--check"], capture_output=True
    )
    assert done.returncode == 0, "run .venv/bin/python tools/connectors_page.py"


def test_the_page_has_every_connector_of_ours() -> None:
    text = PAGE.read_text(encoding="utf-8")
    ours = {row["name"] for row in listed() if row["class"].startswith("headgate")}
    shown = {name for name in ours if "." not in name}
    assert shown
    assert not [name for name in shown if f"\n## {name}\n" not in text]
