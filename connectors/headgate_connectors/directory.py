"""DirectorySource: every file below a directory, each from its beginning to its end and on as it
grows, to one topic or to one that its path gives.

Source partition ``{"file": path relative to the directory}``, and of a renamed file ``was``, its
first name; source offset ``{"position", "start", "crc", "prefix", "stat", "heads"}``: where the
next record begins, and by what the file is known (see `headgate_connectors.files.input`).
Positions are bytes, in a compressed file those of its content; of Parquet files rows. Records of a
file come in its order.

A bad record becomes a `SkippedRecord` with `errors.tolerance` = all. Otherwise, and where a file
cannot be read on at all, the file is set aside and the others are read (`on.bad.file`); it is tried
again when it changes and when the task restarts. A directory that is gone is waited for.
"""

import errno
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from headgate.connector.api import (
    DataError,
    ExactlyOnceSupport,
    Partition,
    RetriableError,
    SkippedRecord,
    SourceConnector,
    SourceItem,
    SourceRecord,
    SourceTask,
)
from headgate.connector.batches import RowNumbers, RowOffsets, SourceBatch
from headgate.connector.config import ConfigDef
from headgate.connector.secret_keys import without_login
from headgate_connectors.files.claims import FileClaims, claims_folder
from headgate_connectors.files.file_tree import (
    OPTION,
    Entry,
    Kind,
    address_fault,
    is_remote,
    kind_of,
    local_path,
    open_tree,
)
from headgate_connectors.files.inferred_types import CSV_FORMATS, InferredTypes, before_good
from headgate_connectors.files.input import stat_text
from headgate_connectors.files.known_files import (
    WAITING,
    File,
    State,
    check_altered,
    may_be_renamed,
    partition_of,
)
from headgate_connectors.files.owners import Known, Owners
from headgate_connectors.files.rate import Rate
from headgate_connectors.files.reader import (
    FileFault,
    NotReady,
    ReplacedError,
    Row,
    RowBatch,
    ShrunkError,
)
from headgate_connectors.files.renamed import RenamedFiles
from headgate_connectors.files.server import UnreachableError
from headgate_connectors.files.source_config import (
    CONFIG,
    SKIPPED_PREFIXES,
    Choice,
    config_errors,
    read_options,
)
from headgate_connectors.formats.readers import open_reader
from headgate_connectors.formats.text_checks import is_utf8

# What the connector adds to the configs of its tasks.
DIRECTORY = "headgate.directory"
TASK = "headgate.task"
TASKS = "headgate.tasks"

BATCH_ROWS = 65_536
"""Rows of one poll where they go as batches, unless ``batch.size`` is set."""
Polled: TypeAlias = SourceItem | SourceBatch


class BadFileError(DataError):
    """A file cannot be read on, and `on.bad.file` or `on.replace` is fail."""


class DirectoryTask(SourceTask):
    def start(self, config: Mapping[str, str]) -> None:
        settings = CONFIG.parse(config)
        self._shown = without_login(settings["path"])
        directory = config.get(DIRECTORY) or local_path(settings["path"])
        self._tree = open_tree(settings["path"], directory, config)
        self._task = int(config.get(TASK, "0"))
        tasks = int(config.get(TASKS, "1"))
        folder = claims_folder(self.context.cluster, config.get("name", ""), directory)
        self._claims = FileClaims(folder, self._task, self.context.log)
        self._owners = Owners(self._task, tasks, self._claims if tasks > 1 else None)
        self._choice = Choice(settings)
        self._options = read_options(settings)
        self._tolerate = config.get("errors.tolerance", "none").strip().lower() == "all"
        self._keeps = bool(config.get("errors.deadletterqueue.topic.name", "").strip())
        self._fails: bool = settings["on.bad.file"] == "fail"
        self._on_replace: str = settings["on.replace"]
        self._batch: int = settings["batch.size"]
        self._by_batch, keeps = self.context.takes_batches, self.context.keeps_batches
        self._most = BATCH_ROWS if keeps and "batch.size" not in config else self._batch
        self._rows = 0
        """Rows of the poll under way that are in batches, beyond one of each."""
        self._interval = settings["poll.interval.ms"] / 1000
        self._settle = settings["file.settle.ms"] / 1000
        read = self._options, self._choice, self._tree, self._task
        self._inferred = InferredTypes(*read, self._settle)
        self._rate = Rate(settings["records.per.second"])
        self._files: dict[str, File] = {}
        self._queue: deque[File] = deque()
        self._renamed = RenamedFiles(self._files, self._options)
        self._told: set[str] = set()
        self._bad_directories: set[str] = set()
        self._aside: dict[str, str] = {}
        """Files that are not read, with the reason."""
        self._left: frozenset[str] = frozenset()
        """Names in `_aside` of what is never read, whatever is in it."""

    def poll(self) -> list[Polled] | None:
        limit = self._rate.allowed(self.context, self._most)
        if limit == 0:
            self.context.await_input()  # stopped or paused while it waited its turn
            return None
        result: list[Polled] = []
        self._rows = 0
        self._read_queue(limit, result)
        if not result:
            try:
                self._look(result)
            except UnreachableError as error:
                self._try_again(error, result)
            self._read_queue(limit, result)
        self.context.quarantine(list(self._aside.values()))
        if result:
            return result
        if self._owners.awaited or any(one.state in WAITING for one in self._files.values()):
            self.context.await_input()  # bytes are unread
            self.context.wait(min(self._interval, max(self._settle, 0.05)))
            return None
        self.context.wait(self._interval)
        return None

    def stop(self) -> None:
        for file in self._files.values():
            file.close()
        self._tree.close()
        self._claims.close()

    # -- looking --

    def _look(self, result: list[Polled]) -> None:
        """Queue what there is to read."""
        now = time.monotonic()
        entries = dict(self._listed(result))
        inodes = {
            name: 0 if entry.is_symlink() else entry.inode() for name, entry in entries.items()
        }
        self._renamed.look(inodes)
        read = self.context.offsets, self._files, self._renamed.let_go
        self._learn(self._owners.learn(inodes, *read))
        seen: set[str] = set()
        for name, entry in entries.items():
            file = self._files.get(name)
            if file is None:
                continue
            if name in self._owners.awaited:
                seen.add(name)
                self._tell_once(f"{name} is awaited: another task reads it under another name")
                continue
            try:
                stat = entry.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue  # gone since the listing: the next one tells
            except (NotReady, OSError) as reason:  # such as a folder that lets nobody pass
                seen.add(name)
                file.signature = (-1, 0, 0)  # read as soon as it can be looked at
                if name not in self._aside:
                    self._set_aside(file, f"{self._shown_path(name)}: {reason}")
                continue
            seen.add(name)
            if file.renamed and file.state is State.NEW and not may_be_renamed(stat, file.offset):
                self._renamed.reject(file)
            self._judge(file, (stat.st_size, stat.st_ctime_ns, stat.st_ino), now)
        if self._options.infers:
            self._options = self._inferred.look(self.context, entries, now, result)
        # Before the file that has the old name now is read.
        self._queue = deque(sorted(self._queue, key=lambda file: not file.renamed))
        if "." not in self._bad_directories:
            for name, file in self._files.items():
                if name not in seen and file.state is not State.GONE:
                    self._lose(file, inodes)

    def _judge(self, file: File, signature: tuple[int, int, int], now: float) -> None:
        if signature != file.signature:
            file.deferred = file.awaits_growth(signature, now)
            file.signature, file.still_since, file.settled = signature, now, False
            self._aside.pop(file.name, None)
            if signature[0] == 0 and file.offset is None:
                file.state = State.READ
            elif not file.deferred:
                self._queue.append(file)  # emptied: opening it tells
        elif file.state in WAITING and not file.settled and now - file.still_since >= self._settle:
            file.settled = self.context.until_idle
            if file.settled or file.deferred:
                self._queue.append(file)
            file.deferred = False

    def _listed(self, result: list[Polled]) -> Iterator[tuple[str, Entry]]:
        """The files that are read, by name. Every idle look passes here: cheap for what is
        known."""
        pending, left = [""], dict[str, str]()
        while pending:
            folder = pending.pop()
            try:
                entries = self._tree.scan(folder)
            except OSError as error:
                self._report_directory(folder, error, result)
                continue
            if (folder or ".") in self._bad_directories:
                self._bad_directories.discard(folder or ".")
                self._aside.pop(f"{folder}/", None)
                self.context.log(f"directory {self._shown_path(folder)} is there again")
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(SKIPPED_PREFIXES):
                    continue
                kind = kind_of(entry)
                if kind is Kind.FOLDER:
                    pending.append(name)
                elif kind is Kind.LINK_TO_FOLDER:
                    text = "is a symbolic link, which is not followed: give path its target"
                    left[f"{name}/"] = f"directory {self._shown_path(name)} {text}"
                elif not (name.isascii() or is_utf8(name)) and self._choice.takes(name):
                    left[name] = f"{self._shown_path(repr(name))} is not read: no UTF-8 in its name"
                elif name in self._files or self._is_read(name):
                    if kind is Kind.FILE:
                        yield name, entry
                    elif name not in self._files:
                        text = "is left alone: it is no regular file, and no link to one"
                        self._tell_once(f"{name} {text}")
        self._leave(left)

    def _leave(self, left: dict[str, str]) -> None:
        """Set aside what is never read, by name, and nothing else any more."""
        for name in self._left - left.keys():
            self._aside.pop(name, None)
        for name in left.keys() - self._left:
            self.context.log(f"set aside {left[name]}")
        self._aside.update(left)
        self._left = frozenset(left)

    def _is_read(self, name: str) -> bool:
        if not self._choice.takes(name):
            return False
        kind = self._choice.kind(name)
        if isinstance(kind, str):
            self._tell_once(kind)
            return False
        return True

    def _learn(self, names: Sequence[tuple[str, Known]]) -> None:
        """Files of this task that are seen for the first time, or under another name."""
        for name, known in names:
            if (former := self._files.pop(name, None)) is not None:
                self._renamed.forget(former)
                self._aside.pop(name, None)
                self._queue = deque([one for one in self._queue if one is not former])
            if known.owner != self._task:
                continue
            kind = self._choice.kind(name)
            assert not isinstance(kind, str)  # _is_read
            file = File(name, self._tree.path(name), kind, known.offset, known.was, known.renamed)
            file.was_last, file.own = known.was_last, known.own
            if file.renamed:
                self._renamed.add(file)
            file.partition, file.header = partition_of(name, known.was), ("headgate.file", name)
            self._files[name] = file

    # -- reading --

    def _read_queue(self, limit: int, result: list[Polled]) -> None:
        while self._queue and len(result) < self._batch:
            left = limit - len(result) - self._rows
            if left <= 0:
                return
            file = self._queue[0]
            try:
                finished = self._read(file, left, result)
            except (ReplacedError, ShrunkError) as fault:
                finished = self._replaced(file, fault, result)
            except FileFault as fault:
                finished = self._set_aside(file, f"{self._shown_path(file.name)}: {fault}")
            except NotReady as reason:
                finished = self._await(file, reason)
            except UnreachableError as error:
                file.close()
                self._try_again(error, result)
                return
            except FileNotFoundError:
                self._lose(file, {})
                finished = True
            except OSError as error:
                reason_text = f"{self._shown_path(file.name)}: cannot be read: {error}"
                finished = self._set_aside(file, reason_text)
            if finished:
                self._queue.popleft()

    def _read(self, file: File, limit: int, result: list[Polled]) -> bool:
        """True: the file is read to the end of what is there."""
        if file.reader is None:
            if self._inferred.awaited and file.kind.format in CSV_FORMATS:
                file.state = State.UNFINISHED
                return file.look_again()
            file.topic = self._choice.topic(file.name)
            if not file.renamed and self._renamed.comes_from(file.name):
                return file.look_again()
            if file.signature[0] == 0 and file.offset is not None:
                self._begin_anew(file, result, "was emptied")
                file.state = State.READ
                return True
            place = file.kind.format, file.path, file.offset
            try:
                file.reader = open_reader(*place, file.kind.compression, self._options)
            except (ReplacedError, ShrunkError):
                raise
            except (FileFault, NotReady, OSError):
                if file.renamed and file.is_as_listed:
                    result += self._renamed.taken_over(file)  # its old name waits for that
                raise
            if not file.is_as_listed:
                return file.look_again()
            if file.renamed:
                result += self._renamed.taken_over(file)
                self.context.log(
                    f"{self._shown_path(file.was_last)} is {file.name} now, and is read on from "
                    "there"
                )
        room = min(limit, self._batch - len(result))
        if room <= 0:
            return False  # no rows would seem the end of the file
        if self._by_batch and (batch := file.reader.read_batch(limit)) is not None:
            if self._tree.is_remote:
                self._check_remote(file, batch.last)
            self._emit_batch(file, batch, result)
            return False
        rows, count = file.reader.read(room, file.settled), 0
        if self._options.infers and file.kind.format in CSV_FORMATS:
            rows, count = before_good(rows), len(rows)
        # Not by the half-written end of the file, which is not passed over and has no checksum.
        whole = next((row for row in reversed(rows) if row.end > row.start), None)
        if whole is not None and self._tree.is_remote:
            self._check_remote(file, whole.members)
        self._emit(file, rows, result)
        if file.state is State.ASIDE:
            file.close()
            return True
        if len(rows) < count:  # good rows came since the look: the next one finds their types
            file.state = State.UNFINISHED
            return file.look_again()
        if rows:
            return False
        file.state = State.TAIL if file.reader.has_tail else State.READ
        file.tried = file.signature[0], time.monotonic()
        file.close()
        return True

    def _check_remote(self, file: File, last: Mapping[str, Any]) -> None:
        """A remote file may be replaced while it is read, and parts of both be read for one. So one
        that has changed is opened anew behind the rows, which compares what is before them.

        Args:
            last: members of the source offset after the last row.

        Raises:
            ReplacedError, ShrunkError, NotReady: as `open_reader`. The rows count for nothing.
        """
        assert file.reader is not None
        if stat_text(file.path.stat()) == file.reader.marks["stat"]:
            return
        offset = {**last, **file.reader.marks}
        kind = file.kind
        file.close()
        file.reader = open_reader(kind.format, file.path, offset, kind.compression, self._options)

    def _try_again(self, error: UnreachableError, result: list[Polled]) -> None:
        """After what has been read before it has been given away.

        Raises:
            RetriableError: nothing has.
        """
        if not result:
            raise RetriableError(f"cannot be reached, and is tried again: {error}") from error

    def _await(self, file: File, reason: NotReady) -> bool:
        file.close()
        if file.settled and file.signature[0] > 0 and not file.may_be_header_alone:
            return self._set_aside(file, f"{self._shown_path(file.name)}: {reason}")
        # A header row alone is no data; other unfinished files keep their bytes unread.
        nothing = file.signature[0] == 0 or file.settled
        file.state = State.READ if nothing else State.UNFINISHED
        self._tell_once(f"{file.name} is awaited: {reason}")
        return True

    def _emit_batch(self, file: File, batch: RowBatch, result: list[Polled]) -> None:
        file.state = State.NEW
        assert file.reader is not None
        schema = file.reader.schema
        assert schema is not None
        offsets = RowOffsets(batch.numbers, {**batch.shared, **file.reader.marks})
        headers = (file.header, ("headgate.position", RowNumbers(batch.numbers["start"])))
        result.append(
            SourceBatch(
                *(file.partition, offsets, file.topic, batch.values, schema, file.name, headers)
            )
        )
        self._rows += len(offsets) - 1
        file.offset = dict(offsets[-1])

    def _emit(self, file: File, rows: list[Row], result: list[Polled]) -> None:
        file.state = State.NEW
        assert file.reader is not None
        partition, topic, name, header = file.partition, file.topic, file.name, file.header
        marks = file.reader.marks
        append, offset, schema = result.append, file.offset, file.reader.schema
        for start, end, value, reason, crc, prefix, lost in rows:
            if end > start and (reason is None or self._tolerate or self._fails):
                known = {} if prefix is None else {"prefix": prefix}
                offset = {"position": end, "start": start, "crc": crc, **known, **marks}
            if reason is None:
                headers = (header, ("headgate.position", start))
                append(
                    SourceRecord(
                        *(partition, offset or {}, topic, value, name, headers),
                        value_schema=schema,
                    )
                )
            elif end > start and (self._tolerate or self._fails):
                where = self._at(file, start, reason)
                raw = file.raw(start, end) if self._keeps else None
                append(SkippedRecord(partition, offset or {}, where, lost, raw))
            else:
                self._set_aside(file, self._at(file, start, reason))
                break
        file.offset = offset

    def _at(self, file: File, position: int, reason: str) -> str:
        unit = "row" if file.counts_rows else "byte"
        return f"{self._shown_path(file.name)} at {unit} {position}: {reason}"

    # -- what is not as it was --

    def _set_aside(self, file: File, reason: str) -> bool:
        """
        Raises:
            BadFileError: with `on.bad.file` = fail.
        """
        if self._fails:
            raise BadFileError(f"{reason}; mend it, or let on.bad.file = quarantine set it aside")
        file.close()
        file.state = State.ASIDE
        self._aside[file.name] = reason
        self.context.log(
            f"set aside {reason}. The other files are read; this one is tried again when it "
            "changes and when the task restarts"
        )
        return True

    def _replaced(
        self, file: File, fault: ReplacedError | ShrunkError, result: list[Polled]
    ) -> bool:
        """Do what `on.replace` says about a file that is not the one that was read."""
        file.close()
        if not file.is_as_listed:
            return file.look_again()
        if file.renamed:
            self._renamed.reject(file)
            return False
        text = f"{self._shown_path(file.name)}: {fault}"
        if self._on_replace == "fail":
            raise BadFileError(
                f"{text}. Give new data a new name, set on.replace = reread or skip, or alter the "
                "connector's offset for the file"
            )
        if self._on_replace == "skip":
            file.state = State.ASIDE
            self.context.log(f"{text}: left alone, as on.replace is skip")
            return True
        if isinstance(fault, ShrunkError) and self._on_replace == "auto":
            return self._set_aside(file, text)
        self._begin_anew(file, result, str(fault))
        return False

    def _begin_anew(self, file: File, result: list[Polled], reason: str) -> None:
        """The file's next record is its first. Until that is committed, so is this."""
        file.offset = None
        result.append(self._renamed.begin_anew(file.partition))
        self.context.log(
            f"{self._shown_path(file.name)}: {reason}; what stands there now is read from its "
            "beginning"
        )

    def _lose(self, file: File, inodes: Mapping[str, int]) -> None:
        """A file is no longer there. That is nobody's fault if it was read to its end, or goes on
        under another name."""
        unread = file.state in (State.TAIL, State.UNFINISHED, State.NEW) and file.signature[0] > 0
        moved = file.signature[2] in inodes.values()
        file.close()
        file.state = State.GONE
        file.signature = (-1, 0, 0)
        self._aside.pop(file.name, None)
        if unread and not moved:
            position = 0 if file.offset is None else file.offset.get("position")
            reason = self._at(file, position or 0, "vanished with bytes unread")
            if self._on_replace == "fail":
                raise BadFileError(reason)
            self._aside[file.name] = reason
            self.context.log(reason)

    def _report_directory(self, folder: str, error: OSError, result: list[Polled]) -> None:
        if folder and error.errno in (errno.ENOENT, errno.ENOTDIR):
            return  # its files are missed one by one
        name = folder or "."
        if name in self._bad_directories:
            return
        self._bad_directories.add(name)
        reason = f"directory {self._shown_path(folder)} cannot be listed: {error}"
        if folder and not self._fails:
            self._aside[f"{folder}/"] = reason
            self.context.log(f"set aside {reason}")
        else:
            result.append(SkippedRecord({"file": name}, {"position": 0}, reason))

    def _shown_path(self, name: str) -> str:
        return f"{self._shown}/{name}" if name else self._shown

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self.context.log(message)


class DirectorySource(SourceConnector):
    """Reads every file below a directory, each from its beginning to its end and on as it grows.

    All tasks read one directory; a file belongs to the task whose number is the CRC-32 of its
    relative path modulo the count of tasks, so that new files need no new task configs.
    """

    VERSION = "0.1.0"
    TASK: ClassVar[type[SourceTask]] = DirectoryTask
    PASSED_ON: ClassVar[tuple[str, ...]] = (OPTION,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        fault = address_fault(config.get("path", "").strip())
        return {**config_errors(config), **({"path": [fault]} if fault else {})}

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
        check_altered(offsets)
        return True

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        # Tasks may run elsewhere, with another working directory.
        path = self._config["path"].strip()
        directory = "" if is_remote(path) else str(Path(local_path(path)).absolute())
        return [
            {**self._config, DIRECTORY: directory, TASK: str(task), TASKS: str(tasks_max)}
            for task in range(tasks_max)
        ]
