"""Code in pages: the README's runs, and code from an example is still in that example."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = ("class CountTask", "class CountSource", "class AppendTask", "class TickTask")
"""Classes of the examples that `docs/build/connectors.md` shows."""


def blocks(page: str) -> list[str]:
    return PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))


def test_python_in_the_readme_prints_what_its_comments_say() -> None:
    (block,) = blocks("README.md")
    said = [line.removeprefix("# ") for line in block.splitlines() if line.startswith("# ")]
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == said


def test_the_page_on_connectors_shows_the_examples_as_they_are() -> None:
    folder = ROOT / "examples/connector"
    code = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    shown = [block for block in blocks("docs/build/connectors.md") if block.strip() in code]
    missing = [name for name in SHOWN if not any(name in block for block in shown)]
    assert not missing
