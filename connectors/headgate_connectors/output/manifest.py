"""The manifest: the entries that say which files of a sink's folder are committed.

    target/
      events-0-000000000000.parquet             a published file, for everybody to read
      city=Rome/events-0-000000000000.parquet   the same of a sink with partition.by
      _headgate/owner.json                      the connector that writes here
      _headgate/events-0-000000000000.json      entry: offsets from 0 on are in that file
      _headgate/staging/events-0-000000000500-<token>.parquet     written, not committed yet

The entries of a topic-partition are a chain: each begins where the one before it ends. A file is
committed by creating its entry exclusively. The entry is named by its first offset. So if two tasks
wrote the same records (one was frozen, say, and its partition was given away), one task commits.
The other finds that task's entry and drops its own file.

A task that finds an entry whose file is not published yet publishes it, by renaming the staged
file. Nothing is overwritten. The consumer group's offsets only follow the entries.

With ``partition.by`` an entry has a file in each folder for which there were records. The files are
committed together and published one after the other.

A published file that was deleted can be written again from the records between its entry's
offsets. The new file is staged, then linked to the name in the entry. The entry does not change. If
two tasks do this, one of them links its file.
"""

import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from headgate.ports import TopicPartition

FOLDER: Final = "_headgate"
STAGING: Final = f"{FOLDER}/staging"
_OWNER: Final = f"{FOLDER}/owner.json"
_PARTITIONS: Final = f"{FOLDER}/partitions.json"
_ENTRY: Final = re.compile(r"-\d{12,}\.json$")
_STAGED: Final = re.compile(r"(.+)-(\d+)-(\d+)-[0-9a-f]{32}\.\w+")


class ManifestError(Exception):
    """The folder contradicts its entries or the sink's config. The message is for users."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry: the records of a topic-partition from offset `start` to before `end` are in `file`
    and `more`, as `rows` rows."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    file: str
    staged: str
    """Path at which the file was written before it was published. It is relative to the folder,
    like `file`."""
    more: Sequence[tuple[str, str]] = ()
    """`file` and `staged` of each further file."""
    time: int | None = None
    """Timestamp of the last record before `end`, in milliseconds."""

    @property
    def path(self) -> str:
        return f"{FOLDER}/{_name(self.topic, self.partition, self.start)}.json"

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """Each file, with the path at which it was staged."""
        return ((self.file, self.staged), *self.more)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a task continues with a topic-partition."""

    end: int | None
    """Offset after the last entry. None: there is no entry."""
    last: Entry | None
    """The last entry, if all of its files exist."""
    gone: Sequence[Entry]
    """Entries that have lost a file, sorted by offset."""


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _name(topic: str, partition: int, start: int) -> str:
    return f"{topic}-{partition}-{start:012}"


class SinkManifest:
    """The manifest of one folder, as one task uses it. It must stay on one thread."""

    def __init__(self, root: Path, ending: str) -> None:
        self.root = self._root = root
        self._ending = ending
        (root / STAGING).mkdir(parents=True, exist_ok=True)
        sync_folder(root)
        sync_folder(root / FOLDER)

    def claim(self, connector: str) -> None:
        """Claim the folder for `connector`, unless it was claimed before.

        Raises:
            ManifestError: another connector has claimed the folder.
        """
        _create(self._root, _OWNER, json.dumps({"connector": connector}).encode())
        owner = json.loads((self._root / _OWNER).read_bytes()).get("connector")
        if owner != connector:
            raise ManifestError(
                f"connector {owner} writes to {self._root}, expected {connector}: give each sink a "
                "path of its own"
            )

    def pin_partitions(self, text: str | None) -> None:
        """Note how the folder is partitioned, if it has no entries yet, or check it against the
        note.

        Args:
            text: the settings from `pin_text`. None: the folder is not partitioned.

        Raises:
            ManifestError: the folder is partitioned in another way.
        """
        known = self._root / _PARTITIONS
        if text is not None and (known.exists() or not self._has_entries()):
            _create(self._root, _PARTITIONS, text.encode())
        was = known.read_text() if known.exists() else None
        if was != text:
            raise ManifestError(
                f"{self._root} is partitioned by {was or 'nothing'}, expected {text or 'nothing'}: "
                "readers take it for one table, so give the connector another name and path"
            )

    def _has_entries(self) -> bool:
        return any(_ENTRY.search(name) for name in _names(self._root / FOLDER))

    def entries(self, place: TopicPartition) -> list[Entry]:
        """Return the entries of a topic-partition, sorted by offset.

        Raises:
            ManifestError: an entry cannot be parsed, or there is a gap between two entries.
        """
        topic, partition = place
        named = re.compile(re.escape(f"{topic}-{partition}-") + r"\d+\.json")
        found = [self._entry(name) for name in _names(self._root / FOLDER) if named.fullmatch(name)]
        found.sort(key=lambda entry: entry.start)
        for one, after in pairwise(found):
            if one.end != after.start:
                raise ManifestError(
                    f"{self._root / after.path} begins at offset {after.start} of {topic}-"
                    f"{partition}, expected {one.end}: an entry between was removed"
                )
        return found

    def _entry(self, name: str) -> Entry:
        path = self._root / FOLDER / name
        try:
            return Entry(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise ManifestError(f"{path} is no entry of a file: {error}") from error

    def resume(self, place: TopicPartition) -> Resumed:
        """Return where to continue, and the entries that have lost files.

        It publishes files that are committed but not published yet. It drops staged files that can
        never be committed, since another file was committed at their first offset.
        """
        entries = self.entries(place)
        gone = [entry for entry in entries if self.missing(entry) and not self._publish(entry)]
        by_start = {entry.start: {staged for _, staged in entry.files} for entry in entries}
        for name in _names(self._root / STAGING):
            match = _STAGED.fullmatch(name)
            if match is None or (match[1], int(match[2])) != place:
                continue
            path = f"{STAGING}/{name}"
            if path not in by_start.get(int(match[3]), (path,)):
                (self._root / path).unlink(missing_ok=True)
        if not entries:
            return Resumed(None, None, ())
        last = entries[-1]
        return Resumed(last.end, None if gone and gone[-1] == last else last, gone)

    def exists(self) -> bool:
        return (self._root / STAGING).is_dir()

    def missing(self, entry: Entry) -> list[str]:
        """Return the folders, relative to the root, in which the entry's file does not exist."""
        return [
            file.rpartition("/")[0] for file, _ in entry.files if not (self._root / file).exists()
        ]

    def stage(self, place: TopicPartition, start: int) -> str:
        """Return the path of a new staged file, relative to the root."""
        name = _name(*place, start)
        return f"{STAGING}/{name}-{uuid.uuid4().hex}.{self._ending}"

    def commit(
        self,
        place: TopicPartition,
        start: int,
        end: int,
        rows: int,
        staged: Mapping[str, str],
        time: int | None = None,
    ) -> Entry | None:
        """Commit staged files, whose content must be durable.

        Args:
            staged: path of each file by its folder relative to the root. The empty name is the
                root itself.

        Returns:
            The entry of the files. None: files with the same first offset are committed already.
            Then `resume` drops the staged ones.

        Raises:
            ManifestError: where a file is to be published there is a file that is not the sink's.
        """
        name = f"{_name(*place, start)}.{self._ending}"
        files = [(f"{folder}/{name}" if folder else name, path) for folder, path in staged.items()]
        entry = Entry(*place, start, end, rows, *files[0], files[1:], time)
        if not (self._root / entry.path).exists():
            for final, _ in files:
                if (self._root / final).exists():
                    raise ManifestError(
                        f"{self._root / final} is there and is none of this sink's files: move it "
                        "away, or give the connector another path"
                    )
        sync_folder(self._root / STAGING)
        if not _create(self._root, entry.path, json.dumps(_plain(entry)).encode()):
            return None
        self._publish(entry)
        return entry

    def refill(self, entry: Entry, staged: Mapping[str, str]) -> None:
        """Publish staged files in place of the missing files of `entry`.

        Args:
            staged: path of each file by its folder relative to the root. The content must be
                durable.
        """
        finals = {file.rpartition("/")[0]: self._root / file for file, _ in entry.files}
        for folder, path in staged.items():
            final = finals[folder]
            _make_folders(self._root, final.parent)
            # FileExistsError: another task was faster, with the same records. FileNotFoundError:
            # another task has dropped the staged file, and the next `resume` finds the file missing
            # again.
            with suppress(FileExistsError, FileNotFoundError):
                os.link(self._root / path, final)
            sync_folder(final.parent)
            (self._root / path).unlink(missing_ok=True)
        sync_folder(self._root / STAGING)

    def _publish(self, entry: Entry) -> bool:
        """Publish the files of an entry. Returns False if a file exists neither under its name nor
        staged."""
        whole = True
        for file, staged in entry.files:
            final = self._root / file
            if final.parent != self._root:
                _make_folders(self._root, final.parent)
            try:
                (self._root / staged).rename(final)
            except FileNotFoundError:
                whole = whole and final.exists()  # another task was faster
            else:
                sync_folder(final.parent)
        sync_folder(self._root / STAGING)
        return whole


def _plain(entry: Entry) -> dict[str, Any]:
    """Return the JSON members of an entry, without those that are empty."""
    found = asdict(entry)
    if not entry.more:
        del found["more"]
    if entry.time is None:
        del found["time"]
    return found


def _make_folders(root: Path, folder: Path) -> None:
    """Create `folder` below `root`, and make its name and those of its parents durable."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    while folder != root:
        folder = folder.parent
        sync_folder(folder)


def _create(root: Path, path: str, content: bytes) -> bool:
    """Create a file with its whole content, durably. Returns False if the file existed. Then it is
    unchanged."""
    place = root / path
    draft = place.with_name(f".draft-{uuid.uuid4().hex}")
    try:
        write_durably(draft, content)
        os.link(draft, place)
    except FileExistsError:
        # A network file system that got no answer sends the request again. Then the error may be
        # about our own link.
        if not draft.samefile(place):
            return False
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(place.parent)
    return True


def write_durably(path: Path, content: bytes) -> None:
    """Create a file with `content` on disk. If that fails (the disk is full, say), the file is
    removed."""
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise


def sync_folder(path: Path) -> None:
    """Make the creation, renaming and removal of names in the folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file, or None if the file does not exist."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
