"""Entries of a manifest, which are committed batches of one topic-partition, and the names of all
files kept with them. See `headgate_spark.manifest`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.ports import TopicPartition
from headgate_spark.files import Files

FOLDER = "_headgate"
STAGING = "_headgate/staging"
VERSION = 1
ENTRY_NAME = re.compile(r"(.+)-(\d+)-(\d+)(?:\.(\d+))?\.json")
"""Name of an entry. Groups: topic, partition, start, era if it is not 0."""
PUBLISHED_NAME = re.compile(r"(.+)-(\d+)-(\d+)-(\d+)(?:\.(\d+))?\.[a-z]+")
"""Name of a published file. Groups: topic, partition, start, number, era if it is not 0."""
DRAFT_NAME = re.compile(r"\.draft-(\d+)-.+")
"""Name of a draft, which may become an entry. Group: era."""
STAGED_NAME = re.compile(r"(.+)-(\d+)-(\d+)-\d+-[0-9a-f]{32}\.[a-z]+")


class ManifestError(Exception):
    """The manifest was not written by this version, or unknown files are where the sink's own are
    to be."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed batch of one topic-partition. Its key in the target is `path`."""

    topic: str
    partition: int
    start: int
    end: int
    """Offset after the last record, which is the next entry's start."""
    files: tuple[tuple[str, str], ...]
    """Staged path and published path of each file, in order of offsets."""
    records: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    """Columns and kinds (`headgate_spark.columns`) known at the end of this batch, in order."""
    era: int = 0
    """How often users had altered offsets before (`headgate_spark.alterations`)."""
    last_record: tuple[int, int] | None = None
    """Offset and timestamp in ms of the last record before `end`; None: not known."""

    @property
    def path(self) -> str:
        return entry_path(self.topic, self.partition, self.start, self.era)

    @property
    def staged(self) -> tuple[str, ...]:
        return tuple(staged for staged, _ in self.files)

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
            "era": self.era,
            "last_record": self.last_record,
        }
        return json.dumps(plain, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> "Entry":
        """Parse an entry. Raises `ManifestError`."""
        try:
            plain = of_this_version(json.loads(data), path)
            last = plain.get("last_record")  # entries of earlier versions have none
            return cls(
                plain["topic"],
                plain["partition"],
                plain["start"],
                plain["end"],
                tuple((staged, final) for staged, final in plain["files"]),
                plain["records"],
                plain["columns"],
                plain.get("era", 0),
                None if last is None else (int(last[0]), int(last[1])),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(
                f"{path} is no entry of a manifest ({type(error).__name__}: {error}); Headgate "
                "wrote it whole or not at all, so something else has changed it"
            ) from error


def of_this_version(plain: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return `plain` if this version wrote it. Raises `ManifestError`."""
    if plain["version"] != VERSION:
        raise ManifestError(
            f"{path} has version {plain['version']!r}, expected {VERSION}: it was written by "
            "another version of Headgate"
        )
    return plain


def entry_path(topic: str, partition: int, start: int, era: int) -> str:
    return f"{FOLDER}/{topic}-{partition}-{start}{_suffix(era)}.json"


def published_path(topic: str, partition: int, start: int, number: int, era: int, kind: str) -> str:
    """Return the path of file `number` of a batch that begins at `start`."""
    return f"{topic}-{partition}-{start}-{number}{_suffix(era)}.{kind}"


def staged_path(topic: str, partition: int, start: int, number: int, token: str, kind: str) -> str:
    """Return the staged path of file `number` of a batch that begins at `start`. `token` (32 hex
    digits) is new for each attempt: a lost attempt may still be writing when the next one
    begins."""
    return f"{STAGING}/{topic}-{partition}-{start}-{number}-{token}.{kind}"


def draft_prefix(era: int) -> str:
    return f"{FOLDER}/.draft-{era}-"


def read_entry(files: Files, partition: TopicPartition, start: int, era: int) -> Entry | None:
    """Return the entry, or None if there is none. Raises `ManifestError`."""
    path = entry_path(*partition, start, era)
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    return Entry.from_json(data, path)


def _suffix(era: int) -> str:
    return f".{era}" if era else ""
