"""Random histories of files that are rotated, renamed and replaced, read by tasks that are killed.

A line that was written whole is read once, under whatever names its file had since, if a task looks
at each file before it is deleted.
"""

import random
from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pytest
from support.task.source_tasks import Offsets, Run, values

from headgate.connector.api import SourceItem
from headgate_connectors.directory import DirectorySource
from headgate_connectors.files.claims import FileClaims

KNOWN = [
    *[(1, seed) for seed in (15, 143, 474)],
    *[(2, seed) for seed in (367, 388, 404, 623, 1343)],
    *[(3, seed) for seed in (63, 114, 1514, 2197)],
]
"""Tasks and seeds of histories that lost or doubled lines while a guard was missing."""
KNOWN_REUSED = [(2, 108), (2, 273), (3, 256), (3, 312)]
"""The same of histories in which a new file gets the inode of a deleted one."""
NAMES = ("app.log", "app.log.1", "app.log.2", "app.log.3", "x.log", "y.log", "z.log")
STEPS = 40


class History:
    def __init__(self, folder: Path, seed: int, tasks: int, *, reuses: bool) -> None:
        """`reuses`: files are deleted, so that new ones get their inodes."""
        self.folder = folder
        self.reuses = reuses
        self.chance = random.Random(seed)
        self.offsets = Offsets()
        self.written = self.gone = 0
        self.told: list[str] = []
        self.delivered: list[str] = []
        self.config = {
            "path": str(folder),
            "topic": "t",
            "format": "lines",
            "tasks.max": str(tasks),
            "batch.size": str(self.chance.choice([1, 2, 3, 100])),
            "on.replace": "reread",
        }
        self.tasks = [self.start(number) for number in range(tasks)]
        self.pending: list[list[list[SourceItem]]] = [[] for _ in range(tasks)]

    def start(self, number: int) -> Run:
        return Run(DirectorySource, self.config, self.offsets, number)

    def step(self) -> None:
        kinds = [self.append] * 6 + [self.look] * 6 + [self.commit] * 3
        kinds += [self.rotate, self.rename, self.swap, self.kill, self.poll]
        kind = self.chance.choice(kinds)
        self.told.append(kind.__name__)
        kind()

    # -- what others do to the files --

    def append(self) -> None:
        path = self.folder / self.chance.choice(("app.log", "app.log", *NAMES))
        with path.open("a") as file:
            for _ in range(self.chance.randint(1, 3)):
                self.written += 1
                file.write(f"{self.written}\n")

    def rotate(self) -> None:
        names = NAMES[:4]
        if (self.folder / names[-1]).exists():
            self.settle()  # nobody can read what is deleted
            if self.reuses:
                (self.folder / names[-1]).unlink()
            else:  # its inode may be that of the next file: tasks may take one for the other
                self.gone += 1
                (self.folder / names[-1]).rename(self.folder.parent / f"gone-{self.gone}")
        for older, name in zip(names[:0:-1], names[-2::-1], strict=True):
            if (self.folder / name).exists():
                (self.folder / name).rename(self.folder / older)

    def rename(self) -> None:
        there = sorted(path.name for path in self.folder.iterdir())
        free = sorted(set(NAMES) - set(there))
        if there and free:
            (self.folder / self.chance.choice(there)).rename(self.folder / self.chance.choice(free))

    def swap(self) -> None:
        there = sorted(path.name for path in self.folder.iterdir())
        if len(there) > 1:
            one, other = (self.folder / name for name in self.chance.sample(there, 2))
            aside = self.folder.parent / "aside"
            one.rename(aside)
            other.rename(one)
            aside.rename(other)

    # -- what tasks do --

    def poll(self) -> None:
        number = self.chance.randrange(len(self.tasks))
        found = self.tasks[number].poll()
        if found:
            self.pending[number].append(found)

    def look(self) -> None:
        for _ in range(3):
            self.poll()

    def commit(self, number: int | None = None) -> None:
        """The first of the polls that are not committed yet, or more of them."""
        number = self.chance.randrange(len(self.tasks)) if number is None else number
        pending = self.pending[number]
        for _ in range(self.chance.randint(0, len(pending))):
            for item in pending[0]:
                self.offsets.commit(item)
            self.delivered += values(pending.pop(0))

    def kill(self) -> None:
        """Kill a task, which loses what it has not committed."""
        number = self.chance.randrange(len(self.tasks))
        self.tasks[number].task.stop()
        self.pending[number].clear()
        self.tasks[number] = self.start(number)

    def settle(self) -> None:
        idle = 0
        while idle < 3 * len(self.tasks):
            idle += 1
            for number, task in enumerate(self.tasks):
                found = task.poll()
                if found:
                    self.pending[number].append(found)
                    idle = 0
                while self.pending[number]:
                    self.commit(number)


def wrong(folder: Path, seed: int, tasks: int, *, reuses: bool = False) -> str:
    """Return what was lost or doubled: empty if nothing was."""
    folder.mkdir(parents=True)
    history = History(folder, seed, tasks, reuses=reuses or tasks == 1)
    for _ in range(STEPS):
        history.step()
    history.settle()
    for task in history.tasks:
        task.task.stop()
    found = Counter(history.delivered)
    wanted = Counter(str(number) for number in range(1, history.written + 1))
    if found == wanted:
        return ""
    return f"lost {sorted(wanted - found)}, doubled {sorted(found - wanted)} by {history.told}"


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_each_line_is_read_once(tmp_path: Path, tasks: int) -> None:
    for seed in range(25):
        assert wrong(tmp_path / str(seed) / "in", seed, tasks) == "", seed


@pytest.mark.parametrize(("tasks", "seed"), KNOWN)
def test_each_line_of_known_histories_is_read_once(tmp_path: Path, tasks: int, seed: int) -> None:
    assert wrong(tmp_path / "in", seed, tasks) == ""


@pytest.mark.parametrize(("tasks", "seed"), KNOWN_REUSED)
def test_known_histories_that_use_inodes_again(tmp_path: Path, tasks: int, seed: int) -> None:
    assert wrong(tmp_path / "in", seed, tasks, reuses=True) == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_each_line_of_many_histories_is_read_once(tmp_path: Path, tasks: int) -> None:
    for seed in range(100, 500):
        assert wrong(tmp_path / str(seed) / "in", seed, tasks) == "", seed


@pytest.mark.parametrize("guard", ["claim", "release"])
def test_without_claims_lines_are_doubled_or_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    def claim(self: FileClaims, inodes: Collection[int]) -> Collection[int]:
        return inodes

    def release(self: FileClaims, inodes: Collection[int]) -> None:
        """Keeps them."""

    monkeypatch.setattr(FileClaims, guard, {"claim": claim, "release": release}[guard])
    assert any(wrong(tmp_path / str(seed) / "in", seed, 2) for seed in range(60))
