"""Processes that share a target folder, in an order of operations that a seed chooses.

The manifest is the real one. The folder and the group are in memory. Each process is a thread that
stops before every operation on them until the scheduler lets it go on, so the seed alone decides a
run. The scheduler kills processes, freezes them, wakes them much later, and starts others. At the
end it wakes all of them, and one last process does the remaining work.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headgate_spark.entries import Entry, published_path, staged_path
from headgate_spark.manifest import Manifest

Partition = tuple[str, int]


class Crash(BaseException):
    """Raised in a process to kill it."""


class Actor:
    """One process, which runs `work` step by step."""

    def __init__(self, number: int, work: Callable[["Actor"], None]) -> None:
        self.number = number
        self.done = False
        self.frozen_until = 0
        self.killed = False
        self.next = ""
        """The operation it stands before: draft, link; others have no name."""
        self.at_once = False
        """Nothing comes between its last operation and the next."""
        self.error: BaseException | None = None
        self._work = work
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._kill = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def step(self, *, kill: bool = False) -> None:
        """Let the process do its next operation and run up to the one after it."""
        self._kill = self._kill or kill
        self._go.release()
        self._stopped.acquire()

    def pause(self, what: str = "") -> None:
        """Wait for the scheduler. The process calls this before each operation."""
        self.next = what
        if self.at_once:
            self.at_once = False
            return
        self._stopped.release()
        self._go.acquire()
        if self._kill:
            raise Crash

    def _run(self) -> None:
        try:
            self.pause()
            self._work(self)
        except Crash:
            self.killed = True
        except BaseException as error:
            self.error = error
        self.done = True
        self._stopped.release()


class ModelWorld:
    """The folder and the group, as all processes see them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.group: dict[Partition, int] = {}
        self.overwritten: list[str] = []
        self.drafts = 0


class ModelFiles:
    """The `Files` of one process."""

    def __init__(self, world: ModelWorld, actor: Actor) -> None:
        self.world = world
        self.actor = actor

    def list(self, folder: str) -> Sequence[str]:
        self.actor.pause()
        return sorted(
            path.rpartition("/")[2]
            for path in self.world.files
            if path.rpartition("/")[0] == folder
        )

    def read(self, path: str) -> bytes:
        self.actor.pause()
        if path not in self.world.files:
            raise FileNotFoundError(path)
        return self.world.files[path]

    def create(self, path: str, content: bytes) -> bool:
        self.actor.pause("link")
        if path in self.world.files:
            return False
        self.world.files[path] = content
        return True

    def draft(self, prefix: str, content: bytes) -> str:
        self.actor.pause("draft")
        self.world.drafts += 1
        path = f"{prefix}{self.world.drafts}"
        self.world.files[path] = content
        return path

    def link(self, draft: str, target: str) -> bool:
        self.actor.pause("link")
        content = self.world.files.pop(draft, None)
        if content is None:
            raise FileNotFoundError(draft)
        return self.world.files.setdefault(target, content) is content

    def exists(self, path: str) -> bool:
        self.actor.pause()
        return path in self.world.files

    def rename(self, source: str, target: str) -> None:
        self.actor.pause()
        if source not in self.world.files:
            raise FileNotFoundError(source)
        if target in self.world.files:
            self.world.overwritten.append(target)
        self.world.files[target] = self.world.files.pop(source)

    def remove(self, path: str) -> None:
        self.actor.pause()
        self.world.files.pop(path, None)

    def sync(self, folder: str) -> None:
        pass


class ModelLog:
    """The group's offsets, for one process."""

    def __init__(self, world: ModelWorld, actor: Actor) -> None:
        self.world = world
        self.actor = actor

    def committed(self, group: str) -> Mapping[Partition, int]:
        self.actor.pause()
        return dict(self.world.group)

    def commit_unguarded(self, group: str, offsets: Mapping[Partition, int | None]) -> None:
        self.actor.pause()
        for partition, offset in offsets.items():
            if offset is None:
                self.world.group.pop(partition, None)
            else:
                self.world.group[partition] = offset


MakeManifest = Callable[[ModelFiles, ModelLog], Any]


def real_manifest(files: ModelFiles, log: ModelLog) -> Any:
    return Manifest(files, log, "g")  # type: ignore[arg-type]


PARTITIONS: tuple[Partition, ...] = (("t", 0), ("t", 1))
LENGTH = 12


class ModelRun:
    """One run from one seed."""

    def __init__(self, seed: int, make: MakeManifest = real_manifest) -> None:
        self._random = random.Random(seed)
        self._make = make
        self._token = 0
        self.world = ModelWorld()
        self.actors: list[Actor] = []
        self.now = 0

    def run(self) -> list[str]:
        """Return what is wrong at the end: nothing, if every record is there once."""
        self._rounds()
        for actor in self.actors:
            # Zombies wake up one after the other, when nobody remembers them.
            self._finish(actor, kill=self._random.random() < 0.3)
        self._finish(self._start(LENGTH))
        return self._wrong()

    def _rounds(self) -> None:
        self._disturb(self._random.randrange(60, 240))

    def _disturb(self, steps: int) -> None:
        for _ in range(steps):
            self.now += 1
            self._one_step(self.now)

    def _one_step(self, now: int) -> None:
        awake = [one for one in self.actors if not one.done and one.frozen_until <= now]
        if not awake or (len(self.actors) < 6 and self._random.random() < 0.03):
            awake.append(self._start(self._random.randrange(1, 5)))
        actor = self._random.choice(awake)
        chance = self._random.random()
        if chance < 0.03:
            actor.frozen_until = now + self._random.choice((10, 40, 1000))
        else:
            actor.step(kill=chance > 0.98)

    def _finish(self, actor: Actor, *, kill: bool = False) -> None:
        steps = self._random.randrange(1, 20) if kill else 10_000
        while not actor.done and steps:
            actor.step()
            steps -= 1
        if not actor.done:
            actor.step(kill=True)

    def _start(self, batches: int) -> Actor:
        rng = random.Random(self._random.random())

        def work(actor: Actor) -> None:
            files, log = ModelFiles(self.world, actor), ModelLog(self.world, actor)
            self._work(self._make(files, log), files, rng, batches)

        actor = Actor(len(self.actors), work)
        self.actors.append(actor)
        return actor

    def _work(self, manifest: Any, files: ModelFiles, rng: random.Random, batches: int) -> None:
        """Do as the sink's task does: resume, stage, commit, again and again. Partitions move: a
        process takes one or both of them."""
        mine = list(PARTITIONS) if batches == LENGTH else rng.sample(PARTITIONS, rng.randint(1, 2))
        starts = manifest.resume(mine)
        for _ in range(batches):
            for partition in mine:
                start = starts[partition]
                end = min(start + rng.randint(1, 5), LENGTH)
                if end <= start:
                    continue
                entry = self._stage(files, partition, start, end, rng, manifest.era)
                if manifest.commit(entry):
                    starts[partition] = end
                else:
                    starts.update(manifest.resume([partition]))
            manifest.drop_leftovers()

    def _stage(
        self,
        files: ModelFiles,
        partition: Partition,
        start: int,
        end: int,
        rng: random.Random,
        era: int,
    ) -> Entry:
        middle = rng.randint(start, end)
        pairs: list[tuple[str, str]] = []
        for number, (low, high) in enumerate(((start, middle), (middle, end))):
            if low == high:
                continue
            self._token += 1
            staged = staged_path(*partition, start, number, f"{self._token:032x}", "json")
            files.actor.pause()
            content = "".join(f"{partition[1]}:{n}:{self.now}\n" for n in range(low, high))
            self.world.files[staged] = content.encode()
            pairs.append((staged, published_path(*partition, start, number, era, "json")))
        return Entry(*partition, start, end, tuple(pairs), end - start, era=era)

    def _errors(self) -> list[str]:
        wrong = [f"overwritten: {path}" for path in self.world.overwritten]
        return wrong + [repr(one.error) for one in self.actors if one.error is not None]

    def _lines(self) -> dict[tuple[int, int], list[int]]:
        """Return, by partition and offset, when the published copies of each record were made."""
        found: dict[tuple[int, int], list[int]] = {}
        for path, content in self.world.files.items():
            if "/" not in path:
                for line in content.decode().splitlines():
                    number, offset, made = map(int, line.split(":"))
                    found.setdefault((number, offset), []).append(made)
        return found

    def _wrong(self) -> list[str]:
        wrong, lines = self._errors(), self._lines()
        for _, number in PARTITIONS:
            for offset in range(LENGTH):
                count = len(lines.get((number, offset), ()))
                if count != 1:
                    wrong.append(f"record {number}:{offset} is there {count} times")
        return wrong


def first_wrong(make: MakeManifest, seeds: range) -> tuple[int, list[str]] | None:
    """Return the first seed whose run ends wrong, and what is wrong with it."""
    for seed in seeds:
        wrong = ModelRun(seed, make).run()
        if wrong:
            return seed, wrong
    return None
