"""``specs/task/states.md`` is generated from the tables: `pytest --rewrite` writes it anew."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from headgate.task.machine import Table
from headgate.task.planned import PLANNED_TRANSITIONS
from headgate.task.sink import SINK_TRANSITIONS
from headgate.task.source import SOURCE_TRANSITIONS

FILE = Path(__file__).parents[3] / "specs" / "task" / "states.md"
HEAD = """# The lives of tasks

Generated from the tables in `core/headgate/task/`; `pytest tests/unit/task --rewrite` writes it.
A pair that is missing here is an `IllegalTransitionError`. Inputs that never leave their state
(`PauseTask`, `ResumeTask` and `StopTask` while something is under way: they are remembered) and the
way of every state to `closing` by `Failed`, `StopTask` and `LifelineLost` are left out.
"""


def lines(name: str, table: Table) -> Iterator[str]:
    yield f"\n## {name}\n"
    yield "```mermaid"
    yield "stateDiagram-v2"
    edges: dict[tuple[StrEnum, StrEnum], list[str]] = {}
    for (state, given), following in table.items():
        for after in following:
            if after is not state and given.__name__ not in ("Failed", "StopTask", "LifelineLost"):
                edges.setdefault((state, after), []).append(given.__name__)
    for (state, after), inputs in edges.items():
        yield f"    {state} --> {after}: {', '.join(inputs)}"
    yield "```"


def test_the_diagrams_show_the_tables(request: pytest.FixtureRequest) -> None:
    tables = {
        "A source task": SOURCE_TRANSITIONS,
        "A sink task": SINK_TRANSITIONS,
        "A sink task of planned batches": PLANNED_TRANSITIONS,
    }
    body = [line for name, table in tables.items() for line in lines(name, table)]
    text = HEAD + "\n".join(body) + "\n"
    if request.config.getoption("--rewrite"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text
