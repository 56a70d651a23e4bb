"""IcebergSink: records into an Iceberg table, exactly once, without Spark."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from headgate.connector.api import ExactlyOnceSupport, SinkConnector, SinkTask
from headgate.connector.config import ConfigDef, ConfigError, Importance, Type
from headgate.connector.validators import non_empty
from headgate.ports import TopicPartition
from headgate_connectors.tables.config import define_shared, shared_settings, shared_validation
from headgate_connectors.tables.iceberg_catalog import (
    CATALOG,
    catalog_errors,
    catalog_of,
    define_catalog,
)
from headgate_connectors.tables.iceberg_connection import CatalogConnection
from headgate_connectors.tables.iceberg_partitions import parse_partitions, valid_partitions
from headgate_connectors.tables.iceberg_table import IcebergTarget
from headgate_connectors.tables.sink import TableError, TableSettings, TableSinkTask, Target

CONFIG: Final = define_shared(
    define_catalog(
        ConfigDef().define(
            "table",
            Type.STRING,
            validator=non_empty,
            importance=Importance.HIGH,
            documentation="Namespace and name of the table, such as shop.orders. It is made with "
            "the first batch.",
        )
    )
    .define(
        "partition.by",
        Type.STRING,
        "",
        valid_partitions,
        Importance.MEDIUM,
        "Partitions of a new table: columns, or year(C), month(C), day(C), hour(C), bucket(N, C) "
        "and truncate(N, C) of a column C, with commas between them.",
    )
    .define(
        "offsets.name",
        Type.STRING,
        "",
        importance=Importance.LOW,
        documentation="What the table's properties with the offsets are called; by default "
        "headgate. and the connector's name. Two connectors of one name, in two clusters, need two "
        "if they write the same topic names to one table.",
    )
)


class IcebergSinkTask(TableSinkTask):
    def open_target(self, config: Mapping[str, str]) -> tuple[TableSettings, Target]:
        settings = CONFIG.parse({key: value for key, value in config.items() if key in CONFIG.keys})
        shared = shared_settings(settings)
        app: str = settings["offsets.name"] or f"headgate.{config.get('name', '')}"
        return shared, IcebergTarget(
            settings["table"].strip(),
            CatalogConnection(catalog_of(config), TableError),
            app,
            shared.evolution,
            partition_by=parse_partitions(settings["partition.by"]),
            accepts_loss=shared.accepts_loss,
        )


class IcebergSink(SinkConnector):
    """Records into an Iceberg table, exactly once."""

    VERSION = "0.1.0"
    TASK: ClassVar[type[SinkTask]] = IcebergSinkTask
    PASSED_ON: ClassVar[tuple[str, ...]] = (CATALOG,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        return catalog_errors(config) or shared_validation(config)

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
            "Offsets of an IcebergSink are those in its table, and are not altered: to write "
            "everything anew give it another name and table"
        )

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        return [dict(self._config) for _ in range(tasks_max)]
