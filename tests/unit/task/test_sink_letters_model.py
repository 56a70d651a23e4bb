"""Random histories of a sink task with retries, dead letters and reports.

They have pauses, stops, kills, rebalances, and a log that does not answer. No offset is ever
committed of a record that is lost.
"""

from support.depth import tries
from support.task.sink_world import PARTITIONS, World, run_once

from headgate.task.messages import TaskOutcome


def test_what_is_committed_was_taken_or_is_a_dead_letter() -> None:
    seen: set[object] = set()
    for seed in range(tries(25, 1_500)):
        world = World(seed, count=20)
        for _ in range(12):
            seen.add(run_once(world, steps=120))
        world.trouble = False
        outcome = run_once(world, steps=5_000)
        assert world.done, (seed, outcome, world.story[-5:])
        values = [value for place in PARTITIONS for value in world.log[place]]
        assert all(map(world.is_kept, values)), seed
        lost = {value for value in values if value.startswith(("bad", "never", "report"))}
        assert not lost & world.taken, seed
        assert not any(value.startswith("good") for value in world.letters), seed
    assert {None, TaskOutcome.STOPPED, TaskOutcome.LOST} <= seen
