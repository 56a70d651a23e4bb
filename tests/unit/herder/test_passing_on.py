"""Calls that a worker passes on: their target, how often they are tried, and which are repeated."""

import pytest
from support.herder.setups import SOURCE, created, failure, one_worker, two_workers
from support.herder.world import HerderWorld, Worker

from headgate.herder import messages as m
from headgate.herder.privileged import STALE_CONFIG
from headgate.herder.requests import CONFLICTING, NO_LEADER
from headgate.ids import TargetState
from headgate.membership.disagreement import Disagreement

TWO_TASKS = {**SOURCE, "tasks.max": "2"}
"""Changed, both producers have to be shut out first."""


def test_fencing_is_asked_of_the_next_leader_when_the_first_dies() -> None:
    """In Java the task is FAILED until a user restarts it by hand."""
    world = two_workers(exactly_once=True)
    created(world, TWO_TASKS)
    world.holds.append(
        lambda worker, e: isinstance(e, m.CallPeer) and isinstance(e.call, m.FenceConnector)
    )
    world.call("a", m.PutConnectorConfig("c", {**TWO_TASKS, "file": "another"}))
    world.run()
    assert any("FenceConnector" in line for line in world.trace)
    world.holds.clear()
    world.held.clear()
    world.kill("a")
    world.advance(30_000)
    world.until_settled()
    assert world.running() == {"b": ["c-0", "c-1"]}
    assert not [line for line in world.trace if "FAILED" in line]


def test_what_was_begun_when_the_worker_shuts_down_is_not_called_undone() -> None:
    """It may still be done. Once a follower asked the next leader for it, and told its user that
    the connector, which was just created, exists already."""
    world = one_worker()
    world.holds.append(lambda _, e: isinstance(e, m.AppendConfig))
    begun = world.call("a", m.CreateConnector("c", SOURCE))
    world.run()
    world.holds[:] = [lambda _, e: isinstance(e, m.ValidateConfig)]
    not_begun = world.call("a", m.CreateConnector("d", SOURCE))
    world.run()
    world.give("a", m.Shutdown())
    world.run()
    assert failure(world, not_begun).kind is m.ErrorKind.NOT_READY
    told = failure(world, begun)
    assert told.kind is m.ErrorKind.TIMEOUT
    assert "writing to the config topic: look whether it was done" in told.message


def test_who_waits_for_a_leader_in_vain_is_told_of_another_config_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = one_worker()
    world.holds.append(lambda _, e: isinstance(e, m.SendGroup))
    world.lose_coordinator("a")
    world.run()
    monkeypatch.setattr(Disagreement, "words", "the leader x reads config topic 'y'")
    world.answers["near"] = []
    world.workers["a"].host.post(m.Called("near", m.DeleteConnector("c"), deadline_ms=world.now_ms))
    world.run()
    world.advance(1_000)
    (told,) = world.answers["near"]
    assert isinstance(told, m.Failure)
    assert told.message.startswith(NO_LEADER)
    assert told.message.endswith("different config topics: the leader x reads config topic 'y'")


def test_a_worker_never_calls_itself() -> None:
    """A leader that has not claimed the log yet is asked: it waits, it does not pass on."""
    world = one_worker()
    world.holds.append(lambda _, e: type(e).__name__ == "ClaimLeadership")
    world.lose_coordinator("a")
    world.run()
    world.advance(1_000)
    call_id = world.call("a", m.DeleteConnector("none"))
    world.run()
    assert world.answers[call_id] == []
    assert not [line for line in world.trace if "call http" in line]
    world.release()
    world.run()
    assert failure(world, call_id).kind is m.ErrorKind.NOT_FOUND


def test_a_call_is_passed_on_twice_at_most() -> None:
    world = two_workers()
    world.answers["far"] = []
    world.workers["b"].host.post(m.Called("far", m.DeleteConnector("c"), hops=2))
    world.run()
    (answer,) = world.answers["far"]
    assert isinstance(answer, m.Failure)
    assert answer.kind is m.ErrorKind.CONFLICT


CHANGES = (
    m.PutConnectorConfig("c", {**SOURCE, "v": "1"}),
    m.DeleteConnector("c"),
    m.SetTargetState("c", TargetState.STOPPED),
    m.ResetOffsets("c"),
    m.AlterOffsets("c", (({"n": 1}, {"m": 1}),)),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_a_former_leader_does_not_pass_on_a_change_that_it_was_asked_for(change: m.Call) -> None:
    """Its caller asks the next leader as well, and may have asked for more since then."""
    world = two_workers()
    created(world)
    world.answers["far"] = []
    before = list(world.log)
    world.workers["b"].host.post(m.Called("far", change, hops=1))
    world.run()
    assert world.answers["far"] == [m.Failure(m.ErrorKind.CONFLICT, CONFLICTING)]
    assert world.log == before


def test_a_change_is_not_carried_out_again_over_later_ones() -> None:
    """The leader freezes with it in its hands; the next one does it, and then another."""
    world = two_workers()
    world.add("c")
    world.advance(10_000)
    world.until_settled()
    created(world)
    former = world.workers["a"]
    assert former.herder.leads
    former.frozen = True
    first = world.call("b", m.PutConnectorConfig("c", {**SOURCE, "v": "1"}))
    world.advance(30_000)
    assert isinstance(world.answers[first][0], m.Success)
    second = world.call("b", m.PutConnectorConfig("c", {**SOURCE, "v": "2"}))
    world.advance(1_000)
    assert isinstance(world.answers[second][0], m.Success)
    former.frozen = False
    world.advance(30_000)
    entry = former.herder.state.entry("c")
    assert entry is not None and entry.config is not None
    assert entry.config["v"] == "2"


def test_a_change_is_not_carried_out_over_later_ones_by_who_leads_again() -> None:
    """The change was being validated when the leader froze. Another worker has led since."""
    world = two_workers()
    created(world)
    world.holds.append(lambda worker, e: isinstance(e, m.ValidateConfig) and worker.name == "a")
    first = world.call("b", m.PutConnectorConfig("c", {**SOURCE, "v": "1"}))
    world.run()
    former = world.workers["a"]
    assert former.herder.leads
    former.frozen = True
    world.advance(30_000)
    assert isinstance(world.answers[first][0], m.Success)
    world.call("b", m.PutConnectorConfig("c", {**SOURCE, "v": "2"}))
    world.advance(1_000)
    former.frozen = False
    world.advance(10_000)
    world.kill("b")
    world.advance(30_000)
    assert former.herder.leads
    world.release()
    world.advance(10_000)
    entry = former.herder.state.entry("c")
    assert entry is not None and entry.config is not None
    assert entry.config["v"] == "2"


def test_what_a_former_leader_says_late_answers_nothing() -> None:
    """By then this worker leads, and executes the call itself."""
    world = two_workers()
    created(world)
    world.holds.append(lambda _, e: isinstance(e, m.CallPeer))
    call_id = world.call("b", m.PutConnectorConfig("c", {**SOURCE, "v": "1"}))
    world.run()
    ((worker, call),) = world.held
    assert isinstance(call, m.CallPeer)
    world.kill("a")
    world.holds.append(lambda _, e: isinstance(e, m.AppendConfig))
    world.advance(30_000)
    world.give(worker.name, m.PeerAnswered(call.token, m.Failure(m.ErrorKind.INTERNAL, "late")))
    world.run()
    assert world.answers[call_id] == []
    world.release()
    world.run()
    assert isinstance(world.answers[call_id][0], m.Success)


@pytest.mark.parametrize("hops", [0, 1])
@pytest.mark.parametrize(
    ("told", "again"),
    [
        (m.Failure(m.ErrorKind.NOT_READY, "on its way out"), True),
        (m.Failure(m.ErrorKind.CONFLICT, CONFLICTING), True),
        (m.Failure(m.ErrorKind.CONFLICT, STALE_CONFIG), True),
        (m.Failure(m.ErrorKind.CONFLICT, f"{NO_LEADER} And why."), True),
        (m.Failure(m.ErrorKind.CONFLICT, "because it is so"), False),
        (m.Failure(m.ErrorKind.INTERNAL, CONFLICTING), False),
    ],
)
def test_what_passes_is_looked_after_again_where_the_call_came_in(
    hops: int, told: m.Failure, again: bool
) -> None:
    """Java answers so while it rebalances. On the way nobody tries again: it would multiply."""
    world = two_workers()
    created(world)
    world.holds.append(lambda _, e: isinstance(e, m.CallPeer))
    world.answers["far"] = []
    # A worker passes on a change only if it got the change from a user.
    asked = m.FenceConnector("c") if hops else m.DeleteConnector("c")
    world.workers["b"].host.post(m.Called("far", asked, hops=hops))
    world.run()
    ((worker, call),) = world.held
    assert isinstance(call, m.CallPeer)
    assert call.hops == hops + 1
    world.holds.clear()
    world.held.clear()
    world.give(worker.name, m.PeerAnswered(call.token, told))
    world.advance(250)
    assert world.answers["far"] == ([m.Success()] if again and hops == 0 else [told])


@pytest.mark.parametrize(
    "kind", [m.ErrorKind.INTERNAL, m.ErrorKind.FORBIDDEN, m.ErrorKind.BAD_REQUEST]
)
def test_a_task_fails_when_fencing_goes_wrong_for_good(kind: m.ErrorKind) -> None:
    """A missing permission has to be seen; a moment without a broker must not be, nor one in which
    the leader wants signatures and the follower does not know it yet."""
    asked = fencing_asked_until_failed(m.Failure(kind, "no permission"), 400_000)
    assert asked == (12, True)


@pytest.mark.parametrize("kind", [m.ErrorKind.CONFLICT, m.ErrorKind.TIMEOUT, m.ErrorKind.NOT_FOUND])
def test_fencing_that_was_overtaken_is_asked_for_without_end(kind: m.ErrorKind) -> None:
    asked, failed = fencing_asked_until_failed(m.Failure(kind, "of the moment"), 1_200_000)
    assert asked > 12
    assert not failed


def fencing_always_answered(told: m.Failure) -> tuple[HerderWorld, list[int]]:
    """Two workers, a connector with two tasks, and the tokens of what the follower asks."""
    world = two_workers(exactly_once=True)
    created(world, TWO_TASKS)
    asked: list[int] = []

    def answer(worker: Worker, effect: m.Effect) -> bool:
        if not (isinstance(effect, m.CallPeer) and isinstance(effect.call, m.FenceConnector)):
            return False
        asked.append(effect.token)
        world.give(worker.name, m.PeerAnswered(effect.token, told))
        return True

    world.holds.append(answer)
    return world, asked


def fencing_asked_until_failed(told: m.Failure, limit_ms: int) -> tuple[int, bool]:
    """Return how often fencing is asked for if it always gets this answer, and whether the task
    failed."""
    world, asked = fencing_always_answered(told)
    world.holds.append(lambda _, e: isinstance(e, m.FenceProducers))  # of the leader's own task
    world.call("a", m.PutConnectorConfig("c", {**TWO_TASKS, "file": "another"}))
    world.advance(limit_ms)
    (line,) = [line for line in world.trace if "FAILED" in line] or [""]
    return len(asked), told.message in line


def test_a_call_that_comes_to_the_wrong_worker_is_looked_after_again() -> None:
    """NOT_READY from a peer is no answer for the user: the call is routed again."""
    world = two_workers()
    created(world)
    world.holds.append(lambda _, e: isinstance(e, m.CallPeer))
    call_id = world.call("b", m.DeleteConnector("c"))
    world.run()
    ((worker, call),) = world.held
    assert isinstance(call, m.CallPeer)
    world.holds.clear()
    world.held.clear()
    world.give(worker.name, m.PeerAnswered(call.token, m.Failure(m.ErrorKind.NOT_READY, "not me")))
    world.run()
    assert world.answers[call_id] == []
    world.advance(250)
    assert isinstance(world.answers[call_id][0], m.Success)


def test_task_configs_that_were_refused_as_stale_are_generated_anew() -> None:
    """Passed on again as they are, they would be refused again."""
    world = two_workers(protocols=("sessioned",))
    for name in "xy":  # `a` leads, and asks nobody: one of these is owned by `b`
        world.call("a", m.CreateConnector(name, SOURCE))
        world.until_settled()
    (name,) = world.workers["b"].herder.view().connectors
    world.holds.append(
        lambda _, e: isinstance(e, m.CallPeer) and isinstance(e.call, m.PutTaskConfigs)
    )
    world.call("a", m.PutConnectorConfig(name, {**SOURCE, "v": "2"}))
    world.run()
    ((_, call),) = world.held
    assert isinstance(call, m.CallPeer)
    world.trace.clear()
    refused = m.Failure(m.ErrorKind.CONFLICT, STALE_CONFIG)
    world.give("b", m.PeerAnswered(call.token, refused))
    world.advance(250)
    assert world.trace == [
        f"b: generate task configs of {name}, at most 1",
        "b: call http://a/ PutTaskConfigs hops=1",
    ]


def test_a_fence_that_the_log_has_by_now_is_not_asked_for_again() -> None:
    """The leader's answer was lost, or the count was recorded for another's task."""
    world, asked = fencing_always_answered(m.Failure(m.ErrorKind.TIMEOUT, "lost"))
    world.call("a", m.PutConnectorConfig("c", {**TWO_TASKS, "file": "another"}))
    world.until_settled()  # the leader has fenced for its own task
    assert len(asked) == 1
    assert sorted(map(len, world.running().values())) == [1, 1]
