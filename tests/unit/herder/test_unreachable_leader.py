"""Calls for a leader to which no connection can be made: how long they are tried, and their
answers."""

from support.herder.setups import SOURCE, created, failure, two_workers
from support.herder.world import HerderWorld, Worker

from headgate.herder import messages as m

REFUSED = "http://a/ could not be reached: [Errno 111] Connection refused"


def without_way_to_the_leader(world: HerderWorld) -> list[int]:
    """Let `b` be unable to connect to `a` from now on. Return the times at which it tries, as they
    come. The session timeout is 10 s."""
    tried: list[int] = []

    def refuse(worker: Worker, effect: m.Effect) -> bool:
        if not (isinstance(effect, m.CallPeer) and effect.url == "http://a/"):
            return False
        tried.append(world.now_ms)
        told = m.Failure(m.ErrorKind.UNREACHABLE, REFUSED)
        world.give(worker.name, m.PeerAnswered(effect.token, told))
        return True

    world.holds.append(refuse)
    return tried


def test_an_address_that_was_never_reached_is_told_within_seconds() -> None:
    """90 s and a 409 about a conflicting operation hid it (strimzi #9559)."""
    world = two_workers()
    tried = without_way_to_the_leader(world)
    call_id = world.call("b", m.CreateConnector("c", SOURCE))
    world.advance(5_000)
    told = failure(world, call_id)
    assert told.kind is m.ErrorKind.UNREACHABLE
    assert told.message.startswith(f"The leader at {REFUSED} (tried for 3.")
    assert "rest.advertised.host.name" in told.message
    assert len(tried) > 2, "it may begin to listen just now"


def test_a_leader_that_was_reached_before_has_the_time_to_be_found_dead() -> None:
    world = two_workers()
    first = world.call("b", m.CreateConnector("c", SOURCE))
    world.run()
    assert isinstance(world.answers[first][0], m.Success)
    without_way_to_the_leader(world)
    call_id = world.call("b", m.DeleteConnector("c"))
    world.advance(13_000)
    assert world.answers[call_id] == []
    world.advance(5_000)
    assert failure(world, call_id).message.startswith(f"The leader at {REFUSED} (tried for 1")


def test_the_next_leader_does_what_a_dead_one_could_not_be_asked() -> None:
    world = two_workers()
    created(world)
    first = world.call("b", m.PutConnectorConfig("c", {**SOURCE, "v": "2"}))
    world.run()
    assert isinstance(world.answers[first][0], m.Success)
    without_way_to_the_leader(world)
    world.kill("a")
    call_id = world.call("b", m.DeleteConnector("c"))
    world.advance(20_000)
    assert isinstance(world.answers[call_id][0], m.Success)


def test_a_call_whose_own_time_is_shorter_says_what_was_seen() -> None:
    world = two_workers()
    without_way_to_the_leader(world)
    call_id = world.call("b", m.CreateConnector("c", SOURCE), deadline_ms=1_000)
    world.advance(1_100)
    told = failure(world, call_id)
    assert told.kind is m.ErrorKind.UNREACHABLE
    assert REFUSED in told.message


def test_an_owner_that_the_leader_cannot_reach_is_named() -> None:
    world = two_workers(protocols=("sessioned",))
    for name in "wxyz":  # some are owned by `b`
        world.call("a", m.CreateConnector(name, SOURCE))
        world.until_settled()
    name = next(iter(world.workers["b"].herder.view().connectors))
    said = m.Failure(m.ErrorKind.UNREACHABLE, "http://b/ could not be reached: no such name")

    def refuse(worker: Worker, effect: m.Effect) -> bool:
        if isinstance(effect, m.CallPeer):
            world.give(worker.name, m.PeerAnswered(effect.token, said))
        return isinstance(effect, m.CallPeer)

    world.holds.append(refuse)
    call_id = world.call("a", m.RestartConnector(name))
    world.advance(20_000)
    assert failure(world, call_id).message.startswith("The worker that holds this at http://b/")
