"""Values to which connector configs only refer have changed. Task configs are generated again,
once."""

from support.herder.setups import one_worker, two_workers
from support.herder.world import HerderWorld

from headgate.herder.calls import PutTaskConfigs
from headgate.herder.messages import (
    CallPeer,
    CreateConnector,
    ErrorKind,
    Failure,
    PeerAnswered,
    RestartConnector,
    Success,
)

CONFIG = {"connector.class": "Source", "v": "${vault:password}"}


def commits(world: HerderWorld, connector: str) -> int:
    return [key for key, _ in world.log].count(f"commit-{connector}")


def made(world: HerderWorld, connector: str) -> None:
    call_id = world.call("a", CreateConnector(connector, CONFIG))
    world.run()
    assert isinstance(world.answers[call_id][0], Success)
    world.until_settled()


def owned_by_the_follower(world: HerderWorld) -> str:
    """Create two connectors at once, of which each worker gets one. Return that of `b`."""
    world.secrets["password"] = "one"
    for name in ("c", "d"):
        world.call("a", CreateConnector(name, CONFIG))
    world.until_settled()
    (name,) = world.workers["b"].herder.view().connectors
    return name


def restarted(world: HerderWorld, connector: str) -> None:
    world.call("a", RestartConnector(connector))
    world.run()


def test_a_commit_is_followed_once() -> None:
    """The owner may ask twice: of the first time it did not hear."""
    world = one_worker()
    world.secrets["password"] = "one"
    made(world, "c")
    entry = world.workers["a"].herder.state.entry("c")
    assert entry is not None and entry.commit_offset is not None
    again = PutTaskConfigs("c", (entry.tasks[0],), instead_of=entry.commit_offset)
    for _ in range(2):
        call_id = world.call("a", again)
        world.run()
        assert isinstance(world.answers[call_id][0], Success)
    assert commits(world, "c") == 2


def test_an_owner_that_did_not_hear_publishes_once() -> None:
    world = two_workers()
    name = owned_by_the_follower(world)
    world.secrets["password"] = "two"
    world.holds.append(
        lambda worker, e: isinstance(e, CallPeer) and isinstance(e.call, PutTaskConfigs)
    )
    restarted(world, name)
    ((owner, asked),) = world.held
    assert isinstance(asked, CallPeer) and owner.name == "b"
    world.holds.clear()
    world.held.clear()
    call_id = world.call("a", asked.call)  # it arrives, and its answer is lost
    world.run()
    assert isinstance(world.answers[call_id][0], Success)
    assert commits(world, name) == 2
    world.give("b", PeerAnswered(asked.token, Failure(ErrorKind.TIMEOUT, "no answer")))
    world.advance(10_000)
    world.until_settled()
    assert commits(world, name) == 2
    restarted(world, name)
    world.until_settled()
    assert commits(world, name) == 2


def test_a_new_owner_takes_the_values_of_now() -> None:
    """The new owner cannot know the values in the task configs in force, so it restarts nothing."""
    world = two_workers()
    name = owned_by_the_follower(world)
    world.secrets["password"] = "two"
    world.kill("b")
    world.advance(400_000)
    world.until_settled()
    assert name in world.workers["a"].herder.view().connectors
    assert commits(world, name) == 1
    world.secrets["password"] = "three"
    restarted(world, name)
    world.until_settled()
    assert commits(world, name) == 2
