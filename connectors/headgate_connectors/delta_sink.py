"""DeltaSink: records into a Delta table, exactly once, without Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from headgate.connector.api import ExactlyOnceSupport, SinkConnector, SinkTask
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.validators import non_empty
from headgate.ports import TopicPartition
from headgate_connectors.tables.config import (
    define_shared,
    folder_errors,
    shared_settings,
    shared_validation,
)
from headgate_connectors.tables.delta_table import DeltaTarget
from headgate_connectors.tables.sink import TableSettings, TableSinkTask, Target

CONFIG: Final = define_shared(
    ConfigDef()
    .define(
        "path",
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The folder of the table; the table is made with the first batch.",
    )
    .define(
        "partition.by",
        Type.LIST,
        "",
        importance=Importance.MEDIUM,
        documentation="Columns that a new table is partitioned by.",
    )
    .define(
        "transaction.app.id",
        Type.STRING,
        "",
        importance=Importance.LOW,
        documentation="What the table's transactions of this sink are called; by default headgate- "
        "and the connector's name. Two connectors of one name, in two clusters, need two ids if "
        "they write the same topic names to one table.",
    )
)

_DIRECTORY: Final = "headgate.directory"
"""Key of a task config with the absolute path of the table's folder."""


class DeltaSinkTask(TableSinkTask):
    def open_target(self, config: Mapping[str, str]) -> tuple[TableSettings, Target]:
        settings = CONFIG.parse(config)
        shared = shared_settings(settings)
        app: str = settings["transaction.app.id"] or f"headgate-{config.get('name', '')}"
        path = Path(config.get(_DIRECTORY) or settings["path"].strip()).absolute()
        return shared, DeltaTarget(
            path,
            app,
            settings["partition.by"],
            shared.evolution,
            accepts_loss=shared.accepts_loss,
        )


class DeltaSink(SinkConnector):
    """Records into a Delta table, exactly once."""

    VERSION = "0.1.0"
    TASK: ClassVar[type[SinkTask]] = DeltaSinkTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        return {**shared_validation(config), **folder_errors(config)}

    @classmethod
    def exactly_once_support(cls, config: Mapping[str, str]) -> ExactlyOnceSupport:
        return ExactlyOnceSupport.SUPPORTED

    @classmethod
    def alter_offsets(
        cls, config: Mapping[str, str], offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Refuse to alter offsets: the table holds those that count, and others would double
        records or leave them out.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "Offsets of a DeltaSink are those in its table, and are not altered: to write "
            "everything anew give it another name and path"
        )

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        # Tasks may run elsewhere, with another working directory.
        directory: Any = str(Path(self._config["path"].strip()).absolute())
        return [{**self._config, _DIRECTORY: directory} for _ in range(tasks_max)]
