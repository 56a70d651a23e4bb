"""Offsets that users have altered or reset, in the manifest of a target folder.

    _headgate/altered-1.json      {"version": 1, "offsets": [["events", 0, 500]]}

A change is one record, created exclusively and whole, and never removed. Once the record exists,
the change has happened for all of its partitions, even if a process dies afterwards.

The *era* of an entry is the number of changes before it. An entry holds unless a later change took
its partition back to before its end. An entry that does not hold is *stale*. A partition goes on at
the end of its last entry that holds, or where a later change has set it. (So the group's offsets
are read only if there is neither. They need not change at the same moment: they follow.)

The work after the record may be done by any process, repeatedly, and at any later time. Names of
entries and files have their eras, so no name is used twice. Nothing that a later era has written is
ever removed.

    1. drafts of older eras go       from here on no entry of an older era can appear: an entry is
                                     made of a draft, whose writer looks for changes after it has
                                     written the draft (`headgate_spark.manifest`). Again if a newer
                                     change has come meanwhile
    2. the files of stale entries    the staged before the published: the writer may just be
                                     renaming them
    3. the stale entries

The manifest is not changed in place. A process that dies between the removal of files and the
change of the group's offsets would leave a folder without records before the group's offsets
(loss). A process that was frozen and wakes up would commit a batch that begins where the folder
ended before (loss). Or it would publish files that were taken back (doubling).
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
    """Era that begins with this alteration, counted from 1."""
    offsets: Mapping[TopicPartition, int]
    """Where the next batch of each partition is to begin; 0 if it was reset."""

    @property
    def path(self) -> str:
        return f"{FOLDER}/altered-{self.era}.json"

    def to_json(self) -> bytes:
        offsets = [[*partition, offset] for partition, offset in sorted(self.offsets.items())]
        return json.dumps({"version": VERSION, "offsets": offsets}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, era: int, data: bytes) -> "Alteration":
        """Parse an alteration. Raises `ManifestError`."""
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
    """A listing of the manifest. Until the next era, entries that hold can only be added."""

    def __init__(
        self, files: Files, names: Sequence[str], alterations: Sequence[Alteration]
    ) -> None:
        self._files = files
        self.alterations = alterations
        self._places: dict[TopicPartition, list[_Place]] = {}
        """Places of the entries of each partition, in the order in which they were made."""
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
        """The `position` of each partition that the manifest knows, sorted."""
        altered = {one for each in self.alterations for one in each.offsets}
        found = {one: self.position(one) for one in sorted(altered | set(self._places))}
        return {one: position for one, position in found.items() if position is not None}

    def entries(self, partition: TopicPartition) -> list[Entry]:
        """Return the entries that hold, in order. Each begins where the one before it ends, or
        where users have set the partition since."""
        return list(self._holding(partition, self._places.get(partition, ())))

    def without(self, partition: TopicPartition, known: Container[_Place]) -> list[Entry]:
        """Return the entries that hold and are at none of these places, or may have more than one
        file. No other entries are read."""
        places = self._places.get(partition, [])
        unsure = [
            one
            for one, after in zip_longest(places, places[1:])
            if one not in known or may_have_more_files(one, after)
        ]
        return list(self._holding(partition, unsure))

    def last(self, partition: TopicPartition) -> Entry | None:
        """Return the last entry that holds. Reads few entries, however many there are."""
        return next(self._holding(partition, reversed(self._places.get(partition, ()))), None)

    def position(self, partition: TopicPartition) -> int | None:
        """Return where the partition's next batch begins. None: the manifest does not know the
        partition."""
        last = self.last(partition)
        era = -1 if last is None else last.era
        for altered in reversed(self.alterations):
            if altered.era > era and partition in altered.offsets:
                return altered.offsets[partition]
        return None if last is None else last.end

    def at(self, partition: TopicPartition, start: int) -> list[Entry]:
        """Return the entries that begin there, stale ones included."""
        eras = [era for era, at in self._places.get(partition, ()) if at == start]
        found = [read_entry(self._files, partition, start, era) for era in eras]
        return [entry for entry in found if entry is not None]

    def stale(self) -> Iterator[Entry]:
        """Yield the entries that users have taken back and that still exist, the last first."""
        for partition, places in sorted(self._places.items()):
            whole: set[int] = set()
            """Eras in which an entry was found to hold. All earlier entries of the era then hold,
            too."""
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
                # None: it was stale, and another process has just removed it.
                if entry is not None and (limit is None or entry.end <= limit):
                    yield entry

    def _limit(self, partition: TopicPartition, era: int) -> int | None:
        """Return the offset up to which an entry of that era may reach to hold. None: there is no
        limit."""
        later = (each.offsets.get(partition) for each in self.alterations[era:])
        return min((offset for offset in later if offset is not None), default=None)


def may_have_more_files(place: _Place, after: _Place | None) -> bool:
    """Return whether the batch there may have more than one file. It has one if it has too few
    records.

    Args:
        after: place of the next entry, where this one ends. None: it is not known.
    """
    return after is None or after[0] != place[0] or after[1] - place[1] >= 2 * SLICE_MIN


def look(files: Files, known: Sequence[Alteration] = ()) -> Look:
    """Return a listing of the manifest.

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
    """Finish what changes have left to do. Return the manifest as it is after that."""
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
    """Return the manifest once no draft of an era older than its own is left. After this look no
    such draft becomes an entry. A change that comes meanwhile has its own drafts to remove."""
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
    """Make the next batch of each partition begin at its offset (None: at its first record). The
    connector must be stopped. Batches from there on are removed, with their files.

    It is done wholly or not at all, namely once the record exists. If the process dies after that,
    the next task or the next change finishes the work. A process that has survived commits nothing
    that it began before.

    Raises:
        ManifestError: an offset lies inside a committed batch, whose files cannot be split, or
            another process alters offsets at the same time. Nothing was changed.
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
