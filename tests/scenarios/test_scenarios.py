"""Every text scenario under ``specs/`` is run. `tests/support/scenarios/runner.py` says how they
are written."""

from pathlib import Path

import pytest
from support.scenarios import runner as scenario

SPECS = Path(__file__).parents[2] / "specs"
FILES = sorted(SPECS.rglob("*.txt"))
WORLDS = scenario.worlds()


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(SPECS)) for p in FILES])
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    name = path.relative_to(SPECS)
    directory = name.parts[0]
    assert directory in WORLDS, (
        f"specs/{name}: no world for {directory!r}; tests/support/scenarios/ has "
        f"{', '.join(sorted(WORLDS))}"
    )
    text = path.read_text(encoding="utf-8")
    blocks, after = scenario.parse(str(name), text)
    assert blocks, f"specs/{name} has no blocks"
    world = WORLDS[directory]()
    outputs = [world.run(block) for block in blocks]
    if request.config.getoption("--rewrite"):
        path.write_text(scenario.render(blocks, outputs, after), encoding="utf-8")
        return
    for block, output in zip(blocks, outputs, strict=True):
        assert output == block.expected, (
            f"{block.where()}: {block.command_line}\nexpected:\n{block.expected}\n\ngot:\n{output}"
        )


def test_rewriting_keeps_a_right_file_as_it_is() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        blocks, after = scenario.parse(path.name, text)
        assert scenario.render(blocks, [block.expected for block in blocks], after) == text
