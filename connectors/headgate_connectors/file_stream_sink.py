"""FileStreamSink: the values of records as lines of one file.

Same config keys as Connect's connector of this name. Source: connect-file (4.3.1).

Differs: standard output is not supported, since a task may run anywhere; what the sink has put is
on disk before its offsets are committed; a line that a crash has torn is removed before it is
written again; an output that is gone although records were committed to it is an error; a text
with half of a surrogate pair is refused, where Java writes ``?``.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from headgate.connector.api import DataError, SinkConnector, SinkRecord, SinkTask
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type, java_text
from headgate.connector.text_converters import text_of
from headgate.connector.validators import one_of
from headgate_connectors.file_stream_config import FILE, file_errors, task_config
from headgate_connectors.output.rows import at, refuse
from headgate_connectors.output.text_file import TextOutput

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

WAYS_ON = (
    "To write what the log still has into it anew, set on.missing.output = rewrite, or stop the "
    "connector and reset its offsets; to go on without those records, set it to accept"
)


class OutputMissingError(Exception):
    """The file has not what was committed to it."""


class FileStreamSinkTask(SinkTask):
    """Appends the text of each value and a newline."""

    _output: TextOutput | None = None

    def start(self, config: Mapping[str, str]) -> None:
        settings = SINK_CONFIG.parse(config)
        self._name: str = settings["file"]
        self._on_missing: str = settings["on.missing.output"]
        self._is_alone = (config.get("tasks.max") or "1").strip() == "1"
        path = Path(config.get(FILE) or self._name).absolute()
        self._mark = path.with_name(f".{path.name}.rewrite")
        """Is there from the start of a rewrite until the group has a commit of it: a crash in
        between leaves a file that is not empty beside offsets of the file before it."""
        self._before_rewrite: Mapping[tuple[str, int], int] | None = None
        self._topics: set[str] = set()
        try:
            self._output = TextOutput(path)
        except OSError as error:
            raise OSError(
                f"Couldn't find or create file '{self._name}' for FileStreamSinkTask: {error}"
            ) from error
        self._was_empty = self._output.is_empty()
        self._has_torn_line = self._output.has_torn_line()

    @property
    def _file(self) -> TextOutput:
        assert self._output is not None
        return self._output

    def open(self, partitions: Collection[tuple[str, int]]) -> None:
        """
        Raises:
            OutputMissingError: records were committed, and there is nothing in the file.
        """
        self._topics.update(topic for topic, _ in partitions)
        # Until it got its partitions another task may have had them, and have written.
        is_empty = self._was_empty and self._file.is_empty()
        self._was_empty = False
        if is_empty and (count := self._committed_count()):
            seen = f"is empty or was not there, but {count:,} records were committed to it"
            self._on_missing_output(seen, partitions)
        elif self._mark.exists() and self._before_rewrite is None:
            self._on_missing_output("was being written anew when its task ended", partitions)

    def _committed_count(self) -> int:
        """Records of the topics that this task has read: its group may have read others before."""
        committed = self.context.committed().items()
        return sum(end for (topic, _), end in committed if topic in self._topics)

    def _on_missing_output(self, what: str, partitions: Collection[tuple[str, int]]) -> None:
        seen = f"{self._name} {what}"
        if self._on_missing == "fail":
            raise OutputMissingError(f"{seen}. {WAYS_ON}")
        if self._on_missing == "accept":
            self.context.log(f"{seen}: going on without them, as on.missing.output is accept")
            self._mark.unlink(missing_ok=True)
            return
        self.context.log(f"{seen}: writing what the log still has from its beginning")
        self._mark.touch(mode=0o600)
        self._before_rewrite = dict(self.context.committed())
        for topic, partition in partitions:
            self.context.offset(topic, partition, 0)
        self.context.request_commit()

    def _end_rewrite(self) -> None:
        if self._before_rewrite not in (None, self.context.committed()):
            self._before_rewrite = None
            self._mark.unlink(missing_ok=True)

    def _check_output(self) -> None:
        """
        Raises:
            OutputMissingError: the file is another one, or shorter than it was.
        """
        if seen := self._file.damage():
            raise OutputMissingError(
                f"{self._name} {seen} while it was written; {self._committed_count():,} records "
                f"were committed to it before. {WAYS_ON}"
            )

    def put(self, records: Sequence[SinkRecord]) -> None:
        self._check_output()
        if self._before_rewrite is not None:
            self._end_rewrite()
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
        """The line of a record. None: it has no UTF-8, and was reported."""
        try:
            return _line(record).encode()
        except UnicodeEncodeError as error:
            refuse(self.context, record, DataError(f"{at(record)} has no UTF-8: {error}"))
            return None

    def _mend_torn_line(self, lines: Sequence[bytes]) -> None:
        """Cut the last line of the file, which lacks its newline, if a crash of this task has torn
        it; end it with a newline if it may be somebody else's.

        It is this task's own if no other task writes to the file and the end of the file is how
        `lines` begin: the records since the last commit come again in their order.
        """
        count = self._file.begun_of(lines) if self._is_alone else 0
        if count > len(lines[0]) or (count and self._committed_count()):
            self._file.cut_torn_line()
            self.context.log(f"{self._name}: cut the last line, which was half written")
        elif self._file.has_torn_line():  # another task may have ended it
            self._file.append([b""])
            self.context.log(
                f"{self._name}: its last line had no newline and is kept, as it is not known to "
                "be this task's"
            )

    def flush(self) -> None:
        self._check_output()
        self._file.sync()

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
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[tuple[str, int], int | None]
    ) -> bool:
        return True

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        return [task_config(self._config) for _ in range(tasks_max)]


def _line(record: SinkRecord) -> str:
    """Differs: a struct, list or map with a schema is JSON, where Java writes ``Struct{a=1}``."""
    if record.value_schema is None or record.value.__class__ is str:
        return java_text(record.value)
    return java_text(None) if record.value is None else text_of(record.value_schema, record.value)
