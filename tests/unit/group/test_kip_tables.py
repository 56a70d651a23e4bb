"""The policy `connect` computes the rounds in the five tables of KIP-415 that Apache's assignor
computes, too.

Each round starts from what the table's round before it left.
"""

from pathlib import Path

import pytest
from support.scenarios import runner as scenario
from support.scenarios.assignment import ConnectPolicyWorld

TABLES = Path(__file__).parents[3] / "specs" / "kip-415"


@pytest.mark.parametrize(
    ("story", "rounds", "the_same"),
    [
        ("non-first-new-member-joins", 2, [2]),
        ("worker-leaves", 2, [1]),
        ("worker-bounces", 3, [1, 2, 3]),
        ("leader-leaves", 1, []),
        ("leader-bounces", 5, [1, 2]),
    ],
)
def test_rounds_that_are_as_in_the_table(story: str, rounds: int, the_same: list[int]) -> None:
    path = TABLES / f"{story}.txt"
    blocks, _ = scenario.parse(path.name, path.read_text(encoding="utf-8"))
    world = ConnectPolicyWorld()
    told = [(block, world.run(block)) for block in blocks]
    shown = [(block.expected, output) for block, output in told if block.command == "round"]
    assert len(shown) == rounds
    assert [n for n, (table, ours) in enumerate(shown, 1) if table == ours] == the_same
