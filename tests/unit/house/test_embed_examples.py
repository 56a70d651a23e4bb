"""The examples of docs/build/embedding.md: they run, they are typed, and the page shows them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate import messages as m

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples/embed"
PAGE = (ROOT / "docs/build/embedding.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("name", "shown"), [("read_topics.py", 0), ("service.py", 1)])
def test_an_example_prints_what_the_page_shows(name: str, shown: int) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout == blocks("text")[shown]


def test_the_page_shows_the_examples_as_they_are() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.py")))
    taken = [block for block in blocks("python") if not block.startswith("from headgate")]
    assert len(taken) == 4
    assert not [block for block in taken if block not in code]


def test_the_examples_are_typed_for_users() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", *files],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_page_has_every_effect_and_every_command() -> None:
    rows = set(re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE))
    effects = {kind.__name__ for kind in m.Effect.__args__}
    assert not effects - rows
    commands = {kind.__name__ for kind in m.Command.__args__}
    assert not {name for name in commands if f"`{name}`" not in PAGE}
