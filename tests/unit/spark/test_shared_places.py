"""Places of a shared Spark: which workers join, which one starts it, and when it ends. The keepers
are stand-ins.

The model runs thousands of steps of workers and keepers that live, die, join, leave, fail and close
in any order, on the real files and locks.
"""

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headgate_runtime.spark.keeper import Idleness
from headgate_runtime.spark.places import (
    CLOSED,
    FAILED,
    GIVEN_UP,
    Joined,
    Place,
    Places,
    Shared,
    State,
)

CAPACITY = 4
IDLE_S = 3.0
ASKED = {"master": "local[2]", "settings": {"spark.a": "1"}}
OTHER = {"master": "local[2]", "settings": {"spark.a": "2"}}


@dataclass
class Keeper:
    """A step-by-step model of `headgate_runtime.spark.keeper.Keeper`."""

    place: Place
    lock: int
    idleness: Idleness = field(default_factory=lambda: Idleness(IDLE_S))
    unused: bool = False
    """Nobody used it at the last look."""
    closing: bool = False

    def die(self) -> None:
        os.close(self.lock)


class World:
    def __init__(self, folder: Path) -> None:
        self.places = Places(folder, self.spawn)
        self.keepers: list[Keeper] = []
        self.workers: list[Joined] = []
        self.now = 0.0
        self.fails = False

    def spawn(self, place: Place, lock: int) -> None:
        if self.fails:
            raise OSError("no process")
        self.keepers.append(Keeper(place, os.dup(lock)))

    def close(self) -> None:
        for keeper in self.keepers:
            keeper.die()
        for worker in self.workers:
            worker.user.close()

    # -- what workers do --

    def join(self, asked: Mapping[str, object] = ASKED, slots: int = 1) -> Joined:
        made = {"token": str(self.now)}
        joined = self.places.join(asked, slots, IDLE_S, lambda: Shared(asked, made, CAPACITY))
        self.workers.append(joined)
        return joined

    def leave(self, worker: Joined) -> None:
        self.workers.remove(worker)
        self.places.leave(worker)

    def kill(self, worker: Joined) -> None:
        """Kill the keeper. Its file stays, without the lock."""
        self.workers.remove(worker)
        assert worker.user.descriptor is not None
        os.close(worker.user.descriptor)
        worker.user.descriptor = None

    def look(self, worker: Joined) -> None:
        if worker.place.state().kind == FAILED:
            self.leave(worker)
        else:
            self.places.revive(worker)

    # -- what keepers do --

    def step(self, keeper: Keeper) -> None:
        if keeper.closing or keeper.place.state().kind == FAILED:
            self.kill_keeper(keeper)
            return
        if keeper.unused:
            keeper.unused = False
            keeper.closing = self.places.close_if_unused(keeper.place)
        else:
            idle_s = [each for _, each in self.places.users(keeper.place)]
            keeper.unused = keeper.idleness.is_over(self.now, idle_s)

    def kill_keeper(self, keeper: Keeper) -> None:
        self.keepers.remove(keeper)
        keeper.die()

    # -- what must hold --

    def check(self) -> None:
        kept = [keeper.place.path for keeper in self.keepers]
        assert len(kept) == len(set(kept)), "two keepers of one place"
        for path in {worker.place.path for worker in self.workers}:
            here = [worker for worker in self.workers if worker.place.path == path]
            assert sum(worker.user.slots for worker in here) <= CAPACITY
            assert len({str(worker.shared) for worker in here}) == 1
            assert here[0].place.shared() == here[0].shared, "started anew below a worker"
            assert here[0].place.state().kind != CLOSED, "closed below a worker"

    def settle(self) -> None:
        """Assert that each live worker has a Spark, and that nothing is left when all have left."""
        for worker in list(self.workers):
            self.look(worker)
        for worker in self.workers:
            if worker.place.state().kind != GIVEN_UP:
                assert any(keeper.place == worker.place for keeper in self.keepers)
        for worker in list(self.workers):
            self.leave(worker)
        for _ in range(int(IDLE_S) + 6):
            self.now += 1
            for keeper in list(self.keepers):
                self.step(keeper)
        assert not self.keepers


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def run_history(folder: Path, seed: int) -> None:
    chance, world = random.Random(seed), World(folder)
    try:
        for _ in range(60):
            step = chance.choice(
                ("join", "join", "leave", "kill", "look", "look")
                + ("step",) * 4
                + ("kill keeper", "fail", "give up", "time")
            )
            worker = chance.choice(world.workers) if world.workers else None
            keeper = chance.choice(world.keepers) if world.keepers else None
            match step:
                case "join" if len(world.workers) < 8:
                    world.join(chance.choice((ASKED, ASKED, OTHER)), chance.choice((1, 2)))
                case "leave" if worker:
                    world.leave(worker)
                case "kill" if worker:
                    world.kill(worker)
                case "look" if worker:
                    world.look(worker)
                case "step" if keeper:
                    world.step(keeper)
                case "kill keeper" if keeper:
                    world.kill_keeper(keeper)
                case "fail" | "give up" if keeper and not keeper.closing:
                    if not keeper.place.state().kind:
                        keeper.place.tell_state(State(FAILED if step == "fail" else GIVEN_UP))
                case "time":
                    world.now += chance.choice((1.0, IDLE_S))
            world.check()
        world.settle()
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(40))
def test_workers_share_a_spark_whatever_dies(tmp_path: Path, seed: int) -> None:
    run_history(tmp_path, seed)


@pytest.mark.exhaustive
def test_workers_share_a_spark_whatever_dies_in_many_histories(tmp_path: Path) -> None:
    for seed in range(1000, 1500):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run_history(folder, seed)


def test_whoever_comes_later_joins(world: World, tmp_path: Path) -> None:
    first, second = world.join(), world.join()
    assert (first.started, second.started) == (True, False)
    assert first.place.path == second.place.path == tmp_path
    assert second.shared == first.shared
    assert len(world.keepers) == 1


def test_other_settings_get_another_spark_and_the_difference_is_told(
    world: World, tmp_path: Path
) -> None:
    world.join()
    joined = world.join(OTHER)
    assert joined.started
    assert joined.place.path == tmp_path / "2"
    assert joined.others == {str(tmp_path): "it differs in settings spark.a"}


def test_who_finds_no_room_gets_another_spark(world: World, tmp_path: Path) -> None:
    world.join(slots=3)
    joined = world.join(slots=2)
    assert joined.place.path == tmp_path / "2"
    why = "3 of its 4 slots are taken, and 2 are asked for"
    assert joined.others == {str(tmp_path): why}
    assert world.join(slots=1).place.path == tmp_path


def test_the_slots_of_the_dead_are_free(world: World, tmp_path: Path) -> None:
    world.kill(world.join(slots=4))
    assert world.join(slots=4).place.path == tmp_path


@pytest.mark.parametrize("end", ["leave", "kill"])
def test_it_waits_for_the_next_worker_and_ends_without(world: World, end: str) -> None:
    {"leave": world.leave, "kill": world.kill}[end](world.join())
    (keeper,) = world.keepers
    world.step(keeper)
    world.now = IDLE_S - 1
    world.step(keeper)
    worker = world.join()
    assert not worker.started
    world.step(keeper)
    world.now = 10 * IDLE_S
    world.step(keeper)
    assert not keeper.closing
    world.leave(worker)
    world.step(keeper)
    world.now += IDLE_S
    world.step(keeper)
    world.step(keeper)
    assert keeper.closing
    # While it ends, a newcomer has one of its own.
    joined = world.join()
    assert joined.started
    assert list(joined.others.values()) == ["it ends"]


def test_a_keeper_that_was_killed_is_replaced_by_any_of_its_workers_once(world: World) -> None:
    one, two = world.join(), world.join()
    world.kill_keeper(world.keepers[0])
    assert [world.places.revive(each) for each in (two, one)] == [True, False]
    assert two.place.shared() == two.shared
    world.kill_keeper(world.keepers[0])
    assert not world.join().started  # a newcomer replaces it, too
    assert len(world.keepers) == 1


def test_a_worker_that_joins_at_the_last_moment_keeps_it(world: World) -> None:
    world.leave(world.join())
    (keeper,) = world.keepers
    world.step(keeper)
    world.now += IDLE_S
    world.step(keeper)
    assert keeper.unused
    assert not world.join().started
    world.step(keeper)
    assert not keeper.closing


@pytest.mark.parametrize("kind", [FAILED, GIVEN_UP])
def test_a_spark_that_does_not_start_is_not_joined(world: World, kind: str) -> None:
    worker = world.join()
    worker.place.tell_state(State(kind, "why", 1))
    assert list(world.join().others.values()) == [f"it has {kind}"]
    world.kill_keeper(world.keepers[0])
    assert not world.places.revive(worker)


def test_a_place_is_used_again_with_nothing_of_the_one_before(world: World) -> None:
    worker = world.join()
    worker.place.notes.write_text("old\n")
    worker.place.tell_up()
    worker.place.tell_state(State(FAILED, "why", 1))
    world.kill_keeper(world.keepers[0])
    world.leave(worker)
    again = world.join(OTHER)
    assert again.started and again.place == worker.place and not again.others
    assert not again.place.notes.exists() and not again.place.state().kind
    assert not again.place.was_up()


def test_a_keeper_that_cannot_be_started_leaves_no_user(world: World) -> None:
    world.fails = True
    with pytest.raises(OSError, match="no process"):
        world.join()
    world.fails = False
    assert world.join().started


def test_a_folder_that_is_gone_ends_the_keeper_and_no_worker(world: World, tmp_path: Path) -> None:
    worker = world.join()
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        with suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
    tmp_path.rmdir()
    with pytest.raises(OSError, match="door"):
        world.places.users(worker.place)
    world.places.leave(worker)
    assert worker.user.descriptor is None
    tmp_path.mkdir()


def test_what_is_of_use_looks_young(world: World, tmp_path: Path) -> None:
    """Tools that tidy up temporary files go by their age."""
    worker = world.join()
    paths = [tmp_path / "door", tmp_path, *(tmp_path / "shared").rglob("*")]
    for path in paths:
        os.utime(path, (0, 0))
    world.places.touch(worker.place)
    assert worker.user.path in paths
    assert all(path.stat().st_mtime > 0 for path in paths)
