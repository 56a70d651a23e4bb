"""docs/build/simulation.md: its settings are those that are read, and what it shows is printed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from headgate.simulation.study import read_study, run_study
from headgate.simulation.study.event_text import event_of
from headgate.simulation.study.reading import FIRST_DELAY, setting_names
from headgate_runtime.command.study_file import load_study
from headgate_runtime.command.study_timeline import timeline

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/build/simulation.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "simulation"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(kind: str) -> list[str]:
    return [text for found, text in FENCED.findall(PAGE) if found == kind]


def rows(head: str) -> list[list[str]]:
    """Cells of the table whose head begins so."""
    lines = PAGE.split(f"| {head} |", 1)[1].splitlines()[2:]
    found: list[list[str]] = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def test_it_lists_every_setting_with_its_default() -> None:
    listed = {cells[0].strip("` "): cells[1].strip("` ") for cells in rows("setting")}
    settings = {**setting_names(), FIRST_DELAY: "3000"}
    assert listed.keys() == settings.keys()
    for name, default in settings.items():
        span = re.fullmatch(r"\((\d+), (\d+)\)", default)
        if span is not None and span[1] == span[2]:
            assert listed[name] == span[1]
        else:
            assert listed[name].strip("[]") == default.strip("()")


def test_every_event_that_it_lists_is_one() -> None:
    texts = [text for cells in rows("event") for text in re.findall(r"`([^`]+)`", cells[0])]
    assert len(texts) > 10
    for text in texts:
        event_of(text if " " in text or text == "roll" else f"{text} orders", ["orders"])


def test_its_study_is_read_and_its_timeline_is_what_the_example_prints() -> None:
    (study,) = blocks("toml")
    made = read_study(tomllib.loads(study))
    shown, table = blocks("")
    assert shown in "\n".join(timeline(run_study(made)))
    example = load_study(str(EXAMPLES / "crash_and_back.toml"))
    assert example == made
    assert table.startswith("delay ")


def test_it_shows_the_example_in_python_as_it_is_and_it_runs() -> None:
    (code,) = blocks("python")
    path = EXAMPLES / "compare_delays.py"
    assert path.read_text(encoding="utf-8").endswith(code)
    done = subprocess.run(
        [sys.executable, str(path), "2"], capture_output=True, text=True, check=True
    )
    head, *lines = done.stdout.splitlines()
    assert head == blocks("")[1].splitlines()[0]
    moves = {line.split()[0]: line.split()[1] for line in lines}
    assert moves == {"0s": "6", "60s": "6", "300s": "0"}


def test_every_example_is_listed() -> None:
    listed = {cells[0].strip("` ") for cells in rows("file in `examples/simulation`")}
    assert listed == {path.name for path in EXAMPLES.glob("*.toml")}
