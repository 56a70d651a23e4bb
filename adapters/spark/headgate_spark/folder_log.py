"""Which batches are in a folder of files that Spark wrote: a chain of commits, each a file.

    target/
      day=2026-01-01/part-….parquet                published files, for everybody to read
      _headgate/commit-000000000012.json           commit 12: files, offsets, columns
      _headgate/staging/<token>/day=…/part-….parquet       written, not committed yet

A batch commits by the exclusive creation of the next commit. It names the offset that the batch
reaches for each topic-partition. Before that, the offsets of the commits so far are compared with
the offsets at which the batch begins. So if two processes wrote the same records, one commits. The
other finds that commit and drops its files.

Every process that reads the chain renames the staged files of its last commits to where readers
look. Nothing committed is overwritten. The first commit may name files that were there before: the
process that publishes it removes them.
"""

import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headgate.ports import TopicPartition
from headgate_spark.entries import FOLDER, STAGING
from headgate_spark.files import LocalFiles

_NAME: Final = "commit-{:012}.json"
_TOKEN: Final = re.compile(r"(.+)-(\d+)-(\d*)-[0-9a-f]{32}")
_SIDE: Final = ("_SUCCESS",)
"""Files that Spark writes beside the data."""
_BESIDE_DATA: Final = re.compile(r"_SUCCESS|_metadata|_common_metadata|\..+\.crc")
"""Files beside data of other writers, which are removed with it."""
_OURS: Final = re.compile(r"commit-\d+\.json|\.draft-.+|staging")
"""Names in the folder of the commits."""


class FolderError(Exception):
    """The folder is not as the commits say. The message is for users."""


@dataclass(frozen=True, slots=True)
class Commit:
    number: int
    connector: str
    offsets: Mapping[TopicPartition, int]
    files: Sequence[str]
    """Paths below the staging folder of the batch, and below the target once published."""
    token: str
    columns: str
    """Columns after this commit, in the form that `FolderLog` was given."""
    replaced: Sequence[str] = ()
    """Paths below the target of earlier files that this commit removes."""
    times: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    """Timestamps in milliseconds of the records before `offsets`."""

    def to_json(self) -> bytes:
        plain = {
            "connector": self.connector,
            "offsets": [[topic, number, end] for (topic, number), end in self.offsets.items()],
            "files": list(self.files),
            "token": self.token,
            "columns": self.columns,
            "replaced": list(self.replaced),
            "times": [[topic, number, time] for (topic, number), time in self.times.items()],
        }
        return json.dumps(plain, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, number: int, text: bytes, path: Path) -> "Commit":
        """Parse a commit. Raises `FolderError`."""
        try:
            plain = json.loads(text)
            offsets = {(topic, number): end for topic, number, end in plain["offsets"]}
            return cls(
                number,
                plain["connector"],
                offsets,
                plain["files"],
                plain["token"],
                plain["columns"],
                # Commits of earlier versions have none of these.
                plain.get("replaced", ()),
                {(topic, number): time for topic, number, time in plain.get("times", ())},
            )
        except (ValueError, KeyError, TypeError) as error:
            raise FolderError(f"{path} is no commit of a batch: {error}") from error


class FolderLog:
    """The commits of one folder, as one process works with them. For one thread."""

    def __init__(self, root: Path, connector: str) -> None:
        self._root = root
        self._connector = connector
        self._files = LocalFiles(root)
        self._next = 0
        self.offsets: dict[TopicPartition, int] = {}
        """Offsets that the commits so far have reached."""
        self.times: dict[TopicPartition, int | None] = {}
        """Timestamps in milliseconds of the records before those offsets."""
        self.columns = ""

    @property
    def has_begun(self) -> bool:
        """Whether a commit was read."""
        return self._next > 0

    def others(self) -> list[str]:
        """Return the paths of the files in the folder, without those with the commits."""
        found: list[str] = []
        for folder, folders, names in os.walk(self._root):
            below = Path(folder).relative_to(self._root)
            if folder == str(self._root):
                folders[:] = [name for name in folders if name != FOLDER]
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            found += [str(below / name) for name in [*names, *links]]
        return sorted(found)

    def replaceable(self, endings: Sequence[str]) -> list[str]:
        """Return `others`, each of which is a data file, or was written beside one.

        Raises:
            FolderError: a file is of another kind, so the folder may be no folder of data, or
                another sink of ours writes there.
        """
        for name in self._files.list(FOLDER):
            if not _OURS.fullmatch(name):
                raise FolderError(
                    f"write.mode is overwrite, and {self._root / FOLDER / name} says that another "
                    "sink writes to this folder: give the sink a path of its own"
                )
        found = self.others()
        for file in found:
            path = Path(file)
            partitions = all("=" in part for part in path.parent.parts)
            is_data = any(ending in path.suffixes for ending in endings)
            is_side = _BESIDE_DATA.fullmatch(path.name) is not None
            if not partitions or not (is_data or is_side) or (self._root / path).is_symlink():
                raise FolderError(
                    f"write.mode is overwrite, and {self._root / file} is not a file of rows that "
                    f"it could replace, expected names that end in {' or '.join(endings)}, in the "
                    "folder or in folders named column=value: move it away, or give the sink a "
                    "path of its own"
                )
        return found

    def read(self) -> None:
        """Read the new commits, and publish their files.

        Raises:
            FolderError: a commit is another connector's, or one of its files is gone.
        """
        if self._next == 0:
            names = self._files.list(FOLDER)
            last = max((name for name in names if name.startswith("commit-")), default="")
            if last and not self._files.exists(f"{FOLDER}/{_NAME.format(0)}"):
                raise FolderError(f"{self._root / FOLDER / _NAME.format(0)} is gone: put it back")
        while True:
            path = f"{FOLDER}/{_NAME.format(self._next)}"
            try:
                text = self._files.read(path)
            except FileNotFoundError:
                return
            commit = Commit.from_json(self._next, text, self._root / path)
            if commit.connector != self._connector:
                raise FolderError(
                    f"connector {commit.connector} writes to {self._root}, expected "
                    f"{self._connector}: give each sink a path of its own"
                )
            self._publish(commit)
            self.offsets.update(commit.offsets)
            self.times.update(dict.fromkeys(commit.offsets) | dict(commit.times))
            self.columns = commit.columns
            self._next += 1

    def token(self, starts: Mapping[TopicPartition, int | None]) -> str:
        """Return a new name for a batch that begins at `starts`."""
        (topic, partition), start = min(starts.items())
        return f"{topic}-{partition}-{'' if start is None else start}-{uuid.uuid4().hex}"

    def staging(self, token: str) -> Path:
        """Return the folder in which the files of a batch are written before it commits."""
        return self._root / STAGING / token

    def drop_leftovers(self) -> None:
        """Remove staged files that can never be committed any more: the folder has reached an
        offset other than the one at which they begin. Other files stay, because their writer may be
        frozen."""
        for name in self._files.list(STAGING):
            found = _TOKEN.fullmatch(name)
            if found is None:
                continue
            reached = self.offsets.get((found[1], int(found[2])))
            if reached != (int(found[3]) if found[3] else None):
                self.drop(name)

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        token: str,
        columns: str,
        replaced: Sequence[str] = (),
        times: Mapping[TopicPartition, int | None] | None = None,
    ) -> bool:
        """Commit the files in the staging folder of `token`, in place of the files `replaced`.
        Return False if another commit came first."""
        before = self._next
        try:
            files = self._durable(self.staging(token))
        except FileNotFoundError:
            self.read()
            if self._next == before:
                raise
            return False  # another process has committed its rows, and then dropped these files
        gone = sorted(set(replaced).difference(files))
        commit = Commit(
            self._next, self._connector, offsets, files, token, columns, gone, times or {}
        )
        if not self._files.create(f"{FOLDER}/{_NAME.format(self._next)}", commit.to_json()):
            return False
        self.read()
        return True

    def _durable(self, staging: Path) -> list[str]:
        """Make the files of a batch durable against a crash of the machine. Return them, below
        `staging`.

        Raises:
            FileNotFoundError: some are gone.
        """
        files = sorted(
            str(path.relative_to(staging))
            for path in staging.rglob("*")
            if path.is_file() and path.name not in _SIDE and not path.name.startswith(".")
        )
        for file in files:
            _sync(staging / file)
        for folder in [staging, *(path for path in staging.rglob("*") if path.is_dir())]:
            _sync(folder)
        self._files.sync(STAGING)
        return files

    def drop(self, token: str) -> None:
        shutil.rmtree(self.staging(token), ignore_errors=True)

    def _publish(self, commit: Commit) -> None:
        staging = self.staging(commit.token)
        if not staging.exists():
            return  # all of it was published before
        for file in commit.replaced:
            # The file's folder stays: another process may be publishing a file there.
            (self._root / file).unlink(missing_ok=True)
        for file in commit.files:
            final = self._root / file
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                (staging / file).rename(final)
            except FileNotFoundError:
                if not final.exists():
                    raise FolderError(
                        f"{final} was committed and is gone: put it back, or give the connector "
                        "another name and path to write everything anew"
                    ) from None
            _sync(final.parent)
        shutil.rmtree(staging, ignore_errors=True)


def _sync(path: Path) -> None:
    handle: Any = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
