"""A late status of a former owner is not the last one. A status of a later owner is."""

import json

import pytest
from support.herder.setups import SOURCE, created, one_worker
from support.herder.world import HerderWorld

from headgate.herder.messages import (
    ClaimLeadership,
    CreateConnector,
    DeleteConnector,
    ReadConfigToEnd,
    SetTargetState,
    Shutdown,
    Success,
    WriteStatus,
)
from headgate.herder.statuses import UNHEARD_MS
from headgate.ids import TargetState
from headgate.topics.status import decode_status


def running() -> HerderWorld:
    world = one_worker()
    created(world)
    world.trace.clear()
    return world


def hear(world: HerderWorld, key: str, state: str, worker: str, generation: int) -> list[str]:
    """Let the herder read a status of `worker`. Return what it writes because of it."""
    status = {"state": state, "trace": None, "worker_id": worker, "generation": generation}
    world.statuses.append((key, json.dumps(status).encode()))
    world.run()
    return [line for line in world.trace if " status " in line]


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
@pytest.mark.parametrize(
    ("state", "worker", "generation", "again"),
    [
        ("UNASSIGNED", "b", 1, True),
        ("FAILED", "b", 1, True),
        ("UNASSIGNED", "b", 99, False),  # it has it by now
        ("RUNNING", "b", 99, False),
        ("UNASSIGNED", "a", 1, False),  # its own word, that was late itself
    ],
)
def test_the_present_owner_says_again_how_it_is(
    key: str, state: str, worker: str, generation: int, again: bool
) -> None:
    shown = f"a: status {key.removeprefix('status-')} RUNNING"
    assert hear(running(), key, state, worker, generation) == ([shown] if again else [])


def generation(world: HerderWorld) -> int:
    return world.workers["a"].herder.view().generation


def next_generation(world: HerderWorld) -> int:
    """Another connector makes a round; nothing moves."""
    world.call("a", CreateConnector("other", SOURCE))
    world.until_settled()
    assert world.running() == {"a": ["c-0", "other-0"]}
    return generation(world)


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_what_gave_it_up_before_it_had_started_it_is_not_the_last_word(key: str) -> None:
    """Java's worker says RUNNING then, with the generation that it is in by now. Two that both
    think it theirs do not answer each other for ever."""
    world = running()
    shown = f"a: status {key.removeprefix('status-')} RUNNING"
    assert hear(world, key, "RUNNING", "b", generation(world)) == [shown]
    assert hear(world, key, "RUNNING", "b", generation(world)) == [shown]
    world.advance(60_000)
    assert [line for line in world.trace if " status " in line] == [shown]


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_a_word_of_a_generation_after_that_of_ones_own_may_be_late_as_well(key: str) -> None:
    world = running()
    said = generation(world)
    now = next_generation(world)
    assert now > said
    world.trace.clear()
    shown = f"a: status {key.removeprefix('status-')} RUNNING"
    assert hear(world, key, "RUNNING", "b", now) == [shown]


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_a_word_of_a_generation_that_is_heard_of_later_is_answered_then(key: str) -> None:
    world = running()
    assert hear(world, key, "RUNNING", "b", generation(world) + 1) == []
    next_generation(world)
    world.trace.clear()
    world.advance(UNHEARD_MS)
    shown = f"a: status {key.removeprefix('status-')} RUNNING"
    assert [line for line in world.trace if " status " in line] == [shown]


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_who_knows_of_a_later_owner_leaves_the_answer_to_it(key: str) -> None:
    world = running()
    assert hear(world, key, "RUNNING", "b", 99) == []
    assert hear(world, key, "UNASSIGNED", "late", 1) == []
    world.advance(60_000)
    assert world.trace == []


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_who_has_it_no_more_says_nothing(key: str) -> None:
    world = running()
    world.call("a", DeleteConnector("c"))
    world.until_settled()
    world.log.append(("connector-c", b'{"properties":{"connector.class":"Source"}}'))
    world.holds.append(lambda _, e: type(e).__name__ == "SendGroup")
    world.run()
    world.trace.clear()
    heard = hear(world, key, "UNASSIGNED", "b", 1)
    assert not [line for line in heard if "RUNNING" in line or "PAUSED" in line]


def test_what_is_said_again_is_what_was_said_last() -> None:
    """It is not the status that was read back last, which is older."""
    world = running()
    world.holds.append(lambda _, e: type(e).__name__ == "WriteStatus")
    world.call("a", SetTargetState("c", TargetState.PAUSED))
    world.run()
    world.trace.clear()
    assert hear(world, "status-task-c-0", "UNASSIGNED", "b", 1) == ["a: status task-c-0 PAUSED"]


def test_statuses_of_long_ago_that_are_read_late_are_not_answered() -> None:
    """A worker may have work before it has read the whole topic: its own words come at its end."""
    world = one_worker()
    worker = world.workers["a"]
    old = {"state": "RUNNING", "trace": None, "worker_id": "b", "generation": 0}
    world.holds.append(lambda _, e: type(e).__name__ == "WriteStatus")
    created(world)
    assert world.held
    for _ in range(3):
        world.statuses.append(("status-task-c-0", json.dumps(old).encode()))
    world.trace.clear()
    world.release()
    world.run()
    assert worker.statuses_read == len(world.statuses)
    world.advance(60_000)
    assert not [line for line in world.trace if " status " in line]


LATE = json.dumps(
    {"state": "UNASSIGNED", "trace": None, "worker_id": "b", "generation": 0}
).encode()


def hidden_word(key: str, over: bytes | None = LATE) -> HerderWorld:
    """A late status, or a removal, hides the worker's own status, and the worker waits to read its
    own."""
    world = one_worker()
    world.holds.append(lambda _, e: isinstance(e, WriteStatus) and e.key == key)
    created(world)
    world.release()
    world.holds.clear()
    world.statuses[[k for k, _ in world.statuses].index(key)] = (key, over)
    world.trace.clear()
    world.run()
    return world


@pytest.mark.parametrize("over", [LATE, None], ids=["a late word", "a removal"])
@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_a_word_that_compaction_swallowed_is_said_again_after_a_while(
    key: str, over: bytes | None
) -> None:
    """When the status is hidden, the worker's own reader has not seen it, and never will."""
    world = hidden_word(key, over)
    shown = f"a: status {key.removeprefix('status-')} RUNNING"
    world.advance(UNHEARD_MS - 1)
    assert shown not in world.trace
    world.advance(60_000)
    assert world.trace.count(shown) == 1


def test_a_word_that_compaction_swallowed_is_not_said_of_what_is_gone() -> None:
    world = hidden_word("status-task-c-0")
    world.call("a", DeleteConnector("c"))
    world.until_settled()
    world.trace.clear()
    world.advance(60_000)
    assert world.trace == []


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_what_another_said_meanwhile_is_not_said_over(key: str) -> None:
    world = hidden_word(key)
    assert hear(world, key, "RUNNING", "b", 99) == []
    world.advance(60_000)
    assert world.trace == []


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_who_is_out_of_its_group_does_not_say_again_what_it_had(key: str) -> None:
    """The worker stops its work, which takes time. Another worker may have written the status
    meanwhile."""
    herder = hidden_word(key).workers["a"].herder
    herder._ctx.membership.alive = False
    herder._statuses.on_unheard(key)
    assert herder._ctx.effects == []


@pytest.mark.parametrize("key", ["status-connector-c", "status-task-c-0"])
def test_what_was_removed_meanwhile_is_not_said_again(key: str) -> None:
    """Although it is still stopping."""
    world = hidden_word(key)
    world.holds.append(lambda _, e: type(e).__name__ in ("StopTaskBy", "StopConnector", "SendTask"))
    world.call("a", DeleteConnector("c"))
    world.advance(UNHEARD_MS + 1_000)
    assert not [line for line in world.trace if "RUNNING" in line]


def test_what_was_removed_too_late_is_said_again_once() -> None:
    """The removal was decided while no connector had the name. A worker that removes the status
    twice has newer knowledge."""
    world = running()
    world.statuses.append(("status-connector-c", None))
    world.run()
    assert world.trace == ["a: status connector-c RUNNING", "a: status task-c-0 RUNNING"]
    world.statuses.append(("status-task-c-0", None))
    world.run()
    assert world.trace[2:] == []


def test_a_removal_that_compaction_swallowed_is_made_again() -> None:
    """A reader of a compacted log need not see a removal that somebody's late word came after."""
    world = running()
    world.holds.append(lambda _, e: isinstance(e, WriteStatus) and e.value is None)
    world.call("a", DeleteConnector("c"))
    world.run()
    world.release()
    swallowed = world.statuses.index(("status-task-c-0", None))
    world.statuses[swallowed] = ("status-of-nothing", None)
    world.trace.clear()
    assert hear(world, "status-task-c-0", "RUNNING", "b", 2) == ["a: status -task-c-0"]


def test_what_is_said_of_the_gone_while_the_log_is_claimed_is_removed_after_that() -> None:
    world = running()
    world.call("a", DeleteConnector("c"))
    world.until_settled()
    world.holds.append(lambda _, e: isinstance(e, ClaimLeadership))
    world.add("b")
    world.advance(10_000)
    assert world.held
    world.trace.clear()
    assert hear(world, "status-task-c-0", "RUNNING", "b", 2) == []
    world.release()
    world.run()
    assert "a: status -task-c-0" in world.trace


def test_tasks_that_the_removal_of_their_connector_hides_are_removed_too() -> None:
    """Readers of the log from its beginning would see them again once that is compacted away."""
    world = HerderWorld()
    old = {"state": "RUNNING", "trace": None, "worker_id": "b", "generation": 1}
    for key in ("status-connector-c", "status-task-c-0"):
        world.statuses.append((key, json.dumps(old).encode()))
    world.statuses.append(("status-connector-c", None))
    world.add("a")
    world.until_settled()
    assert world.trace.count("a: status -task-c-0") == 1


def test_an_overtaken_leader_does_not_say_that_all_is_as_asked() -> None:
    """Nothing to write means no refused write either: it looks at the log's end before it says
    so."""
    world = running()
    world.call("a", SetTargetState("c", TargetState.STOPPED))
    world.until_settled()
    world.holds.append(lambda _, e: isinstance(e, ReadConfigToEnd))
    call_id = world.call("a", SetTargetState("c", TargetState.STOPPED))
    world.run()
    world.claimed_by = "a later leader"
    world.log.append(("target-state-c", b'{"state":"STARTED","state.v2":"STARTED"}'))
    world.release()
    world.until_settled()
    assert world.answers[call_id] == [Success()]
    last = [value for key, value in world.log if key == "target-state-c"][-1]
    assert last is not None
    assert b"STOPPED" in last


def test_tasks_of_a_removed_connector_stop_without_a_rebalance() -> None:
    """Connect's own policy forgets the removed tasks if a round in between went wrong."""
    world = running()
    world.holds.append(lambda _, e: type(e).__name__ == "SendGroup")
    world.call("a", DeleteConnector("c"))
    world.run()
    assert world.running() == {"a": []}


def test_a_status_that_was_read_before_its_config_is_no_orphan() -> None:
    """A worker that starts reads both topics in turn. What it then keeps is looked at by each
    leader once, not with every status."""
    world = running()
    statuses = world.workers["a"].herder._statuses
    late = HerderWorld()
    late.statuses = list(world.statuses)
    late.add("z")
    late.workers["z"].cut_off = True  # it reads no configs yet
    key, value = next((k, v) for k, v in world.statuses if k == "status-task-c-0")
    read = late.workers["z"].herder._statuses
    read.on_read(((key, decode_status(key, value)),), leading=False)
    assert set(read._orphans) == {"status-task-c-0"}
    late.workers["z"].cut_off = False
    late.log = list(world.log)
    late.until_settled()
    assert late.workers["z"].herder.leads
    assert read._orphans == {}
    assert statuses._orphans == {}
    assert not any(value is None for key, value in late.statuses if key == "status-task-c-0")


@pytest.mark.parametrize("leaves", [True, False])
def test_who_is_no_member_any_more_speaks_of_its_last_generation(leaves: bool) -> None:
    """A reader that knows earlier statuses would take one of generation 0 for a late one."""
    world = one_worker()
    created(world)
    last = generation(world)
    assert last > 0
    world.statuses.clear()
    if leaves:
        world.give("a", Shutdown())
    else:
        world.workers["a"].cut_off = True
    world.advance(30_000)
    said = [json.loads(value) for _, value in world.statuses if value is not None]
    assert [status["state"] for status in said] == ["UNASSIGNED", "UNASSIGNED"]
    assert {status["generation"] for status in said} == {last}
