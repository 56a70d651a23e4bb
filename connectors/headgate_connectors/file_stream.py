"""FileStreamSource and FileStreamSink: lines of one file, as Connect's connectors of these names.

Same config keys, same source partition (``{"filename": path}``) and offset (``{"position": n}``).
Source: connect-file (4.3.1).

Differs: standard input and output are not supported, since a task may run anywhere; positions count
bytes throughout (Java counts characters and seeks bytes, so it goes wrong after a restart in text
that is not ASCII); what the sink has put is on disk before its offsets are committed, and a line
that a crash has cut is removed before the next one; an output that is gone although records were
committed to it is an error.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from headgate.connector.api import (
    DataError,
    ExactlyOnceSupport,
    Partition,
    SinkConnector,
    SinkRecord,
    SinkTask,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type, java_text
from headgate.connector.text_converters import text_of
from headgate.connector.validators import at_least, non_empty, one_of

FILE = "headgate.file"
"""Added to the configs of tasks where the path is relative: the absolute one, as tasks may have
another working directory. An absolute path needs no addition, so that the configs equal Java's."""

CHUNK_BYTES = 1 << 18
WAIT_SECONDS = 1.0
"""Between two looks at a file that has nothing new, or is not there. As Java's."""

SOURCE_CONFIG = (
    ConfigDef()
    .define(
        "file",
        Type.STRING,
        None,
        None,
        Importance.HIGH,
        "Source filename. (The standard input is not supported.)",
    )
    .define(
        "topic",
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The topic to publish data to",
    )
    .define(
        "batch.size",
        Type.INT,
        2000,
        at_least(1),
        Importance.LOW,
        "The maximum number of records the source task can read from the file each time it is "
        "polled",
    )
)
SINK_CONFIG = (
    ConfigDef()
    .define(
        "file",
        Type.STRING,
        None,
        None,
        Importance.HIGH,
        "Destination filename. (The standard output is not supported.)",
    )
    .define(
        "on.missing.output",
        Type.STRING,
        "fail",
        one_of("fail", "rewrite", "accept"),
        Importance.LOW,
        "What to do at the start if the file is not there or empty although records were committed "
        "to it. Choose 'fail' to fail the task, 'rewrite' to write what the log still has from its "
        "beginning, 'accept' to go on without those records. A file that goes while the task "
        "runs fails it.",
    )
)


def _file_errors(config: Mapping[str, str], stream: str) -> dict[str, list[str]]:
    if (config.get("file") or "").strip():
        return {}
    return {
        "file": [
            f'Missing configuration "file": a task may run in any process, so {stream} is not '
            "supported. Name a file."
        ]
    }


class FileStreamSourceTask(SourceTask):
    """Waits for a file that is not there, and for the newline of its last line."""

    def start(self, config: Mapping[str, str]) -> None:
        settings = SOURCE_CONFIG.parse(config)
        self._name: str = settings["file"]
        self._path = Path(config.get(FILE) or self._name).absolute()
        self._topic: str = settings["topic"]
        self._batch: int = settings["batch.size"]
        self._partition: Partition = {"filename": self._name}
        self._file: BinaryIO | None = None
        self._missed = False
        """Whether it was logged that the file is missing."""
        self._lines: deque[bytes] = deque()
        """Whole, with their ends; not yet records. They start at the position."""
        self._tail: list[bytes] = []
        """Pieces of the line after those. None is looked at again until the line is whole: it may
        be as long as the file."""
        self._position = 0

    def poll(self) -> list[SourceRecord] | None:
        if self._file is None and not self._open():
            self.context.wait(WAIT_SECONDS)
            return None
        assert self._file is not None
        records: list[SourceRecord] = []
        self._take(records)
        while len(records) < self._batch and not self.context.stopping:
            chunk = self._file.read(CHUNK_BYTES)
            if not chunk:
                break
            self._split(chunk)
            self._take(records)
        if records:
            return records
        self.context.wait(WAIT_SECONDS)
        return None

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> bool:
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            if not self._missed:
                self.context.log(f"couldn't find file {self._name}, waiting for it to be created")
            self._missed = True
            return False
        self._file = file
        self._position = self._committed()
        size = file.seek(0, 2)
        if size < self._position:
            self.context.log(
                f"{self._name} was read up to byte {self._position} and has {size} bytes: waiting "
                "for it to grow; alter the connector's offsets to read it anew"
            )
        file.seek(self._position)
        return True

    def _committed(self) -> int:
        offset = self.context.offsets.offset(self._partition)
        position = None if offset is None else offset.get("position")
        if position is None:
            return 0
        if not isinstance(position, int) or isinstance(position, bool):
            raise DataError(
                f"Offset position is the incorrect type: {position!r} for file {self._name}, "
                "expected a whole number"
            )
        return position

    def _split(self, chunk: bytes) -> None:
        """Lines end with LF, CRLF or CR, as in Java. A CR that ends the data may be half a CRLF."""
        if self._tail and self._tail[-1].endswith(b"\r") and not chunk.startswith(b"\n"):
            self._end_line()
        *whole, last = chunk.splitlines(keepends=True)
        if whole:
            self._tail.append(whole[0])
            self._end_line()
            self._lines.extend(whole[1:])
        self._tail.append(last)
        if last.endswith(b"\n"):
            self._end_line()

    def _end_line(self) -> None:
        self._lines.append(b"".join(self._tail))
        self._tail.clear()

    def _take(self, records: list[SourceRecord]) -> None:
        now = time.time_ns() // 1_000_000
        lines, partition, topic, position = (
            self._lines,
            self._partition,
            self._topic,
            self._position,
        )
        for _ in range(min(len(lines), self._batch - len(records))):
            line = lines.popleft()
            position += len(line)
            # Malformed bytes become U+FFFD, as in Java.
            text = line.rstrip(b"\r\n").decode("utf-8", "replace")
            records.append(
                SourceRecord(partition, {"position": position}, topic, text, None, (), None, now)
            )
        self._position = position


class FileStreamSource(SourceConnector):
    """Reads the lines of one file, and goes on as it grows. One task, whatever `tasks.max` says."""

    VERSION = "0.1.0"
    TASK: ClassVar[type[SourceTask]] = FileStreamSourceTask
    JAVA_TASK = "org.apache.kafka.connect.file.FileStreamSourceTask"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return SOURCE_CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        return _file_errors(config, "the standard input")

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Supported as long as the file is only appended to."""
        named = (config.get("file") or "").strip()
        return ExactlyOnceSupport.SUPPORTED if named else ExactlyOnceSupport.UNSUPPORTED

    @classmethod
    def alter_offsets(
        cls,
        config: Mapping[str, str],
        offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]],
    ) -> bool:
        """
        Raises:
            ConfigError: with the texts of FileStreamSourceConnector.alterOffsets.
        """
        if _file_errors(config, ""):
            raise ConfigError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is "
                "because stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            if offset is None:
                continue  # whatever is there may be forgotten
            if "position" not in offset:
                raise ConfigError(
                    "Offset objects should either be null or contain the key 'position'"
                )
            position = offset["position"]
            if not isinstance(position, int) or isinstance(position, bool):
                raise ConfigError(
                    "The value for the 'position' key in the offset is expected to be a Long value"
                )
            if position < 0:
                raise ConfigError(
                    "The value for the 'position' key in the offset should be a non-negative value"
                )
            if partition is None:
                raise ConfigError("Partition objects cannot be null")
            if "filename" not in partition:
                raise ConfigError("Partition objects should contain the key 'filename'")
        return True

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        return [_task_config(self._config)]


WAYS_ON = (
    "To write what the log still has into it anew, set on.missing.output = rewrite, or stop the "
    "connector and reset its offsets; to go on without those records, set it to accept"
)


class OutputMissingError(Exception):
    """The file has not what was committed to it."""


class FileStreamSinkTask(SinkTask):
    """Appends the text of each value and a newline."""

    _file: FileIO | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = SINK_CONFIG.parse(config)
        self._name: str = settings["file"]
        self._on_missing: str = settings["on.missing.output"]
        self._path = path = Path(config.get(FILE) or self._name).absolute()
        self._topics: set[str] = set()
        try:
            # Without a buffer: one that is full would be written up to the middle of a line, where
            # a crash, or another task of the same file, could come in between.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise OSError(
                f"Couldn't find or create file '{self._name}' for FileStreamSinkTask: {error}"
            ) from error
        self._regular = stat.S_ISREG(os.fstat(self._file.fileno()).st_mode)
        self._size = os.fstat(self._file.fileno()).st_size
        """The file had at least so many bytes when it was looked at last."""
        self._was_empty = self._regular and self._size == 0
        self._is_cut = self._regular and _is_cut(path)

    def open(self, partitions: Collection[tuple[str, int]]) -> None:
        """
        Raises:
            OutputMissingError: records were committed, and there is nothing in the file.
        """
        self._topics.update(topic for topic, _ in partitions)
        if not (self._was_empty or self._is_cut):
            return
        # Until it got its partitions another task may have had them, and have written.
        assert self._file is not None
        self._was_empty = self._was_empty and os.fstat(self._file.fileno()).st_size == 0
        self._is_cut = self._is_cut and _is_cut(self._path)
        count = self._committed_count()
        if self._is_cut and count:
            self._cut_last_line()
        if self._was_empty and count:
            self._on_missing_output(count, partitions)
        self._was_empty = False

    def _committed_count(self) -> int:
        """Records of the topics that this task has read: its group may have read others before."""
        committed = self.context.committed().items()
        return sum(end for (topic, _), end in committed if topic in self._topics)

    def _on_missing_output(self, count: int, partitions: Collection[tuple[str, int]]) -> None:
        seen = f"{self._name} is empty or was not there, but {count:,} records were committed to it"
        if self._on_missing == "fail":
            raise OutputMissingError(f"{seen}. {WAYS_ON}")
        if self._on_missing == "accept":
            self.context.log(f"{seen}: going on without them, as on.missing.output is accept")
            return
        self.context.log(f"{seen}: writing what the log still has from its beginning")
        for topic, partition in partitions:
            self.context.offset(topic, partition, 0)

    def _cut_last_line(self) -> None:
        """Cuts a torn last line. Its record was not committed, and comes again as a whole."""
        assert self._file is not None
        end = _end_of_last_line(self._path)
        self.context.log(f"{self._name}: cut the last line, which was half written")
        os.ftruncate(self._file.fileno(), end)
        self._size, self._is_cut = end, False

    def _check_output(self) -> None:
        """
        Raises:
            OutputMissingError: the file is another one, or shorter than it was.
        """
        assert self._file is not None
        if not self._regular:
            return
        mine = os.fstat(self._file.fileno())
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (mine.st_dev, mine.st_ino):
            seen = "was removed or replaced"
        elif mine.st_size < self._size:
            seen = f"was cut from {self._size:,} to {mine.st_size:,} bytes"
        else:
            self._size = mine.st_size
            return
        raise OutputMissingError(
            f"{self._name} {seen} while it was written; {self._committed_count():,} records were "
            f"committed to it before. {WAYS_ON}"
        )

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._check_output()
        if self._is_cut and records:  # of a file that nothing was committed to: not ours
            self._write(b"\n")
            self._is_cut = False
        lines = [_line(record) for record in records]
        if lines:
            self._write(("\n".join(lines) + "\n").encode("utf-8", "replace"))

    def flush(self) -> None:
        assert self._file is not None
        if self._regular:
            self._check_output()
            os.fsync(self._file.fileno())

    def _write(self, data: bytes) -> None:
        """All of it, or none where the disk is full and nobody else writes to the file."""
        assert self._file is not None
        file, rest, number = self._file, data, self._file.fileno()
        before = os.fstat(number).st_size
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            written = len(data) - len(rest)
            with suppress(OSError):
                if self._regular and os.fstat(number).st_size == before + written:
                    os.ftruncate(number, before)
            raise

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FileStreamSink(SinkConnector):
    """Appends the values of records to one file, each as a line. At least once: lines that were
    written before a crash and not committed are written again."""

    VERSION = "0.1.0"
    TASK: ClassVar[type[SinkTask]] = FileStreamSinkTask
    JAVA_TASK = "org.apache.kafka.connect.file.FileStreamSinkTask"

    @classmethod
    def config_def(cls) -> ConfigDef:
        return SINK_CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        errors = _file_errors(config, "the standard output")
        rewrites = config.get("on.missing.output") == "rewrite"
        if rewrites and (config.get("tasks.max") or "1").strip() != "1":
            text = "tasks of one file cannot tell whose records are missing: tasks.max must be 1"
            message = str(ConfigError.of("on.missing.output", "rewrite", text))
            errors["on.missing.output"] = [message]
        return errors

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[tuple[str, int], int | None]
    ) -> bool:
        return True

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        return [_task_config(self._config) for _ in range(tasks_max)]


def _line(record: SinkRecord) -> str:
    """Differs: a struct, list or map with a schema is JSON, where Java writes ``Struct{a=1}``."""
    if record.value_schema is None or record.value.__class__ is str:
        return java_text(record.value)
    return java_text(None) if record.value is None else text_of(record.value_schema, record.value)


def _is_cut(path: Path) -> bool:
    """Whether the file ends in the middle of a line."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def _end_of_last_line(path: Path) -> int:
    """Length of the file up to and including its last newline."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - CHUNK_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


def _task_config(config: Mapping[str, str]) -> Mapping[str, str]:
    path = Path(config["file"].strip())
    return config if path.is_absolute() else {**config, FILE: str(path.absolute())}
