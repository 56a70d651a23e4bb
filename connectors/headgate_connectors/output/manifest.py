"""Which files of a folder are committed: the one truth of a sink that writes files itself.

    target/
      events-0-000000000000.parquet             a published file, for everybody to read
      city=Rome/events-0-000000000000.parquet   the same of a sink with partition.by
      _headgate/owner.json                      the connector that writes here
      _headgate/events-0-000000000000.json      entry: offsets from 0 on are in that file
      _headgate/staging/events-0-000000000500-<token>.parquet     written, not committed yet

The entries of a topic-partition are a chain: each begins where the one before it ends. A file
commits by the exclusive creation of its entry, which is named by its first offset. So of two tasks
that wrote the same records (one was frozen, say, and its partition given away) one commits, and the
other finds its entry and drops its file. Whoever finds an entry whose file is not published yet
renames it. Nothing is overwritten. The group's offsets only follow.

With ``partition.by`` an entry has a file in each folder for which there were records: they are
committed together, and published one after the other.

A published file that was deleted can be written anew, from the records of its entry's offsets: it
is staged, and linked to the name that the entry says. The entry stays as it is, and of two tasks
that do so one links its file.
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
    """The folder is not as the entries say. The message is for users."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Records of a topic-partition from `start` to before `end` are in `file`, `rows` of them."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    file: str
    staged: str
    """Path the file was written under, relative to the folder as `file` is."""
    more: Sequence[tuple[str, str]] = ()
    """`file` and `staged` of further files."""
    time: int | None = None
    """Timestamp of the record before `end`, in milliseconds."""

    @property
    def path(self) -> str:
        return f"{FOLDER}/{_name(self.topic, self.partition, self.start)}.json"

    @property
    def files(self) -> Sequence[tuple[str, str]]:
        """Each file, with the path it was written under."""
        return ((self.file, self.staged), *self.more)


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a topic-partition goes on."""

    end: int | None
    """Offset after the last entry; None: there is no entry."""
    last: Entry | None
    """The last entry, if its files are there."""
    gone: Sequence[Entry]
    """Entries of which a file is gone, by their offsets."""


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _name(topic: str, partition: int, start: int) -> str:
    return f"{topic}-{partition}-{start:012}"


class SinkManifest:
    """The manifest of one folder, as one task works with it; one thread."""

    def __init__(self, root: Path, ending: str) -> None:
        self.root = self._root = root
        self._ending = ending
        (root / STAGING).mkdir(parents=True, exist_ok=True)
        sync_folder(root)
        sync_folder(root / FOLDER)

    def claim(self, connector: str) -> None:
        """
        Raises:
            ManifestError: another connector writes to the folder.
        """
        _create(self._root, _OWNER, json.dumps({"connector": connector}).encode())
        owner = json.loads((self._root / _OWNER).read_bytes()).get("connector")
        if owner != connector:
            raise ManifestError(
                f"connector {owner} writes to {self._root}, expected {connector}: give each sink a "
                "path of its own"
            )

    def pin_partitions(self, text: str | None) -> None:
        """Write down, with the first file, how the folder is partitioned; None: it is not.

        Raises:
            ManifestError: it is partitioned in another way.
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
        """Entries of a topic-partition by their offsets.

        Raises:
            ManifestError: an entry that does not parse, or a gap between two.
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
        """Where to go on, and the entries whose files are gone.

        Publishes what is committed and not published yet, and drops staged files that can never be
        committed any more: those at whose offset another file was.
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
        """Folders, below the root, whose file of the entry is not there."""
        return [
            file.rpartition("/")[0] for file, _ in entry.files if not (self._root / file).exists()
        ]

    def stage(self, place: TopicPartition, start: int) -> str:
        """Path of a new file, relative to the folder."""
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
        """Commit staged files, whose content is durable: one for each folder below the root, or
        one for the root itself, which is the empty name.

        Returns:
            Their entry. None: files with the same first offset are committed already; `resume`
            drops these.

        Raises:
            ManifestError: a file that is none of the sink's stands where one is to be published.
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
        """Publish staged files, whose content is durable, in place of those of `entry` that are
        gone; each by its folder below the root."""
        finals = {file.rpartition("/")[0]: self._root / file for file, _ in entry.files}
        for folder, path in staged.items():
            final = finals[folder]
            _make_folders(self._root, final.parent)
            # Where it exists another task was faster, with the same records. Where it is not found
            # another task has dropped it, and the next `resume` finds it gone again.
            with suppress(FileExistsError, FileNotFoundError):
                os.link(self._root / path, final)
            sync_folder(final.parent)
            (self._root / path).unlink(missing_ok=True)
        sync_folder(self._root / STAGING)

    def _publish(self, entry: Entry) -> bool:
        """False: a file is not there, nor its staged one."""
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
    """What an entry has not is not written."""
    found = asdict(entry)
    if not entry.more:
        del found["more"]
    if entry.time is None:
        del found["time"]
    return found


def _make_folders(root: Path, folder: Path) -> None:
    """Make `folder` below `root`, and its name durable with those above it."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    while folder != root:
        folder = folder.parent
        sync_folder(folder)


def _create(root: Path, path: str, content: bytes) -> bool:
    """Create a file with its whole content, durably. False: it was there, and is as it was."""
    place = root / path
    draft = place.with_name(f".draft-{uuid.uuid4().hex}")
    try:
        write_durably(draft, content)
        os.link(draft, place)
    except FileExistsError:
        # A network file system that got no answer asks again, and is told that it is there.
        if not draft.samefile(place):
            return False
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(place.parent)
    return True


def write_durably(path: Path, content: bytes) -> None:
    """Create a file. Nothing of it is left where the disk is full."""
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise


def sync_folder(path: Path) -> None:
    """Make names that were made, moved or removed in the folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """None: there is no such file."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
