"""FileStreamSink: appends the values of records to one file, one line each.

The config keys are those of Connect's connector of the same name. Source: connect-file (4.3.1).

Differs:
- Standard output is not supported, since a task may run on any worker.
- Lines are on disk before their consumer offsets are committed.
- A line that a crash has torn is removed before it is written again.
- A file that was removed, cut or replaced after records were committed to it is an error.
- A text with half of a surrogate pair is refused. Java writes ``?`` for it.

The file ``.NAME.position`` beside the output says how far that was written at the last commit.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from headgate.connector.api import (
    DataError,
    ExactlyOnceSupport,
    SinkConnector,
    SinkRecord,
    SinkTask,
)
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type, java_text
from headgate.connector.sink_names import sink_topics, topic_pattern
from headgate.connector.text_converters import text_of
from headgate.connector.validators import one_of
from headgate.ports import TopicPartition
from headgate_connectors.file_stream_config import FILE, file_errors, task_config
from headgate_connectors.output.position_file import PositionFile
from headgate_connectors.output.rewrite_mark import RewriteMark
from headgate_connectors.output.rows import at, refuse
from headgate_connectors.output.text_file import Position, TextOutput

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
        "What to do at the start if the file is not there, empty, cut or replaced although records "
        "were committed to it. Choose 'fail' to fail the task, 'rewrite' to append what the log "
        "still has from its beginning (what the file has stays, so lines may be there twice), "
        "'accept' to go on without those records. Where that happens while the task runs, the task "
        "fails.",
    )
)

WAYS_ON = (
    "To write what the log still has into it anew, set on.missing.output = rewrite, or stop the "
    "connector and reset its offsets; to go on without those records, set it to accept"
)


class OutputMissingError(Exception):
    """The output file lacks records whose consumer offsets were committed."""


class FileStreamSinkTask(SinkTask):
    """Task that appends the text of each value and a newline to the file."""

    _output: TextOutput | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = SINK_CONFIG.parse(config)
        self._name: str = settings["file"]
        self._on_missing: str = settings["on.missing.output"]
        self._is_alone = (config.get("tasks.max") or "1").strip() == "1"
        path = Path(config.get(FILE) or self._name).absolute()
        self._mark = RewriteMark(path)
        self._rewritten: dict[TopicPartition, int] = {}
        """Offsets that the rewrite has reached, if there is or was one."""
        self._rewrite_ends: dict[TopicPartition, int] = {}
        """Offsets at which the rewrite under way ends: those committed before it began. Empty: no
        rewrite is under way."""
        self._topics = set(sink_topics(config))
        """Topics that the connector's config names or that this task has read."""
        self._pattern = topic_pattern(config)
        try:
            self._output = TextOutput(path)
        except OSError as error:
            raise OSError(
                f"Couldn't find or create file '{self._name}' for FileStreamSinkTask: {error}"
            ) from error
        self._was_empty = self._output.is_empty()
        self._position_file = PositionFile(path)
        self._position: Position | None = None
        """Position that this task wrote to the position file last."""
        self._told_position = False
        self._has_torn_line = self._output.has_torn_line()

    @property
    def _file(self) -> TextOutput:
        assert self._output is not None
        return self._output

    def open(self, partitions: Collection[TopicPartition]) -> None:
        """Check the file against the committed offsets, and begin or continue a rewrite.

        Raises:
            OutputMissingError: the file lacks records that were committed.
        """
        self._topics.update(topic for topic, _ in partitions)
        if (what := self._loss()) and (count := self._committed_count()):
            seen = f"{what}, but {count:,} records were committed to it"
            self._on_missing_output(seen, partitions, {})
        elif self._rewrite_ends:
            self._rewrite(partitions)
        elif (done := self._mark.read()) is not None:
            if any(done.get(place, 0) < end for place, end in self._committed(partitions).items()):
                what = "was being written anew when its task ended"
                self._on_missing_output(what, partitions, done)
            else:
                self._mark.remove()

    def _loss(self) -> str:
        """Return what happened to the file since offsets were last committed, to follow its name.
        Empty text: nothing did."""
        # The file may have been filled since `start`, by a task that had the partitions before.
        is_empty = self._was_empty and self._file.is_empty()
        self._was_empty = False
        known = self._position_file.read() if self._file.is_regular else None
        if is_empty and (known is None or known.size):
            return "is empty or was not there"
        return "" if known is None else self._file.damage_before(known)

    def _committed_count(self) -> int:
        """Return how many records of the connector's topics were committed. It counts those of all
        tasks, since they write to the same file."""
        return sum(self._all_committed().values())

    def _all_committed(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the connector's topics. The consumer group may have
        others, of topics that the connector read earlier."""
        committed = self.context.committed()
        topics = set(self._topics)
        if self._pattern is not None:
            topics.update(self._pattern.of({topic for topic, _ in committed}))
        return {place: end for place, end in committed.items() if end and place[0] in topics}

    def _committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        committed = self.context.committed()
        return {place: committed[place] for place in partitions if committed.get(place)}

    def _on_missing_output(
        self, what: str, partitions: Collection[TopicPartition], done: Mapping[TopicPartition, int]
    ) -> None:
        """Do what ``on.missing.output`` says: fail, go on without the records, or rewrite them.

        Args:
            done: offsets that an earlier rewrite has reached.

        Raises:
            OutputMissingError: the setting is ``fail``.
        """
        seen = f"{self._name} {what}"
        if self._on_missing == "fail":
            raise OutputMissingError(f"{seen}. {WAYS_ON}")
        if self._on_missing == "accept":
            self.context.log(f"{seen}: going on without them, as on.missing.output is accept")
            self._note_position()
            self._mark.remove()
            return
        self.context.log(f"{seen}: writing what the log still has from its beginning")
        self._rewritten = dict(done)
        self._mark.write(self._rewritten)
        self._note_position()
        self._rewrite_ends = self._all_committed()
        self._rewrite(partitions)

    def _rewrite(self, partitions: Collection[TopicPartition]) -> None:
        """Seek `partitions` back to where the rewrite under way stands, unless it is past its end
        there."""
        for place in partitions:
            done = self._rewritten.get(place, 0)
            if done < self._rewrite_ends.get(place, 0):
                self.context.offset(*place, done)
        self.context.request_commit()

    def pre_commit(self, offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        self.flush()
        if self._rewrite_ends:
            self._rewritten.update(offsets)
            ends = self._rewrite_ends.items()
            if any(self._rewritten.get(place, 0) < end for place, end in ends):
                self._mark.write(self._rewritten)
            else:
                self._rewrite_ends = {}
                self._mark.remove()
        return offsets

    def _check_output(self) -> None:
        """Check that the open file is still the one at the path, and did not get shorter.

        Raises:
            OutputMissingError: the file was removed, replaced or cut.
        """
        self._raise_for(self._file.damage())

    def _raise_for(self, seen: str) -> None:
        if seen:
            raise OutputMissingError(
                f"{self._name} {seen} while it was written; {self._committed_count():,} records "
                f"were committed to it before. {WAYS_ON}"
            )

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._check_output()
        if not records:
            return
        lines = [line for record in records if (line := self._encoded(record)) is not None]
        if not lines:
            return
        if self._has_torn_line:
            self._mend_torn_line(lines)
            self._has_torn_line = False
        self._file.append(lines)

    def _encoded(self, record: SinkRecord) -> bytes | None:
        """Return the line of a record. None: it has no form in UTF-8 and went to the errant record
        reporter."""
        try:
            return _line(record).encode()
        except UnicodeEncodeError as error:
            refuse(self.context, record, DataError(f"{at(record)} has no UTF-8: {error}"))
            return None

    def _mend_torn_line(self, lines: Sequence[bytes]) -> None:
        """Cut the last line of the file, which lacks its newline, if a crash tore it while this
        task wrote it. If another writer may have written it, end it with a newline instead.

        The line is this task's if no other task writes to the file, and the end of the file equals
        the beginning of `lines`. Records since the last commit are delivered again in their order,
        so `lines` begins with what was written before the crash.
        """
        count = self._file.begun_of(lines) if self._is_alone else 0
        if count > len(lines[0]) or (count and self._committed_count()):
            self._file.cut_torn_line()
            self._note_position()
            self.context.log(f"{self._name}: cut the last line, which was half written")
        elif self._file.has_torn_line():  # another task may have ended it
            self._file.append([b""])
            self.context.log(
                f"{self._name}: its last line had no newline and is kept, as it is not known to "
                "be this task's"
            )

    def flush(self) -> None:
        self._check_output()
        if self._position is not None:
            self._raise_for(self._file.damage_before(self._position))
        self._file.sync()
        self._note_position()

    def _note_position(self) -> None:
        """Write to the position file how far the output is on disk. If that fails, the sink goes on
        and logs once that text cut off while no task runs will not be missed."""
        if not self._file.is_regular:
            return
        try:
            self._position = self._position_file.write(self._file)
        except OSError as error:
            if not self._told_position:
                self._told_position = True
                self.context.log(
                    f"{self._name}: cannot note how far it is written ({error}), so text that is "
                    "cut off while the task does not run will not be missed: let the task write "
                    "to that folder"
                )

    def stop(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None


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
        errors = file_errors(config, "the standard output")
        rewrites = config.get("on.missing.output") == "rewrite"
        if rewrites and (config.get("tasks.max") or "1").strip() != "1":
            text = "tasks of one file cannot tell whose records are missing: tasks.max must be 1"
            message = str(ConfigError.of("on.missing.output", "rewrite", text))
            errors["on.missing.output"] = [message]
        return errors

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.UNSUPPORTED

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[tuple[str, int], int | None]
    ) -> bool:
        return True

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        return [task_config(self._config) for _ in range(tasks_max)]


def _line(record: SinkRecord) -> str:
    """Return the text of a record's value. Differs: a struct, list or map with a schema is written
    as JSON. Java writes ``Struct{a=1}``."""
    if record.value_schema is None or record.value.__class__ is str:
        return java_text(record.value)
    return java_text(None) if record.value is None else text_of(record.value_schema, record.value)
