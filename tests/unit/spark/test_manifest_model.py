"""Thousands of interleavings of crashes, late zombies and moving partitions over the real manifest.

Each weaker rule must fail, or the model would prove nothing of the strong one.
"""

import pytest
from support.depth import tries
from support.spark.manifest_model import ModelFiles, ModelLog, first_wrong, real_manifest

from headgate_spark.entries import STAGING, Entry
from headgate_spark.manifest import Manifest

SEEDS = range(700)


def test_the_manifest_neither_loses_nor_doubles() -> None:
    assert first_wrong(real_manifest, range(tries(250, 700))) is None


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_manifest_holds_for_thousands_of_runs() -> None:
    assert first_wrong(real_manifest, range(700, 5_000)) is None


class _OverwritingFiles(ModelFiles):
    def link(self, draft: str, target: str) -> bool:
        self.actor.pause()
        self.world.files[target] = self.world.files.pop(draft)
        return True


def _overwriting(files: ModelFiles, log: ModelLog) -> Manifest:
    return Manifest(_OverwritingFiles(files.world, files.actor), log, "g")  # type: ignore[arg-type]


class _DropsAllStaged(Manifest):
    """Takes whatever is staged for a leftover."""

    def drop_leftovers(self) -> int:
        for name in self._files.list(STAGING):
            self._files.remove(f"{STAGING}/{name}")
        return 0


class _CommitsGroupFirst(Manifest):
    """The group's offset moves before the files are published, and says that they are."""

    def _publish(self, entry: Entry) -> None:
        partition = (entry.topic, entry.partition)
        if self._log.committed("g").get(partition, 0) < entry.end:
            self._log.commit_unguarded("g", {partition: entry.end})
            super()._publish(entry)


class _NeverRollsForward(Manifest):
    """A weaker manifest, which leaves the publishing of an entry to the process that committed
    it."""

    def resume(self, partitions):  # type: ignore[no-untyped-def]
        starts = {}
        for one in partitions:
            last = self.last(one)
            starts[one] = last.end if last else 0
        return starts


class _KeyedByStart(Manifest):
    """No manifest at all: files have the name of their start offset, and a later process overwrites
    them."""

    def resume(self, partitions):  # type: ignore[no-untyped-def]
        committed = self._log.committed("g")
        return {one: committed.get(one, 0) for one in partitions}

    def commit(self, entry: Entry) -> bool:
        self._publish(entry)
        return True


@pytest.mark.parametrize(
    "weaker",
    [_DropsAllStaged, _CommitsGroupFirst, _NeverRollsForward, _KeyedByStart],
)
def test_a_weaker_rule_loses_or_doubles(weaker: type[Manifest]) -> None:
    def make(files: ModelFiles, log: ModelLog) -> Manifest:
        return weaker(files, log, "g")  # type: ignore[arg-type]

    assert first_wrong(make, SEEDS) is not None


def test_entries_that_overwrite_lose_or_double() -> None:
    assert first_wrong(_overwriting, SEEDS) is not None
