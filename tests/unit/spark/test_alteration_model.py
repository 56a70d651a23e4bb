"""Hundreds of interleavings of users who alter offsets, crashes and late zombies, over the real
manifest.

Each weaker rule must fail, or the model would prove nothing of the strong one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.depth import first, tries
from support.spark.alteration_model import AlterationRun, Offsets, first_wrong_alteration
from support.spark.manifest_model import ModelFiles, ModelLog

from headgate.ports import TopicPartition
from headgate_spark import alterations, manifest
from headgate_spark.alterations import Look, look
from headgate_spark.entries import Entry
from headgate_spark.files import Files
from headgate_spark.manifest import Manifest

SEEDS = range(150)
MORE_SEEDS = range(600)
"""For rules that only fail where two must meet."""


def test_whatever_is_altered_nothing_is_lost_or_doubled() -> None:
    assert first_wrong_alteration(range(tries(50, 150))) is None


@pytest.mark.exhaustive
@pytest.mark.slow
def test_alterations_hold_for_thousands_of_runs() -> None:
    assert first_wrong_alteration(range(150, 3_000)) is None


class _TrustsTheGroup(Manifest):
    """Goes on where the group says, unless there are entries."""

    def resume(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        committed = self._log.committed(self._group)
        starts = super().resume(partitions)
        self._log.commit_unguarded(self._group, committed)
        for one in partitions:
            if self.last(one) is None:
                starts[one] = committed.get(one, 0)
        return starts


class _LooksBeforeTheDraft(Manifest):
    def _create(self, entry: Entry) -> bool:
        return self._files.create(entry.path, entry.to_json())


@pytest.mark.parametrize("weaker", [_TrustsTheGroup, _LooksBeforeTheDraft])
def test_a_weaker_sink_loses_or_doubles(weaker: type[Manifest]) -> None:
    def make(files: ModelFiles, log: ModelLog) -> Manifest:
        return weaker(files, log, "g")  # type: ignore[arg-type]

    found = first_wrong_alteration(MORE_SEEDS, lambda seed: AlterationRun(seed, make))
    assert found is not None


def _in_place(files: Files, offsets: Offsets) -> None:
    """Alter without a record of the change: remove entries and files, and then alter the group."""
    for partition, offset in sorted(offsets.items()):
        for entry in reversed(look(files).entries(partition)):
            if entry.start >= (offset or 0):
                for staged, final in entry.files:
                    files.remove(final)
                    files.remove(staged)
                files.remove(entry.path)


def _not_finished(_files: Files, _offsets: Offsets) -> None:
    """Alter only the group."""


@pytest.mark.parametrize("weaker", [_in_place, _not_finished])
def test_a_weaker_change_loses_or_doubles(weaker: Callable[[Files, Offsets], None]) -> None:
    found = first_wrong_alteration(SEEDS, lambda seed: AlterationRun(seed, change=weaker))
    assert found is not None


class _Kept(ModelFiles):
    """Files of a process that leaves out some removals."""

    def __init__(self, files: ModelFiles, kept: str) -> None:
        super().__init__(files.world, files.actor)
        self._kept = kept

    def remove(self, path: str) -> None:
        if self._kept not in path:
            super().remove(path)


def _leaves_drafts(files: Any) -> Look:
    return _FINISH(_Kept(files, ".draft"))


def _removes_entries_first(files: Any) -> Look:
    seen = look(files)
    stale = list(seen.stale())
    for entry in stale:
        files.remove(entry.path)
    for entry in stale:
        for staged, final in entry.files:
            files.remove(staged)
            files.remove(final)
    return _FINISH(files)


def _removes_published_first(files: Any) -> Look:
    for entry in look(files).stale():
        for _, final in entry.files:
            files.remove(final)
        for staged, _ in entry.files:
            files.remove(staged)
        files.remove(entry.path)
    return _FINISH(files)


_FINISH = alterations.finish


@pytest.mark.parametrize(
    "weaker", first(1, [_removes_entries_first, _leaves_drafts, _removes_published_first])
)
def test_a_weaker_end_of_a_change_loses_or_doubles(
    monkeypatch: pytest.MonkeyPatch, weaker: Callable[[Any], Look]
) -> None:
    monkeypatch.setattr(alterations, "finish", weaker)
    monkeypatch.setattr(manifest, "finish", weaker)
    assert first_wrong_alteration(MORE_SEEDS) is not None
