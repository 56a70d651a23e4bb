"""DirectorySource: every file below a directory, each from its beginning to its end and on as it
grows, to one topic.

Source partition ``{"file": path relative to the directory}``; source offset ``{"position", "start",
"crc"}``: where the next record begins, and where the last one began and the CRC-32 of its bytes, by
which a file that was replaced or truncated is found out. Positions are bytes; of Parquet files rows
(and ``crc`` is that of the footer's end). Records of a file come in its order.

What is bad becomes a `SkippedRecord`, so the task follows `errors.tolerance`: with ``none`` it
fails and says which file and position; with ``all`` the piece is passed over, nothing else. A file
that cannot be read as a whole (replaced, truncated, corrupt, not allowed) is set aside until it
changes; a directory that is gone is waited for.
"""

import errno
import os
import time
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from headgate.connector.api import (
    ExactlyOnceSupport,
    Partition,
    SkippedRecord,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.validators import at_least, non_empty, one_of
from headgate_connectors.directory_formats import open_reader
from headgate_connectors.directory_reader import FileFault, NotReady, Reader, Row

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "lines",
    ".log": "lines",
}
SKIPPED_PREFIXES = (".", "_")
SKIPPED_SUFFIXES = (".tmp", ".part")

CONFIG = (
    ConfigDef()
    .define(
        "path",
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The directory; files in directories below it are read too.",
    )
    .define(
        "topic",
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The topic to publish data to",
    )
    .define(
        "format",
        Type.STRING,
        "auto",
        one_of("auto", "jsonl", "lines", "csv", "tsv", "parquet"),
        Importance.MEDIUM,
        "Format of all files; 'auto': by extension "
        f"({', '.join(f'{end} {name}' for end, name in FORMATS.items())}; others are left alone).",
    )
    .define(
        "batch.size",
        Type.INT,
        2000,
        at_least(1),
        Importance.LOW,
        "The maximum number of records the source task can read each time it is polled",
    )
    .define(
        "poll.interval.ms",
        Type.INT,
        500,
        at_least(1),
        Importance.LOW,
        "Time between two looks at the directory while there is nothing to read.",
    )
    .define(
        "file.settle.ms",
        Type.INT,
        1000,
        at_least(0),
        Importance.LOW,
        "How long a file must be still before a last line without a newline is read.",
    )
    .define(
        "records.per.second",
        Type.DOUBLE,
        0.0,
        at_least(0),
        Importance.LOW,
        "A limit for each task; 0 is none.",
    )
    .define(
        "json.check",
        Type.BOOLEAN,
        True,
        None,
        Importance.LOW,
        "Whether each line of JSON Lines must be one JSON value.",
    )
)

# What the connector adds to the configs of its tasks.
DIRECTORY = "headgate.directory"
TASK = "headgate.task"
TASKS = "headgate.tasks"


class State(Enum):
    """What is known of a file as it was when it was last read."""

    NEW = "new"
    READ = "read"
    """To its end."""
    TAIL = "tail"
    """To its end but for a last line without a newline."""
    UNFINISHED = "unfinished"
    """It cannot be opened yet."""
    ASIDE = "aside"
    """It is bad as a whole, or its last line is."""
    GONE = "gone"


_WAITING = (State.TAIL, State.UNFINISHED)


@dataclass(slots=True)
class _File:
    name: str
    """Path relative to the directory, with slashes."""
    path: Path
    format: str
    offset: Mapping[str, Any] | None
    partition: Partition = field(default_factory=dict)
    header: tuple[str, str] = ("", "")
    state: State = State.NEW
    signature: tuple[int, int, int] = (-1, 0, 0)
    """Size, time of change, inode."""
    still_since: float = 0.0
    settled: bool = False
    reader: Reader | None = None

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None


class DirectoryTask(SourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        settings = CONFIG.parse(config)
        self._shown = settings["path"]
        self._root = Path(config.get(DIRECTORY) or settings["path"]).absolute()
        self._task, self._tasks = int(config.get(TASK, "0")), int(config.get(TASKS, "1"))
        self._topic: str = settings["topic"]
        self._format: str = settings["format"]
        self._batch: int = settings["batch.size"]
        self._interval = settings["poll.interval.ms"] / 1000
        self._settle = settings["file.settle.ms"] / 1000
        self._check_json: bool = settings["json.check"]
        self._rate = _Rate(settings["records.per.second"])
        self._files: dict[str, _File] = {}
        self._queue: deque[_File] = deque()
        self._told: set[str] = set()
        self._bad_directories: set[str] = set()

    def poll(self) -> list[SourceRecord | SkippedRecord] | None:
        limit = self._allowed()
        if limit == 0:
            self.context.await_input()  # stopped or paused while it waited its turn
            return None
        result: list[SourceRecord | SkippedRecord] = []
        self._read_queue(limit, result)
        if result:
            return result
        self._look(result)
        self._read_queue(limit, result)
        if result:
            return result
        if any(file.state in _WAITING for file in self._files.values()):
            self.context.await_input()  # bytes are unread
            self.context.wait(min(self._interval, max(self._settle, 0.05)))
            return None
        self.context.wait(self._interval)
        return None

    def stop(self) -> None:
        for file in self._files.values():
            file.close()

    # -- looking --

    def _look(self, result: list[SourceRecord | SkippedRecord]) -> None:
        """Queue what there is to read."""
        now = time.monotonic()
        found = list(self._listed(result))
        self._learn([name for name, _ in found if name not in self._files])
        seen: set[str] = set()
        for name, stat in found:
            file = self._files[name]
            seen.add(name)
            self._judge(file, (stat.st_size, stat.st_mtime_ns, stat.st_ino), now)
        if "." not in self._bad_directories:
            for name, file in self._files.items():
                if name not in seen and file.state is not State.GONE:
                    self._lose(file, result)

    def _judge(self, file: _File, signature: tuple[int, int, int], now: float) -> None:
        if signature != file.signature:
            file.signature, file.still_since, file.settled = signature, now, False
            if signature[0] > 0 or file.offset is not None:  # emptied: opening it tells
                self._queue.append(file)
            else:
                file.state = State.READ
        elif file.state in _WAITING and not file.settled and not _is_parquet(file):
            file.settled = now - file.still_since >= self._settle
            if file.settled:
                self._queue.append(file)

    def _listed(
        self, result: list[SourceRecord | SkippedRecord]
    ) -> Iterator[tuple[str, os.stat_result]]:
        """The files of this task, by name. Every idle look passes here: cheap for what is known."""
        pending = [""]
        while pending:
            folder = pending.pop()
            try:
                entries = sorted(os.scandir(self._root / folder), key=lambda entry: entry.name)
            except OSError as error:
                self._report_directory(folder, error, result)
                continue
            if (folder or ".") in self._bad_directories:
                self._bad_directories.discard(folder or ".")
                self.context.log(f"directory {self._shown_path(folder)} is there again")
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(SKIPPED_PREFIXES):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append(name)
                elif name in self._files or self._is_mine(name):
                    try:
                        stat = entry.stat()
                    except OSError:
                        continue  # gone since the listing: the next one tells
                    if entry.is_file():
                        yield name, stat

    def _is_mine(self, name: str) -> bool:
        if name.endswith(SKIPPED_SUFFIXES):
            return False
        try:
            key = name.encode()
        except UnicodeEncodeError:
            self._tell_once(f"{name!r} is left alone: its name is not UTF-8")
            return False
        if zlib.crc32(key) % self._tasks != self._task:
            return False
        if self._format_of(name) is None:
            end = Path(name).suffix
            self._tell_once(f"files ending in {end!r} are left alone, such as {name}: set format")
            return False
        return True

    def _format_of(self, name: str) -> str | None:
        if self._format != "auto":
            return self._format
        return FORMATS.get(Path(name).suffix.lower())

    def _learn(self, names: Sequence[str]) -> None:
        """Files seen for the first time, with their committed source offsets."""
        partitions: list[Partition] = [{"file": name} for name in names]
        offsets = self.context.offsets.offsets(partitions) if partitions else []
        for name, partition, offset in zip(names, partitions, offsets, strict=True):
            format = self._format_of(name)
            assert format is not None  # _is_mine
            path = self._root / name
            header = ("headgate.file", name)
            self._files[name] = _File(name, path, format, offset, partition, header)

    # -- reading --

    def _read_queue(self, limit: int, result: list[SourceRecord | SkippedRecord]) -> None:
        while self._queue and len(result) < limit:
            file = self._queue[0]
            try:
                finished = self._read(file, limit - len(result), result)
            except FileFault as fault:
                finished = self._set_aside(file, str(fault), result)
            except NotReady as reason:
                file.close()
                # A header row alone is no data; other unfinished files keep their bytes unread.
                nothing = file.signature[0] == 0 or (file.settled and not _is_parquet(file))
                file.state = State.READ if nothing else State.UNFINISHED
                self._tell_once(f"{file.name} is awaited: {reason}")
                finished = True
            except FileNotFoundError:
                self._lose(file, result)
                finished = True
            except OSError as error:
                finished = self._set_aside(file, f"cannot be read: {error}", result)
            if finished:
                self._queue.popleft()

    def _read(self, file: _File, limit: int, result: list[SourceRecord | SkippedRecord]) -> bool:
        """True: the file is read to the end of what is there."""
        if file.reader is None:
            file.reader = open_reader(
                file.format, file.path, file.offset, check_json=self._check_json
            )
        rows = file.reader.read(limit, file.settled)
        self._emit(file, rows, result)
        if len(rows) >= limit and file.state is not State.ASIDE:
            return False
        if file.state is not State.ASIDE:
            file.state = State.TAIL if file.reader.has_tail else State.READ
        file.close()
        return True

    def _emit(
        self, file: _File, rows: list[Row], result: list[SourceRecord | SkippedRecord]
    ) -> None:
        file.state = State.NEW
        partition, topic, name, header = file.partition, self._topic, file.name, file.header
        append = result.append
        schema = None if file.reader is None else file.reader.schema
        for start, end, value, reason, crc in rows:
            if reason is None:
                offset = {"position": end, "start": start, "crc": crc}
                headers = (header, ("headgate.position", start))
                append(
                    SourceRecord(
                        *(partition, offset, topic, value, name, headers),
                        value_schema=schema,
                    )
                )
            elif end > start:
                offset = {"position": end, "start": start, "crc": crc}
                append(SkippedRecord(partition, offset, self._at(file, start, reason)))
            else:
                file.state = State.ASIDE
                known = file.offset if not result else _last_offset(file, result)
                append(_skipped(file, known, self._at(file, start, reason)))
        self._remember(file, rows)

    def _remember(self, file: _File, rows: list[Row]) -> None:
        for start, end, _, _, crc in reversed(rows):
            if end > start:
                file.offset = {"position": end, "start": start, "crc": crc}
                return

    def _at(self, file: _File, position: int, reason: str) -> str:
        unit = "row" if _is_parquet(file) else "byte"
        return f"{self._shown_path(file.name)} at {unit} {position}: {reason}"

    def _set_aside(
        self, file: _File, reason: str, result: list[SourceRecord | SkippedRecord]
    ) -> bool:
        file.close()
        file.state = State.ASIDE
        result.append(_skipped(file, file.offset, f"{self._shown_path(file.name)}: {reason}"))
        return True

    def _lose(self, file: _File, result: list[SourceRecord | SkippedRecord]) -> None:
        """A file is no longer there. That is nobody's fault if it was read to its end."""
        unread = file.state in (State.TAIL, State.UNFINISHED, State.NEW) and file.signature[0] > 0
        file.close()
        file.state = State.GONE
        file.signature = (-1, 0, 0)
        if unread:
            position = 0 if file.offset is None else file.offset.get("position")
            reason = self._at(file, position or 0, "vanished with bytes unread")
            result.append(_skipped(file, file.offset, reason))

    def _report_directory(
        self, folder: str, error: OSError, result: list[SourceRecord | SkippedRecord]
    ) -> None:
        if folder and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return  # its files are missed one by one
        name = folder or "."
        if name not in self._bad_directories:
            self._bad_directories.add(name)
            reason = f"directory {self._shown_path(folder)} cannot be listed: {error}"
            result.append(SkippedRecord({"file": name}, {"position": 0}, reason))

    def _shown_path(self, name: str) -> str:
        return f"{self._shown}/{name}" if name else self._shown

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self.context.log(message)

    def _allowed(self) -> int:
        """How many records the rate limit allows now, at least one; 0 when told to stop."""
        while True:
            allowed = self._rate.take(time.monotonic(), self._batch)
            if allowed:
                return allowed
            if self.context.wait(self._rate.pause):
                return 0


def _skipped(file: _File, offset: Mapping[str, Any] | None, reason: str) -> SkippedRecord:
    """Nothing is passed over: the offset is the one that the file has."""
    return SkippedRecord(file.partition, offset or {"position": 0}, reason)


def _last_offset(
    file: _File, result: list[SourceRecord | SkippedRecord]
) -> Mapping[str, Any] | None:
    last = result[-1]
    return last.source_offset if last.source_partition is file.partition else file.offset


def _is_parquet(file: _File) -> bool:
    return file.format == "parquet"


class _Rate:
    """A bucket that holds the records of a tenth of a second, or one record."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._held = 0.0
        self._size = max(1.0, per_second / 10)
        self._at: float | None = None
        self.pause = self._size / per_second if per_second else 0.0

    def take(self, now: float, wanted: int) -> int:
        if not self._per_second:
            return wanted
        if self._at is not None:
            self._held = min(self._size, self._held + (now - self._at) * self._per_second)
        self._at = now
        taken = min(wanted, int(self._held))
        self._held -= taken
        return taken


class DirectorySource(SourceConnector):
    """Reads every file below a directory, each from its beginning to its end and on as it grows.

    All tasks read one directory; a file belongs to the task whose number is the CRC-32 of its
    relative path modulo the count of tasks, so that new files need no new task configs.
    """

    VERSION = "0.1.0"
    TASK: ClassVar[type[SourceTask]] = DirectoryTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    @classmethod
    def alter_offsets(
        cls,
        config: Mapping[str, str],
        offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]],
    ) -> bool:
        """
        Raises:
            ConfigError: an offset without a position of 0 or more, or a partition without file.
        """
        for partition, offset in offsets:
            if offset is None:
                continue  # anything may be forgotten
            if not isinstance(partition.get("file"), str):
                raise ConfigError("Partition objects should contain the key 'file'")
            position = offset.get("position")
            if not isinstance(position, int) or isinstance(position, bool) or position < 0:
                raise ConfigError(
                    "Offset objects should either be null or contain the key 'position' with a "
                    f"whole number of 0 or more, not {position!r}"
                )
        return True

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        # Tasks may run elsewhere, with another working directory.
        directory = str(Path(self._config["path"].strip()).absolute())
        return [
            {**self._config, DIRECTORY: directory, TASK: str(task), TASKS: str(tasks_max)}
            for task in range(tasks_max)
        ]
