"""FileStreamSource: reads the lines of one file, like Connect's connector of the same name.

The config keys, the source partition (``{"filename": path}``) and the source offset
(``{"position": n}``) are those of Java. Source: connect-file (4.3.1).

Differs: standard input is not supported, since a task may run on any worker. Positions always count
bytes. Java counts characters and seeks by bytes, so in text that is not ASCII it continues at the
wrong place after a restart.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from headgate.connector.api import (
    DataError,
    ExactlyOnceSupport,
    Partition,
    SourceConnector,
    SourceRecord,
    SourceTask,
)
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.topic_names import valid_topic
from headgate.connector.validators import at_least
from headgate_connectors.file_stream_config import FILE, file_errors, task_config

CHUNK_BYTES = 1 << 18
WAIT_SECONDS = 1.0
"""Wait between two looks at a file that has nothing new or does not exist, as in Java."""

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
        validator=valid_topic,
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


class FileStreamSourceTask(SourceTask):
    """Task that reads one file. It waits for a file that does not exist yet, and does not read the
    last line before it ends with a newline."""

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
        """Complete lines with their line ends, not yet made into records. The first starts at
        `_position`."""
        self._tail: list[bytes] = []
        """Pieces of the incomplete line after `_lines`. They are not joined until the line is
        complete, because a line may be as long as the file."""
        self._position = 0
        self._told_malformed = False

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
        """Split a chunk into lines, which end with LF, CRLF or CR as in Java. A CR at the end of
        the data may be half of a CRLF, so its line is not complete yet."""
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
            text = line.rstrip(b"\r\n").decode("utf-8", "replace")
            if "\ufffd" in text and not self._told_malformed:
                self._tell_malformed(line, position - len(line))
            records.append(
                SourceRecord(partition, {"position": position}, topic, text, None, (), None, now)
            )
        self._position = position

    def _tell_malformed(self, line: bytes, position: int) -> None:
        """Log, once, that the file has malformed UTF-8, whose bytes become U+FFFD as in Java."""
        try:
            line.decode()
        except UnicodeDecodeError as error:
            self._told_malformed = True
            self.context.log(
                f"{self._name}: byte {position + error.start} is not UTF-8 ({error.reason}). Such "
                "bytes become U+FFFD, as in Java. To refuse them, or to read another encoding, use "
                "DirectorySource with format = lines; of other lines nothing is said"
            )


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
        return file_errors(config, "the standard input")

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED if a file is named. It holds as long as the file is only appended to."""
        named = (config.get("file") or "").strip()
        return ExactlyOnceSupport.SUPPORTED if named else ExactlyOnceSupport.UNSUPPORTED

    @classmethod
    def alter_offsets(
        cls,
        config: Mapping[str, str],
        offsets: Sequence[tuple[Partition, Mapping[str, Any] | None]],
    ) -> bool:
        """Check offsets that a user wants to set.

        Raises:
            ConfigError: an offset is refused, with the text of Java's
                FileStreamSourceConnector.alterOffsets.
        """
        if file_errors(config, ""):
            raise ConfigError(
                "Offsets cannot be modified if the 'file' configuration is unspecified. This is "
                "because stdin is used for input and offsets are not tracked."
            )
        for partition, offset in offsets:
            if offset is None:
                continue  # any partition may be reset, so a bad one can be removed
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
        return [task_config(self._config)]
