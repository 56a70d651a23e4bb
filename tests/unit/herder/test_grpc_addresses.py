"""Workers learn each other's gRPC addresses in rounds of our own protocol, and forget them when a
worker of another protocol joins."""

from support.herder.world import HerderWorld


def addresses(world: HerderWorld, worker: str) -> dict[str, str]:
    herder = world.workers[worker].herder
    return {name: herder.grpc_address(f"http://{name}/") for name in world.workers}


def test_a_leader_knows_all_and_others_their_leader() -> None:
    world = HerderWorld()
    world.add("a", grpc_address="a:85")
    world.until_settled()
    world.add("b", grpc_address="b:85")
    world.add("c")
    world.advance(10_000)
    world.until_settled()
    assert addresses(world, "a") == {"a": "a:85", "b": "b:85", "c": ""}
    assert addresses(world, "b") == {"a": "a:85", "b": "", "c": ""}
    assert addresses(world, "c") == {"a": "a:85", "b": "", "c": ""}


def test_a_member_that_speaks_javas_protocol_alone_brings_calls_back_to_http() -> None:
    world = HerderWorld()
    both = ("headgate", "sessioned")
    world.add("a", grpc_address="a:85", protocols=both)
    world.until_settled()
    world.add("b", grpc_address="b:85", protocols=both)
    world.advance(10_000)
    world.until_settled()
    assert addresses(world, "b")["a"] == "a:85"
    world.add("j", protocols=("sessioned",))
    world.advance(10_000)
    world.until_settled()
    for name in world.workers:
        assert set(addresses(world, name).values()) == {""}
    world.kill("j")
    world.advance(400_000)
    world.until_settled()
    del world.workers["j"]
    assert addresses(world, "a")["b"] == "b:85" and addresses(world, "b")["a"] == "a:85"
