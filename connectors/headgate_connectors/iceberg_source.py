"""IcebergSource: rows of an Iceberg table as records, exactly once, without Spark."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar, Final

from headgate.connector.api import ExactlyOnceSupport, Partition, SourceConnector, SourceTask
from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.validators import non_empty
from headgate_connectors.tables.iceberg_catalog import (
    CATALOG,
    catalog_errors,
    catalog_of,
    define_catalog,
)
from headgate_connectors.tables.iceberg_connection import CatalogConnection
from headgate_connectors.tables.iceberg_snapshots import IcebergSteps
from headgate_connectors.tables.source import (
    AFTER,
    FROM,
    WHOLE,
    Share,
    SourceSettings,
    Steps,
    TableSourceError,
    TableSourceTask,
    alterable,
    task_configs,
)
from headgate_connectors.tables.source_config import LATEST, define_source, source_settings

_STARTING: Final = "starting.snapshot"
CONFIG: Final = define_source(
    define_catalog(
        ConfigDef().define(
            "table",
            Type.STRING,
            validator=non_empty,
            importance=Importance.HIGH,
            documentation="Namespace and name of the table, such as shop.orders. One that is not "
            "there yet is awaited.",
        )
    ),
    _STARTING,
    "snapshot",
    5_000,
)


class IcebergSourceTask(TableSourceTask):
    NAME: ClassVar[str] = "table"

    def settings(self, config: Mapping[str, str]) -> SourceSettings:
        return _settings(config)

    def start(self, config: Mapping[str, str]) -> None:
        self._catalog = _connection(config)
        super().start(config)

    def open_steps(self, config: Mapping[str, str], share: Share) -> Steps:
        settings = _settings(config)
        log = self.context.log
        return IcebergSteps(settings.table, self._catalog, share, log, skips=settings.skips)

    def stop(self) -> None:
        super().stop()
        catalog: CatalogConnection | None = getattr(self, "_catalog", None)
        if catalog is not None:
            catalog.close()


class IcebergSource(SourceConnector):
    """Rows of an Iceberg table: all of it, then what each snapshot adds."""

    VERSION = "0.1.0"
    TASK: ClassVar[type[SourceTask]] = IcebergSourceTask
    PASSED_ON: ClassVar[tuple[str, ...]] = (CATALOG,)

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        return catalog_errors(config)

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
            ConfigError: an offset has no snapshot, or a partition has no table or share.
        """
        return alterable(offsets, "snapshot", AFTER)

    def start(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        settings = _settings(self._config)
        offsets = self.context.offset_reader
        return task_configs(
            self._config, settings, tasks_max, offsets, lambda: _first(settings, self._config)
        )


def _settings(config: Mapping[str, str]) -> SourceSettings:
    parsed = CONFIG.parse({key: value for key, value in config.items() if key in CONFIG.keys})
    return source_settings(parsed, parsed["table"].strip(), _STARTING)


def _connection(config: Mapping[str, str]) -> CatalogConnection:
    return CatalogConnection(catalog_of(config), TableSourceError)


def _first(settings: SourceSettings, config: Mapping[str, str]) -> str:
    """Return where a new connector begins, in the form of `BEGIN` in the task config."""
    if settings.starting.isdecimal():
        return f"{FROM} {int(settings.starting)}"
    with closing(_connection(config)) as catalog:
        table = catalog.table(settings.table)
    current = None if table is None else table.metadata.current_snapshot_id
    if current is None:
        return f"{AFTER} 0"  # the table has no snapshot, so all of them are still to come
    return f"{AFTER if settings.starting == LATEST else WHOLE} {current}"
