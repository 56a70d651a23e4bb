"""``specs/herder/states.md`` is generated from the table: `pytest --rewrite` writes it anew."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.herder.task_table import TASK_TRANSITIONS, TaskInput, TaskState

FILE = Path(__file__).parents[3] / "specs" / "herder" / "states.md"
HEAD = """# The life of a task, as its worker's herder sees it

Generated from the table in `core/headgate/herder/task_table.py`; `pytest tests/unit/herder
--rewrite` writes it. A pair that is missing here is an `IllegalTransitionError`. Inputs that leave
a state as it is, and the way of every live state to `stopping` (`stop`) and to `ending` (`ended`),
are left out. The body's side of the same life is in `specs/task/states.md`.
"""


def lines() -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    for state in TaskState:
        yield f'    state "{state}" as {state.name}'
    edges: dict[tuple[TaskState, TaskState], list[str]] = {}
    for (state, given), after in TASK_TRANSITIONS.items():
        usual = {(TaskState.STOPPING, TaskInput.STOP), (TaskState.ENDING, TaskInput.ENDED)}
        if after is not state and ((after, given) not in usual or state is TaskState.STOPPING):
            edges.setdefault((state, after), []).append(given.value)
    for (state, after), inputs in edges.items():
        yield f"    {state.name} --> {after.name}: {', '.join(inputs)}"
    yield "```"


def test_the_diagram_shows_the_table(request: pytest.FixtureRequest) -> None:
    text = HEAD + "\n" + "\n".join(lines()) + "\n"
    if request.config.getoption("--rewrite"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8") == text
