"""The examples of `docs/contribute/scenarios.md` run, and every folder with a world has one."""

import re
from pathlib import Path

import pytest
from support.scenarios import runner as scenario

PAGE = Path(__file__).parents[2] / "docs" / "contribute" / "scenarios.md"
EXAMPLE = re.compile(r"(?<=^```scenario\n)(.*?)(?=^```$)", re.DOTALL | re.MULTILINE)
SECTIONS = re.split(r"^(?=## )", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def folders(section: str) -> list[str]:
    """Folders of ``specs/`` that the heading of a section names."""
    return re.findall(r"`specs/([\w-]+)`", section.partition("\n")[0])


EXAMPLES = {
    name: found.group()
    for part in SECTIONS
    for name in folders(part)
    if (found := EXAMPLE.search(part))
}


def test_every_folder_with_a_world_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(scenario.worlds())


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_runs(name: str, request: pytest.FixtureRequest) -> None:
    blocks, after = scenario.parse(PAGE.name, EXAMPLES[name])
    world = scenario.worlds()[name]()
    ran = scenario.render(blocks, [world.run(block) for block in blocks], after)
    if request.config.getoption("--rewrite"):
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text.replace(EXAMPLES[name], ran), encoding="utf-8")
        return
    assert ran == EXAMPLES[name]
