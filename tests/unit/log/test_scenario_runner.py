"""The scenario runner: what it reads, refuses and writes."""

import pytest
from support.scenarios.runner import Block, ScenarioError, World, parse, render, worlds

from headgate.errors import LogOrderError


class Echo(World):
    def do_say(self, block: Block) -> list[str]:
        return [*block.words, *sorted(f"{k}:{v}" for k, v in block.options.items()), *block.input]

    def do_gap(self, block: Block) -> str:
        return "above\n\nbelow  \n"

    def do_break_order(self, block: Block) -> str:
        raise LogOrderError("offsets went back")

    def do_bug(self, block: Block) -> str:
        raise ZeroDivisionError


TEXT = """\
# A story.
say 'two words' x=1
line
----
two words
x:1
line

gap
----
----
above

below
----

# Nothing said.
say
----
"""


def test_a_file_is_read_run_and_written_alike() -> None:
    blocks, after = parse("f.txt", TEXT)
    outputs = [Echo().run(block) for block in blocks]
    assert [block.expected for block in blocks] == outputs
    assert outputs == ["two words\nx:1\nline", "above\n\nbelow", ""]
    assert render(blocks, outputs, after) == TEXT


def test_outputs_are_filled_in() -> None:
    blocks, after = parse("f.txt", "say a\n----\nwrong\n\n# b\nsay b\n----\n")
    filled = render(blocks, [Echo().run(block) for block in blocks], after)
    assert filled == "say a\n----\na\n\n# b\nsay b\n----\nb\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("say\ninput", "f.txt:1: 'say' has no '----'"),
        ("say\ninput\n\n----\n", "f.txt:3: a blank line in the input"),
    ],
)
def test_files_that_are_not_well_formed(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse("f.txt", text)


def test_errors_of_the_core_are_output_and_others_are_not() -> None:
    order, bug, unknown = parse("f", "break-order\n----\n\nbug\n----\n\nshout\n----\n")[0]
    assert Echo().run(order) == "LogOrderError: offsets went back"
    with pytest.raises(ZeroDivisionError):
        Echo().run(bug)
    with pytest.raises(ScenarioError, match="no command 'shout'; here are break-order, bug, gap"):
        Echo().run(unknown)


def test_the_worlds_of_this_area_are_found() -> None:
    assert {"config-log", "offsets", "status"} <= set(worlds())
