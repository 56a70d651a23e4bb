"""Which batches of records are in a target folder: the one truth of a sink that writes files.

    target/
      events-0-0-0.parquet               published files, for everybody to read
      _headgate/events-0-0.json          entry: topic events, partition 0, offsets from 0 on
      _headgate/staging/events-0-500-0-<token>.parquet      written, not committed yet

The entries of a topic-partition are a chain: each begins where the one before it ends. A batch
commits by the exclusive creation of its entry, and may only be created at the end of the chain. So
of any number of processes that wrote the same records, one commits; the others find its entry and
drop their files. Whoever finds an entry *rolls it forward*: renames its staged files to their
published names, then commits its end to the consumer group. Nothing is ever overwritten.

Why not files named by their start offset, overwritten by who comes later: a process that was
frozen and wakes up replaces a longer file by a shorter one (loss), or writes a file that overlaps
the next (doubling).

Progress resumes from the chain, then from the group: the group's offsets only follow, and a late
process may set them back.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.ports import RecordLog, TopicPartition
from headgate_spark.files import Files

FOLDER = "_headgate"
STAGING = "_headgate/staging"
VERSION = 1
_ENTRY = re.compile(r"(.+)-(\d+)-(\d+)\.json")
_STAGED = re.compile(r"(.+)-(\d+)-(\d+)-\d+-[0-9a-f]{32}\.[a-z]+")


class ManifestError(Exception):
    """The manifest is not one that this version wrote, or the folder holds files that it does not
    know where its own are to be."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed batch of one topic-partition. The target's key: `path`."""

    topic: str
    partition: int
    start: int
    end: int
    """Offset after the last record; the next entry's start."""
    files: tuple[tuple[str, str], ...]
    """Staged path, published path; in order of offsets."""
    records: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns and kinds (`headgate_spark.columns`) known by the end of this batch, in order."""

    @property
    def path(self) -> str:
        return entry_path(self.topic, self.partition, self.start)

    def to_json(self) -> bytes:
        plain = {
            "version": VERSION,
            "topic": self.topic,
            "partition": self.partition,
            "start": self.start,
            "end": self.end,
            "records": self.records,
            "files": [list(pair) for pair in self.files],
            "columns": dict(self.columns),
        }
        return json.dumps(plain, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "Entry":
        """Raises `ManifestError`."""
        try:
            plain = json.loads(data)
            if plain["version"] != VERSION:
                raise ManifestError(
                    f"{path} has version {plain['version']!r}, expected {VERSION}: it was written "
                    "by another version of Headgate"
                )
            return cls(
                plain["topic"],
                plain["partition"],
                plain["start"],
                plain["end"],
                tuple((staged, final) for staged, final in plain["files"]),
                plain["records"],
                plain["columns"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(
                f"{path} is no entry of a manifest ({type(error).__name__}: {error}); Headgate "
                "wrote it whole or not at all, so something else has changed it"
            ) from error


def entry_path(topic: str, partition: int, start: int) -> str:
    return f"{FOLDER}/{topic}-{partition}-{start}.json"


def staged_path(topic: str, partition: int, start: int, number: int, token: str, kind: str) -> str:
    """Of file `number` of a batch that begins at `start`. `token` (32 hexadecimal digits) is new
    for each attempt to write it: a lost attempt may still be writing when the next one begins."""
    return f"{STAGING}/{topic}-{partition}-{start}-{number}-{token}.{kind}"


def chain_starts(files: Files, partition: TopicPartition) -> list[int]:
    """Where the entries of a partition begin, rising."""
    starts: list[int] = []
    for name in files.list(FOLDER):
        found = _ENTRY.fullmatch(name)
        if found and (found[1], int(found[2])) == partition:
            starts.append(int(found[3]))
    return sorted(starts)


def read_entry(files: Files, partition: TopicPartition, start: int) -> Entry | None:
    """None: there is none. Raises `ManifestError`."""
    path = entry_path(*partition, start)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    return Entry.from_json(data, path)


def read_chain(files: Files, partition: TopicPartition) -> list[Entry]:
    """The entries of a partition, in order."""
    found = (read_entry(files, partition, start) for start in chain_starts(files, partition))
    return [entry for entry in found if entry is not None]


class Manifest:
    """The manifest of one target folder, as one process works with it; one thread."""

    def __init__(self, files: Files, log: RecordLog, group: str) -> None:
        self._files = files
        self._log = log
        self._group = group

    def resume(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where to go on for each partition, after rolling forward what is committed."""
        committed = self._log.committed(self._group)
        starts: dict[TopicPartition, int] = {}
        for partition in partitions:
            last = self.roll_forward(partition, committed.get(partition))
            starts[partition] = committed.get(partition, 0) if last is None else last.end
        return starts

    def commit(self, entry: Entry) -> bool:
        """Commit a batch whose files are staged and durable.

        False: another process was first, or the batch does not begin where the chain ends. Its
        files are dropped; `resume` rolls the other forward and says where to go on.

        Raises:
            ManifestError: a file stands where one of the batch is to be published, and is of no
                batch at this start. Nothing was committed.
        """
        if self._may_follow(entry):
            self._check_names(entry)
            if self._files.create(entry.path, entry.to_json()):
                self._publish(entry)
                return True
        for staged, _ in entry.files:
            self._files.remove(staged)
        return False

    def roll_forward(self, partition: TopicPartition, committed: int | None) -> Entry | None:
        """Publish what is committed but may not be published yet; returns the last entry.

        Args:
            committed: the group's offset as it was before this call, None if there was none.
                Entries before it are published: an end is committed to the group after that.
        """
        last: Entry | None = None
        starts = chain_starts(self._files, partition)
        for start in starts:
            if start < (committed or 0) and start != starts[-1]:
                continue
            entry = read_entry(self._files, partition, start)
            if entry is None:
                continue  # removed by an alter of offsets while we looked
            last = entry
            if entry.end > (committed or 0):
                self._publish(entry)
        return last

    def last(self, partition: TopicPartition) -> Entry | None:
        """The last entry of a partition."""
        starts = chain_starts(self._files, partition)
        return read_entry(self._files, partition, starts[-1]) if starts else None

    def drop_leftovers(self) -> int:
        """Remove staged files that can never be committed any more; returns how many.

        A staged file may be dropped only when an entry exists at its start (so that no other can
        be created there) that does not name it. Files at the end of the chain stay, however old:
        their writer may be frozen, wake up and commit them.
        """
        dropped = 0
        for name in self._files.list(STAGING):
            found = _STAGED.fullmatch(name)
            if found is None:
                continue
            partition, start = (found[1], int(found[2])), int(found[3])
            entry = read_entry(self._files, partition, start)
            path = f"{STAGING}/{name}"
            if entry is not None and all(path != staged for staged, _ in entry.files):
                self._files.remove(path)
                dropped += 1
        return dropped

    # -- steps --

    def _may_follow(self, entry: Entry) -> bool:
        """Whether the chain ends where `entry` begins, or is empty. A chain only ever grows, so
        where that changes before the creation, the creation fails."""
        last = self.last((entry.topic, entry.partition))
        return last is None or last.end == entry.start

    def _check_names(self, entry: Entry) -> None:
        """The entry is looked for last: a process that was faster has made it before its files."""
        for _, final in entry.files:
            if self._files.exists(final) and not self._files.exists(entry.path):
                raise _name_is_taken(final)

    def _publish(self, entry: Entry) -> None:
        """Rename the staged files, then commit the end to the group; in that order, because
        an entry at or before the group's offset counts as published.

        Raises:
            ManifestError: a file that is none of the entry's stands where one is to be.
        """
        for staged, final in entry.files:
            if self._files.exists(final):
                # Published by another process, then; but a rename leaves nothing behind.
                if self._files.exists(staged):
                    raise _name_is_taken(final)
                continue
            try:
                self._files.rename(staged, final)
            except FileNotFoundError:
                # Another process was faster; or somebody has taken the published file away.
                continue
        if entry.files:
            # Also what another process has renamed: it may have been killed before it came here.
            self._files.sync("")
            self._files.sync(STAGING)
        self._log.commit_unguarded(self._group, {(entry.topic, entry.partition): entry.end})


def _name_is_taken(path: str) -> ManifestError:
    return ManifestError(
        f"{path} is there and is none of this sink's files: move it away, or give the connector "
        "another path"
    )


def alter(files: Files, partition: TopicPartition, offset: int | None) -> None:
    """Make the next batch of a partition begin at `offset` (None: where the group says, once its
    offset is deleted), on a connector that is stopped and has no process left: later entries go,
    with their files.

    Raises:
        ManifestError: `offset` lies inside a committed batch, whose files cannot be parted.
    """
    chain = read_chain(files, partition)
    wanted = 0 if offset is None else offset
    for entry in chain:
        if entry.start < wanted < entry.end:
            raise ManifestError(
                f"offset {wanted} of {partition[0]}-{partition[1]} lies inside a committed batch, "
                f"offsets {entry.start} to {entry.end - 1}, whose files cannot be parted: choose "
                f"{entry.start} or {entry.end}"
            )
    # From the end, files before their entry: a crash leaves a chain, and trying again finishes.
    for entry in reversed(chain):
        if entry.start >= wanted:
            for staged, final in entry.files:
                files.remove(final)
                files.remove(staged)
            files.remove(entry.path)
    kept = [entry for entry in chain if entry.start < wanted]
    if kept and kept[-1].end < wanted:
        # Records are passed over: an entry without files keeps the chain whole.
        last = kept[-1]
        bridge = Entry(*partition, last.end, wanted, (), 0, last.columns)
        files.create(bridge.path, bridge.to_json())
    if chain:
        files.sync(FOLDER)
        files.sync("")
