"""A leader foresees what its next rounds do, on random groups and changes."""

import random
from collections import Counter
from typing import Any

import pytest
from support.depth import tries
from support.herder.setups import SOURCE, created, failure, one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder import messages as m

POLICIES = ("kip415", "connect")


def owners(world: HerderWorld) -> dict[tuple[str, int | None], str]:
    found: dict[tuple[str, int | None], str] = {}
    for name, worker in world.workers.items():
        view = worker.herder.assigned
        assert view is not None
        for connector in view.connectors:
            found[connector, None] = f"http://{name}/"
        for task in view.tasks:
            found[task.connector, task.task] = f"http://{name}/"
    return found


def foreseen(world: HerderWorld, counts: dict[str, int | None], worker: str = "b") -> m.Success:
    call_id = world.call(worker, m.ForeseeMoves(counts))
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success), answer
    return answer


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(tries(8, 100)))
def test_what_is_foreseen_comes_about(policy: str, seed: int) -> None:
    chance = random.Random(f"{policy} {seed}")
    world = two_workers(policy=policy)
    for name in "de"[: chance.randrange(3)]:
        world.add(name, policy=policy)
    world.advance(20_000)
    world.until_settled()
    for number in range(chance.randint(0, 5)):
        config = {**SOURCE, "tasks.max": str(chance.randint(1, 5))}
        world.call("a", m.CreateConnector(f"c{number}", config))
    world.advance(20_000)
    world.until_settled()
    before = owners(world)
    changes: dict[str, int | None] = {}
    for number in chance.sample(range(7), chance.choice([1, 1, 1, 2, 5])):
        changes[f"c{number}"] = chance.choice([None, 1, 2, 3, 6])
    length = len(world.log)
    value = foreseen(world, changes).value
    assert isinstance(value, dict) and len(world.log) == length and owners(world) == before
    expected = dict(before)
    for move in value["moves"]:
        place = (move["connector"], move["task"])
        assert expected.pop(place, "") == move["from"]
        if move["to"]:
            expected[place] = move["to"]
    for name, count in changes.items():
        known = world.workers["a"].herder.state.entry(name) is not None
        if count is None and known:
            world.call("a", m.DeleteConnector(name))
        elif count is not None:
            world.call("a", m.PutConnectorConfig(name, {**SOURCE, "tasks.max": str(count)}))
    world.advance(60_000)
    world.until_settled()
    now = owners(world)
    if len(changes) == 1:
        assert now == expected
        return
    # Changes come one after the other, so the owners may differ. The count of each does not.
    assert set(now) == set(expected)
    most, told = (max(Counter(each.values()).values(), default=0) for each in (now, expected))
    assert abs(most - told) <= 1


def test_nothing_moves_where_nothing_changes() -> None:
    world = two_workers()
    created(world, {**SOURCE, "tasks.max": "3"})
    assert foreseen(world, {}).value == {"moves": [], "count": 0}
    assert foreseen(world, {"c": 3, "unknown": None}).value == {"moves": [], "count": 0}


def test_a_new_connector_and_a_deletion_are_told_by_task() -> None:
    world = two_workers()
    created(world)
    value = foreseen(world, {"c": None, "n": 2}, "a").value
    assert isinstance(value, dict)
    moves = {(move["connector"], move["task"]): move for move in value["moves"]}
    assert set(moves) == {("c", None), ("c", 0), ("n", None), ("n", 0), ("n", 1)}
    assert all(not moves["c", task]["to"] and moves["c", task]["from"] for task in (None, 0))
    assert all(not moves["n", task]["from"] and moves["n", task]["to"] for task in (None, 0, 1))


def test_so_many_tasks_that_the_leader_would_stand_still_are_refused() -> None:
    """`tasks.max` may be 100,000: five such connectors took the herder 4 s."""
    world = two_workers()
    created(world)
    call_id = world.call("b", m.ForeseeMoves({f"n{n}": 10_000 for n in range(5)}))
    world.run()
    refused = failure(world, call_id)
    assert refused.kind is m.ErrorKind.BAD_REQUEST
    assert "There would be 50,007 connectors and tasks" in refused.message
    assert foreseen(world, {"n": 1_000}).value is not None


def test_a_leader_without_a_round_of_its_own_cannot_tell() -> None:
    world = one_worker()
    world.workers["a"].herder._work.member._last.another_leads()
    call_id = world.call("a", m.ForeseeMoves({"x": 1}))
    world.run()
    assert failure(world, call_id).kind is m.ErrorKind.NOT_READY


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(tries(4, 50)))
def test_the_group_is_told_as_it_is(policy: str, seed: int) -> None:
    chance = random.Random(f"group {policy} {seed}")
    world = two_workers(policy=policy)
    for number in range(chance.randint(0, 4)):
        world.call("a", m.CreateConnector(f"c{number}", {"tasks.max": str(chance.randint(1, 5))}))
    world.run()
    call_id = world.call("b", m.DescribeGroup())
    world.run()
    (answer,) = world.answers[call_id]
    assert isinstance(answer, m.Success), answer
    owned = owners(world)
    told: Any = answer.value
    assert [each["url"] for each in told["members"]] == ["http://a/", "http://b/"]
    for each in told["members"]:
        mine = [work for work, url in owned.items() if url == each["url"]]
        assert each["connectors"] == sum(task is None for _, task in mine)
        assert each["tasks"] == sum(task is not None for _, task in mine)
