"""Which batches of records are in a target folder: the one truth of a sink that writes files.

    target/
      events-0-0-0.parquet               published files, for everybody to read
      _headgate/events-0-0.json          entry: topic events, partition 0, offsets from 0 on
      _headgate/staging/events-0-500-0-<token>.parquet      written, not committed yet

The entries of a topic-partition are a chain: each begins where the one before it ends. A batch
commits by the exclusive creation of its entry, and only at the end of the chain. So if any number
of processes wrote the same records, one commits. The others find its entry and drop their files.

A process that finds an entry *rolls it forward*: it renames its staged files to their published
names, then commits its end to the consumer group. Nothing is ever overwritten.

It would not do to name files by their start offset and to let a later writer overwrite them. A
process that was frozen and wakes up would replace a longer file by a shorter one (loss), or write a
file that overlaps the next (doubling).

Progress resumes from the chain, and only then from the group, whose offsets only follow. A late
process may set them back, or ahead if users have taken batches back meanwhile.

Users alter offsets by records beside the entries (`headgate_spark.alterations`). The creator of an
entry first writes a draft of it. It then looks whether offsets were altered since it resumed, and
only then links the draft to its name. An alteration writes its record, and then removes drafts. So
either the writer sees the record, or the draft is gone, or the entry exists before the alteration
looks at entries.

A column has one type in all files, since readers take the folder for one table. Its first batch
pins it by the exclusive creation of ``_headgate/column.ERA.HASH.json``, before any entry of the
batch. So if two processes saw different values first, one pins and the other begins again.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence

from headgate.ports import RecordLog, TopicPartition
from headgate_spark.alterations import Look, finish, look
from headgate_spark.columns import NULL, type_name
from headgate_spark.entries import (
    FOLDER,
    PUBLISHED_NAME,
    STAGED_NAME,
    STAGING,
    VERSION,
    Entry,
    ManifestError,
    draft_prefix,
    of_this_version,
)
from headgate_spark.files import Files

PIN_DRAFT = f"{FOLDER}/.pin-"
"""Prefix of drafts of pins. No alteration removes them, since each era has pins of its own."""


class Manifest:
    """The manifest of one target folder, as one process works with it. For one thread."""

    def __init__(self, files: Files, log: RecordLog, group: str) -> None:
        self._files = files
        self._log = log
        self._group = group
        self._seen: Look | None = None
        self._pinned: dict[tuple[int, str], str] = {}
        """Kinds by era and column."""

    @property
    def era(self) -> int:
        """Era in which `resume` found the manifest. Entries that are committed from then on name
        it."""
        return 0 if self._seen is None else self._seen.era

    def resume(
        self,
        partitions: Sequence[TopicPartition],
        check: Callable[[Entry], None] = lambda _entry: None,
    ) -> dict[TopicPartition, int]:
        """Return where to go on for each partition, after finishing what others have begun. These
        are changes of offsets, and entries that may not be published yet.

        The group follows, even if it is ahead: then a process that altered offsets died before it
        set the group.

        Args:
            check: Called with the last entry of each partition for which the group has no offset,
                as it has none in a log that was made anew. What it raises ends the resumption.
        """
        committed = self._log.committed(self._group)
        seen = self._seen = finish(self._files)
        for partition in partitions:
            last = seen.last(partition)
            if partition not in committed and last and last.end == seen.position(partition):
                check(last)
        starts: dict[TopicPartition, int] = {}
        behind: dict[TopicPartition, int | None] = {}
        for partition in partitions:
            # Earlier entries were published by the process that created this one, or by those
            # before it.
            last = seen.last(partition)
            if last is not None:
                self._publish(last)
            position = seen.position(partition)
            starts[partition] = committed.get(partition, 0) if position is None else position
            if starts[partition] != committed.get(partition, 0):
                behind[partition] = starts[partition]
        if behind:
            self._log.commit_unguarded(self._group, behind)
        return starts

    def knows(self, partition: TopicPartition) -> bool:
        """Return whether the manifest knew the partition at the last `resume`."""
        return self._seen is not None and self._seen.position(partition) is not None

    def gone(self, partitions: Sequence[TopicPartition]) -> list[tuple[Entry, list[str]]]:
        """Return the batches of the last `resume` that hold and lack published files, each with
        these files."""
        if self._seen is None:
            return []
        there: dict[TopicPartition, set[tuple[int, int]]] = {}
        """Places whose first file exists."""
        for name in self._files.list(""):
            found = PUBLISHED_NAME.fullmatch(name)
            if found and int(found[4]) == 0:
                place = int(found[5] or 0), int(found[3])
                there.setdefault((found[1], int(found[2])), set()).add(place)
        unsure = [
            entry
            for partition in partitions
            for entry in self._seen.without(partition, there.get(partition, ()))
        ]
        lost = [
            (entry, [final for _, final in entry.files if not self._files.exists(final)])
            for entry in unsure
        ]
        return [(entry, names) for entry, names in lost if names]

    def commit(self, entry: Entry) -> bool:
        """Commit a batch whose files are staged and durable.

        Return False if another process was first, if the batch does not begin where the chain ends,
        or if users have altered offsets since `resume`. Its files are then dropped. `resume` rolls
        the other batch forward and says where to go on.

        Raises:
            ManifestError: a file exists where one of the batch is to be published, and belongs to
                no batch at this start. Nothing was committed.
        """
        if self._may_follow(entry):
            self._check_names(entry)
            if self._create(entry):
                self._publish(entry)
                end: dict[TopicPartition, int | None]
                end = {(entry.topic, entry.partition): entry.end}
                self._log.commit_unguarded(self._group, end)
                return True
        for staged, _ in entry.files:
            self._files.remove(staged)
        return False

    def pin(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Pin the kinds of columns that have values, before a batch with them is committed.

        Returns:
            Columns that were pinned with another type before, and their kinds. A batch may only be
                committed if there are none.
        """
        others: dict[str, str] = {}
        for name, kind in columns.items():
            if kind == NULL:
                continue
            place = (self.era, name)
            if place not in self._pinned:
                self._pinned[place] = self._pin(name, kind)
            if type_name(self._pinned[place]) != type_name(kind):
                others[name] = self._pinned[place]
        return others

    def _pin(self, column: str, kind: str) -> str:
        """Return the kind that the column has from now on."""
        found = hashlib.sha256(column.encode("utf-8", "surrogatepass")).hexdigest()
        path = f"{FOLDER}/column.{self.era}.{found}.json"
        if not self._files.exists(path):
            plain = {"version": VERSION, "column": column, "kind": kind}
            self._files.link(self._files.draft(PIN_DRAFT, json.dumps(plain).encode()), path)
        return str(of_this_version(json.loads(self._files.read(path)), path)["kind"])

    def last(self, partition: TopicPartition) -> Entry | None:
        """Return the last entry of a partition."""
        return self._look().last(partition)

    def drop_leftovers(self) -> int:
        """Remove staged files that can never be committed any more. Return how many.

        A staged file may be dropped only if an entry exists at its start that does not name it. No
        other entry can then be created there. Files at the end of the chain stay, however old.
        Their writer may be frozen, and may wake up and commit them.
        """
        staged = self._files.list(STAGING)
        seen, dropped = self._look(), 0
        for name in staged:
            found = STAGED_NAME.fullmatch(name)
            if found is None:
                continue
            at_start = seen.at((found[1], int(found[2])), int(found[3]))
            path = f"{STAGING}/{name}"
            if at_start and not any(path in one.staged for one in at_start):
                self._files.remove(path)
                dropped += 1
        return dropped

    # -- steps --

    def _look(self) -> Look:
        return look(self._files, () if self._seen is None else self._seen.alterations)

    def _may_follow(self, entry: Entry) -> bool:
        """Return whether the chain ends where `entry` begins, or is empty. In one era a chain only
        grows. So if that changes before the creation, the creation fails."""
        position = self._look().position((entry.topic, entry.partition))
        return position in (None, entry.start)

    def _create(self, entry: Entry) -> bool:
        """Create an entry, and return whether that succeeded. The draft is written before the look:
        see the module."""
        draft = self._files.draft(draft_prefix(entry.era), entry.to_json())
        if self._look().era != entry.era:
            self._files.remove(draft)
            return False
        try:
            return self._files.link(draft, entry.path)
        except FileNotFoundError:
            return False  # users have altered offsets since that look

    def _check_names(self, entry: Entry) -> None:
        """Check the names of the files. The entry is looked for last: a faster process has made it
        before its files. (If both were taken back meanwhile, the creation fails.)"""
        for _, final in entry.files:
            if self._files.exists(final) and not self._files.exists(entry.path):
                if self._look().era == entry.era:
                    raise _name_is_taken(final)
                return

    def _publish(self, entry: Entry) -> None:
        """Rename the staged files.

        Raises:
            ManifestError: a file that is not the entry's exists where one is to be.
        """
        for staged, final in entry.files:
            if self._files.exists(final):
                # Another process has published it, unless the staged file exists: a rename leaves
                # none behind.
                if self._files.exists(staged):
                    raise _name_is_taken(final)
                continue
            try:
                self._files.rename(staged, final)
            except FileNotFoundError:
                # Another process was faster, or the published file was taken away.
                continue
        if entry.files:
            # Also files that another process has renamed: it may have been killed before this step.
            self._files.sync("")
            self._files.sync(STAGING)


def _name_is_taken(path: str) -> ManifestError:
    return ManifestError(
        f"{path} is there and is none of this sink's files: move it away, or give the connector "
        "another path"
    )
