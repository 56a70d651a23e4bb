"""SparkSink: records into anything that Spark can write.

Files are staged and committed with the offsets, exactly once. Other formats keep no offsets, so a
batch may be written twice after a failure. Users must accept that explicitly.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from headgate.connector.api import ExactlyOnceSupport, SinkConnector, SinkTask
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.validators import non_empty, one_of
from headgate.ports import TopicPartition
from headgate_connectors.output.folders import folder_fault
from headgate_connectors.tables.config import define_batches, shared_settings
from headgate_connectors.tables.sink import TableSettings, TableSinkTask, Target
from headgate_spark.file_sink import target_folder
from headgate_spark.sessions import Sessions
from headgate_spark.sink_target import (
    BATCH,
    FILE_FORMATS,
    AnyTarget,
    FolderTarget,
    SparkWriter,
    WriteMode,
)
from headgate_spark.source_config import OPTION, absolute, options_of

_REMOTE: Final = "spark.remote"
_ONCE, _AT_LEAST = "exactly_once", "at_least_once"
CONFIG: Final = define_batches(
    ConfigDef()
    .define("format", Type.STRING, validator=non_empty, importance=Importance.HIGH,
            documentation="Format as DataFrame.write.format takes it: " + ", ".join(FILE_FORMATS)
            + ", jdbc, or that of any data source that this Spark has. Options for it are given "
            "as option.NAME.")
    .define("path", Type.STRING, "", importance=Importance.HIGH,
            documentation="Where the rows go. For files a folder of this machine, or one mounted "
            "here; it is made if it is not there.")
    .define("delivery", Type.STRING, _ONCE, one_of(_ONCE, _AT_LEAST), Importance.HIGH,
            "exactly_once for files. Any other format takes at_least_once: a batch may be written "
            "twice after a failure.")
    .define("write.mode", Type.STRING, WriteMode.APPEND, one_of(*WriteMode), Importance.HIGH,
            "What becomes of files that are in the folder before the sink's first batch. append "
            "writes beside them, overwrite replaces them, error fails the task. The sink's own "
            "files always stay. For formats of files.")
    .define("partition.by", Type.LIST, "", importance=Importance.MEDIUM,
            documentation="Columns by whose values the rows are written to folders of their own.")
    .define("sql", Type.STRING, "", importance=Importance.MEDIUM,
            documentation="A query of Spark over each batch, whose records are the table "
            + BATCH + ", such as SELECT id, upper(name) AS name FROM " + BATCH + " WHERE id > 0. "
            "What it gives is written. It sees one batch at a time: a count is the batch's alone.")
)  # fmt: skip
_OTHER_MODES: Final = {
    "upsert": "DeltaSink and IcebergSink write by key",
    "ignore": "where something is there, each record would be lost without a word",
}
"""Modes of other tools, and why SparkSink does not have them."""
_NEEDS_OFFSETS: Final = (
    f"which needs delivery = {_ONCE}: where no offsets are kept, a task that was frozen could "
    "replace what its successor has written. Empty the target before the sink is made, and append"
)


class SparkSinkTask(TableSinkTask):
    def open_target(self, config: Mapping[str, str]) -> tuple[TableSettings, Target]:
        settings = CONFIG.parse({key: value for key, value in config.items() if key in CONFIG.keys})
        remote = self.context.worker_settings.get(_REMOTE)
        if not remote:
            raise ConfigError(
                f"the worker setting {_REMOTE} is missing: SparkSink writes by the Spark Connect "
                "server that it names (sc://host:port)"
            )
        shared = shared_settings(settings)
        writer = SparkWriter(
            Sessions.of_task(remote, self.context.worker_settings),
            settings["format"].strip(),
            options_of(config),
            settings["partition.by"],
            settings["sql"].strip(),
        )
        path: str = settings["path"].strip()
        if settings["delivery"] == _AT_LEAST:
            return shared, AnyTarget(writer, path)
        return shared, FolderTarget(
            writer,
            target_folder(path),
            config.get("name", ""),
            shared.evolution,
            WriteMode(settings["write.mode"]),
        )


class SparkSink(SinkConnector):
    """Records into anything that Spark can write: files exactly once, all else at least once."""

    VERSION: ClassVar[str] = "0.1.0"
    TASK: ClassVar[type[SinkTask]] = SparkSinkTask
    REQUIRES_RUNNER: ClassVar[str | None] = "spark"
    PASSED_ON: ClassVar[tuple[str, ...]] = (OPTION,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        """Return errors that one key alone does not show."""
        format, path = config.get("format", "").strip().lower(), config.get("path", "").strip()
        mode = config.get("write.mode", WriteMode.APPEND)
        if mode in _OTHER_MODES:
            return {"write.mode": [f"is {mode}: {_OTHER_MODES[mode]}"]}
        if config.get("delivery", _ONCE) == _AT_LEAST:
            if mode == WriteMode.APPEND:
                return {}
            return {"write.mode": [f"is {mode}, {_NEEDS_OFFSETS}"]}
        if format and format not in FILE_FORMATS:
            text = (
                f"is {_ONCE}, which {format} cannot be written with, since it keeps no offsets: "
                f"set delivery = {_AT_LEAST} to take rows twice after a failure"
            )
            if format == "delta":
                text = "is no matter for delta: use DeltaSink, which writes Delta exactly once"
            return {"delivery": [text]}
        if not path:
            return {"path": ["is empty, expected the folder for the files"]}
        try:
            folder = target_folder(path)
        except ConfigError as error:
            return {"path": [str(error)]}
        fault = folder_fault(folder)
        return {} if fault is None else {"path": [fault]}

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        if config.get("delivery", _ONCE) == _ONCE:
            return ExactlyOnceSupport.SUPPORTED
        return ExactlyOnceSupport.UNSUPPORTED

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Refuse to alter offsets, unless the folder keeps none.

        Raises:
            ConfigError: the folder has the offsets. With others, a record would be doubled or left
                out.
        """
        if config.get("delivery", _ONCE) == _AT_LEAST:
            return False
        raise ConfigError(
            "Offsets of a SparkSink that writes files are those in its folder, and are not "
            "altered: to write everything anew give it another name and path"
        )

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        # Tasks may run in a process with another working directory.
        path = absolute(self._config.get("path", "").strip())
        return [{**self._config, "path": path} for _ in range(tasks_max)]
