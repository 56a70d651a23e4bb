"""Offsets that users have altered or reset, in the manifest of a target folder.

    _headgate/altered-1.json      {"version": 1, "offsets": [["events", 0, 500]]}

A change is one record, created exclusively and whole, and never removed: it has happened when the
record is there, for all of its partitions, whoever dies afterwards. The *era* of an entry is the
number of changes before it. An entry holds unless a later change took its partition back to before
its end; one that does not hold is *stale*. A partition goes on at the end of its last entry that
holds, or where a change since then has set it. (So the offsets of a group are only asked where
neither is there, and need not change in the same moment: they follow.)

What is left to do after the record may be done by anybody, often, and at any later time: names of
entries and files tell their eras, so no name is used twice, and what is removed is never what a
later era has written.

    1. drafts of older eras go       from here on no entry of an older era can appear: an entry is
                                     made of a draft, whose writer looks for changes after it has
                                     written the draft (`headgate_spark.manifest`). Again if a newer
                                     change has come meanwhile
    2. the files of stale entries    the staged before the published: the writer may just be
                                     renaming them
    3. the stale entries

Why not change the manifest in place: who dies between the removal of files and the change of the
group's offsets leaves a folder without records, and a group that is behind them (loss). A process
that was frozen and wakes up commits a batch that begins where the folder ended before (loss), or
publishes files that were taken back (doubling).
"""

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from headgate.ports import TopicPartition
from headgate_spark.batches import SLICE_MIN
from headgate_spark.entries import (
    DRAFT_NAME,
    ENTRY_NAME,
    FOLDER,
    STAGING,
    VERSION,
    Entry,
    ManifestError,
    of_this_version,
    read_entry,
)
from headgate_spark.files import Files

_Place = tuple[int, int]
"""Era and start of an entry."""
_ALTERED = re.compile(r"altered-(\d+)\.json")


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change by a user."""

    era: int
    """Era that begins with this alteration; from 1."""
    offsets: Mapping[TopicPartition, int]
    """Where the next batch of each is to begin; 0 where it was reset."""

    @property
    def path(self) -> str:
        return f"{FOLDER}/altered-{self.era}.json"

    def to_json(self) -> bytes:
        offsets = [[*partition, offset] for partition, offset in sorted(self.offsets.items())]
        return json.dumps({"version": VERSION, "offsets": offsets}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, era: int, data: bytes) -> "Alteration":
        """Raises `ManifestError`."""
        path = cls(era, {}).path
        try:
            plain = of_this_version(json.loads(data), path)
            return cls(era, {(topic, number): offset for topic, number, offset in plain["offsets"]})
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(
                f"{path} is no change of offsets ({type(error).__name__}: {error}); Headgate wrote "
                "it whole or not at all, so something else has changed it"
            ) from error


class Look:
    """What a listing of the manifest says. What holds can only be added to until the next era."""

    def __init__(
        self, files: Files, names: Sequence[str], alterations: Sequence[Alteration]
    ) -> None:
        self._files = files
        self.alterations = alterations
        self._places: dict[TopicPartition, list[_Place]] = {}
        """Place of each entry, in the order in which they were made."""
        for name in names:
            found = ENTRY_NAME.fullmatch(name)
            if found:
                place = (int(found[4] or 0), int(found[3]))
                self._places.setdefault((found[1], int(found[2])), []).append(place)
        for places in self._places.values():
            places.sort()

    @property
    def era(self) -> int:
        return len(self.alterations)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """`position` of each partition of which the manifest knows something, sorted."""
        altered = {one for each in self.alterations for one in each.offsets}
        found = {one: self.position(one) for one in sorted(altered | set(self._places))}
        return {one: position for one, position in found.items() if position is not None}

    def entries(self, partition: TopicPartition) -> list[Entry]:
        """Entries that hold, in order; each begins where the one before it ends, or where users set
        the partition since."""
        return list(self._holding(partition, self._places.get(partition, ())))

    def without(self, partition: TopicPartition, known: Container[_Place]) -> list[Entry]:
        """Entries that hold and are at none of these places, or may have more than one file. Reads
        no others."""
        places = self._places.get(partition, [])
        unsure = [
            one
            for one, after in zip_longest(places, places[1:])
            if one not in known or may_have_more_files(one, after)
        ]
        return list(self._holding(partition, unsure))

    def last(self, partition: TopicPartition) -> Entry | None:
        """The last that holds. Reads few, however many there are."""
        return next(self._holding(partition, reversed(self._places.get(partition, ()))), None)

    def position(self, partition: TopicPartition) -> int | None:
        """Where its next batch begins; None: the manifest knows nothing of it."""
        last = self.last(partition)
        era = -1 if last is None else last.era
        for altered in reversed(self.alterations):
            if altered.era > era and partition in altered.offsets:
                return altered.offsets[partition]
        return None if last is None else last.end

    def at(self, partition: TopicPartition, start: int) -> list[Entry]:
        """Entries that begin there, stale ones too."""
        eras = [era for era, at in self._places.get(partition, ()) if at == start]
        found = [read_entry(self._files, partition, start, era) for era in eras]
        return [entry for entry in found if entry is not None]

    def stale(self) -> Iterator[Entry]:
        """What users have taken back and is still there; the last first."""
        for partition, places in sorted(self._places.items()):
            whole: set[int] = set()
            """Eras whose entries before this one hold, because this one did."""
            for era, start in reversed(places):
                limit = self._limit(partition, era)
                if limit is None or era in whole:
                    continue
                entry = read_entry(self._files, partition, start, era)
                if entry is not None and entry.end > limit:
                    yield entry
                elif entry is not None:
                    whole.add(era)

    def _holding(self, partition: TopicPartition, places: Iterable[_Place]) -> Iterator[Entry]:
        for era, start in places:
            limit = self._limit(partition, era)
            if limit is None or start < limit:
                entry = read_entry(self._files, partition, start, era)
                # None: it was stale, and somebody has just removed it.
                if entry is not None and (limit is None or entry.end <= limit):
                    yield entry

    def _limit(self, partition: TopicPartition, era: int) -> int | None:
        """Before which an entry of that era must end to hold."""
        later = (each.offsets.get(partition) for each in self.alterations[era:])
        return min((offset for offset in later if offset is not None), default=None)


def may_have_more_files(place: _Place, after: _Place | None) -> bool:
    """Whether the batch there may have more than one file: not if it has too few records.

    Args:
        after: place of the next entry, where it ends; None: that is not known.
    """
    return after is None or after[0] != place[0] or after[1] - place[1] >= 2 * SLICE_MIN


def look(files: Files, known: Sequence[Alteration] = ()) -> Look:
    """
    Args:
        known: alterations of an earlier look, which never change.
    """
    names = files.list(FOLDER)
    eras = sorted(int(found[1]) for name in names if (found := _ALTERED.fullmatch(name)))
    alterations = list(known)
    for era in eras[len(known) :]:
        path = Alteration(era, {}).path
        if era != len(alterations) + 1:
            raise ManifestError(
                f"{path} is there and {Alteration(era - 1, {}).path} is not: something has removed "
                "it. Use another path, or bring it back"
            )
        alterations.append(Alteration.from_json(era, files.read(path)))
    return Look(files, names, alterations)


def finish(files: Files) -> Look:
    """Do what changes have left to do; the manifest as it is after that."""
    seen = _without_drafts(files)
    stale = list(seen.stale())
    for entry in stale:
        for staged, final in entry.files:
            files.remove(staged)
            files.remove(final)
    if stale:
        files.sync(STAGING)
        files.sync("")
    for entry in stale:
        files.remove(entry.path)
    if stale:
        files.sync(FOLDER)
    return seen


def _without_drafts(files: Files) -> Look:
    """The manifest as it is once no draft of an older era than its own is left: nothing of those
    becomes an entry after this look. A change that comes meanwhile has its own drafts to remove."""
    seen = look(files)
    while True:
        for name in files.list(FOLDER) if seen.era else ():
            draft = DRAFT_NAME.fullmatch(name)
            if draft and int(draft[1]) < seen.era:
                files.remove(f"{FOLDER}/{name}")
        now = look(files, seen.alterations)
        if now.era == seen.era:
            return now
        seen = now


def alter(files: Files, offsets: Mapping[TopicPartition, int | None]) -> None:
    """Make the next batch of each partition begin at its offset (None: at its first record), on a
    connector that is stopped: batches from there on go, with their files.

    All of it or nothing. It is done when the record is there: who dies after that has it finished
    by the next task, or the next change. A process that has survived commits nothing that began
    before it.

    Raises:
        ManifestError: an offset lies inside a committed batch, whose files cannot be parted; or
            somebody else alters offsets at the same time. Nothing was changed.
    """
    begun = look(files)
    seen = finish(files)
    wanted = {partition: offset or 0 for partition, offset in offsets.items()}
    for partition, offset in sorted(wanted.items()):
        _check(seen, partition, offset)
    changes = {one: offset for one, offset in wanted.items() if seen.position(one) != offset}
    if not changes:
        return
    record = Alteration(begun.era + 1, changes)
    if not files.create(record.path, record.to_json()):
        raise ManifestError(
            "somebody else altered or reset offsets of this folder at the same time: look at them, "
            "and try again"
        )
    finish(files)


def _check(seen: Look, partition: TopicPartition, offset: int) -> None:
    for entry in seen.entries(partition):
        if entry.start < offset < entry.end:
            raise ManifestError(
                f"offset {offset} of {partition[0]}-{partition[1]} lies inside a committed batch, "
                f"offsets {entry.start} to {entry.end - 1}, whose files cannot be parted: choose "
                f"{entry.start} or {entry.end}"
            )
