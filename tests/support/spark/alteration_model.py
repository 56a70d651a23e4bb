"""Users who alter and reset offsets, over `manifest_model`.

A change may die halfway, or freeze and go on later. Meanwhile processes that were taken for dead
wake up.

A run consists of rounds. The sink works, and is stopped: its processes are killed, or stay frozen.
A user alters offsets, perhaps again if no answer came, and resumes the sink. In the end every
record must be there once, except those that a user asked to pass over. No record may be older than
the last answered change that took it back.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from support.spark.manifest_model import (
    LENGTH,
    PARTITIONS,
    Actor,
    MakeManifest,
    ModelFiles,
    ModelLog,
    ModelRun,
    Partition,
    real_manifest,
)

from headgate_spark.alterations import alter, look
from headgate_spark.entries import ManifestError

WORST_STEPS = 30
Offsets = Mapping[Partition, int | None]
"""None: reset."""
Alter = Callable[[Any, Offsets], None]
Bounds = Callable[[ModelFiles, Partition], list[int]]
"""Returns the offsets to which users may set a partition, rising. The last is its present
offset."""


def real_bounds(files: ModelFiles, partition: Partition) -> list[int]:
    seen = look(files)
    starts = [entry.start for entry in seen.entries(partition)]
    position = seen.position(partition)
    return starts if position is None else [*starts, position]


@dataclass(slots=True)
class Asked:
    """One change of offsets that a user asked for."""

    actor: Actor
    offsets: Mapping[Partition, int]
    """The new offsets. 0 stands for a reset."""
    moved: AbstractSet[Partition]
    """The partitions whose offsets were different before."""
    begun: int
    answered: bool = False
    refused: bool = False

    @property
    def open(self) -> bool:
        return not self.actor.done


class AlterationRun(ModelRun):
    """One run from one seed. It tests the real rules, unless others are given."""

    def __init__(
        self,
        seed: int,
        make: MakeManifest = real_manifest,
        change: Alter = alter,
        bounds: Bounds = real_bounds,
    ) -> None:
        super().__init__(seed, make)
        self._alter = change
        self._bounds = bounds
        self._asked: list[Asked] = []
        self._in_charge: Actor | None = None
        self._passed_over: dict[Partition, set[int]] = {one: set() for one in PARTITIONS}
        self._fresh: dict[Partition, dict[int, int]] = {one: {} for one in PARTITIONS}
        """Offset to the time before which no file may hold it any more."""

    def _rounds(self) -> None:
        for _ in range(self._random.randrange(1, 4)):
            self._disturb(self._random.randrange(20, 120))
            self._stop_all()
            self._users()

    def _stop_all(self) -> None:
        """Kill each process that still runs, or freeze it, so that it is a zombie from now on."""
        for actor in self.actors:
            # The worst moments come more often than by chance.
            moment = self._random.choice(("", "", "draft", "link"))
            for _ in range(WORST_STEPS if moment else 0):
                if not actor.done and actor.next != moment:
                    actor.step()
            if actor.done:
                continue
            if self._random.random() < 0.4:
                actor.step(kill=True)
            else:
                actor.frozen_until = self.now + self._random.choice((0, 10, 40, 1000))

    def _users(self) -> None:
        asked = self._ask(self._choose())
        while not asked.answered and not asked.refused and self._random.random() < 0.6:
            asked = self._ask(asked.offsets if self._random.random() < 0.7 else self._choose())
        self._in_charge = None

    def _choose(self) -> Offsets:
        if self._random.random() < 0.4:
            return self._reset()
        partitions = self._random.sample(PARTITIONS, self._random.randint(1, 2))
        return {one: self._offset(one) for one in partitions}

    def _offset(self, partition: Partition) -> int:
        bounds = self._at_once(lambda files: self._bounds(files, partition)) or [0]
        chance = self._random.random()
        if chance < 0.2:
            return min(bounds[-1] + self._random.randint(1, 3), LENGTH)
        return min(self._random.choice(bounds) + (chance > 0.95), LENGTH)

    def _reset(self) -> Offsets:
        known = [
            one
            for one in PARTITIONS
            if one in self.world.group
            or self._at_once(lambda files, one=one: self._bounds(files, one))
        ]
        return dict.fromkeys(known)

    def _at_once(self, look_at: Callable[[ModelFiles], Any]) -> Any:
        """Return what a process sees without another process acting in between."""
        found: list[Any] = []
        actor = Actor(-1, lambda one: found.append(look_at(ModelFiles(self.world, one))))
        while not actor.done:
            actor.step()
        if actor.error is not None:
            raise actor.error
        return found[0]

    def _ask(self, offsets: Offsets) -> Asked:
        """Make one change while zombies may act. The change may die, or freeze and be given up."""
        self.now += 1
        moved: set[Partition] = set()
        plain = {one: offset or 0 for one, offset in offsets.items()}
        for one, offset in plain.items():
            bounds = self._at_once(lambda files, one=one: self._bounds(files, one)) or [0]
            # What was given up may still be carried out, before this is.
            others = [each.offsets.get(one, LENGTH) for each in self._asked if each.open]
            self._passed_over[one] |= set(range(min(bounds[-1], *others, LENGTH), offset))
            if bounds[-1] != offset:
                moved.add(one)
        actor = Actor(len(self.actors), lambda actor: self._change(actor, offsets))
        asked, self._in_charge = Asked(actor, plain, moved, self.now), actor
        self._asked.append(asked)
        self.actors.append(actor)
        for _ in range(2_000):
            chance = self._random.random()
            if chance < 0.02:
                actor.frozen_until = self.now + self._random.choice((20, 1000))
                break  # no answer comes
            if actor.done or self._random.random() < 0.5:
                actor.done or actor.step(kill=chance > 0.98)
            else:
                self._wake_a_zombie(actor)
            if actor.done:
                break
        if isinstance(actor.error, ManifestError):
            asked.refused = True
        elif actor.done and not actor.killed:
            asked.answered = actor.error is None
            self._answered(asked)
        return asked

    def _wake_a_zombie(self, but: Actor) -> None:
        self.now += 1
        awake = [
            one
            for one in self.actors
            if one is not but and not one.done and one.frozen_until <= self.now
        ]
        if awake:
            self._random.choice(awake).step()

    def _change(self, actor: Actor, offsets: Offsets) -> None:
        """Alter offsets as a worker does: by the connector's class, then in the group.

        Before that the worker checks that no other has taken over. (A worker that freezes right
        after the check is late. The model leaves it out.)
        """
        actor.pause()
        if self._in_charge is not actor:
            raise ManifestError("overtaken")
        actor.at_once = True
        self._alter(ModelFiles(self.world, actor), offsets)
        log = ModelLog(self.world, actor)
        log.commit_unguarded("g", offsets)

    def _answered(self, asked: Asked) -> None:
        others = any(one.open for one in self._asked if one is not asked)
        for one, offset in asked.offsets.items():
            for n in range(offset, LENGTH):
                if one in asked.moved:
                    self._fresh[one][n] = asked.begun
                if not others:
                    self._passed_over[one].discard(n)

    def _wrong(self) -> list[str]:
        for asked in self._asked:
            if isinstance(asked.actor.error, ManifestError):
                asked.actor.error = None  # refused, perhaps long after anybody waited for it
        wrong, lines = self._errors(), self._lines()
        for one in PARTITIONS:
            for n in range(LENGTH):
                times = lines.get((one[1], n), [])
                lost = not times and n not in self._passed_over[one]
                if lost or len(times) > 1:
                    wrong.append(f"record {one[1]}:{n} is there {len(times)} times")
                if any(time < self._fresh[one].get(n, 0) for time in times):
                    wrong.append(f"record {one[1]}:{n} is from before it was taken back")
            if self.world.group.get(one) != LENGTH:
                wrong.append(f"the group is at {self.world.group.get(one)} of {one}")
        return wrong


def first_wrong_alteration(
    seeds: Iterable[int], random_run: Callable[[int], ModelRun] = AlterationRun
) -> tuple[int, list[str]] | None:
    """Return the first seed whose run ends wrong, and what is wrong with it."""
    for seed in seeds:
        wrong = random_run(seed).run()
        if wrong:
            return seed, wrong
    return None
