"""DeltaSource: rows of a Delta table as records, exactly once, without Spark."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from headgate.connector.api import ExactlyOnceSupport, Partition, SourceConnector, SourceTask
from headgate.connector.config import ConfigDef, Importance, Type
from headgate.connector.validators import non_empty
from headgate_connectors.tables.config import folder_errors
from headgate_connectors.tables.delta_state import TableState, load
from headgate_connectors.tables.delta_versions import DeltaSteps
from headgate_connectors.tables.source import (
    FROM,
    WHOLE,
    Share,
    SourceSettings,
    Steps,
    TableSourceError,
    TableSourceTask,
    alterable,
    task_configs,
    told_of,
)
from headgate_connectors.tables.source_config import LATEST, define_source, source_settings

_STARTING: Final = "starting.version"
CONFIG: Final = define_source(
    ConfigDef().define(
        "path",
        Type.STRING,
        validator=non_empty,
        importance=Importance.HIGH,
        documentation="The folder of the table. One that is not there yet is awaited.",
    ),
    _STARTING,
    "version",
    1_000,
)


class DeltaSourceTask(TableSourceTask):
    NAME: ClassVar[str] = "path"

    def settings(self, config: Mapping[str, str]) -> SourceSettings:
        return _settings(config)

    def open_steps(self, config: Mapping[str, str], share: Share) -> Steps:
        settings = _settings(config)
        return DeltaSteps(Path(settings.table), share, self.context.log, skips=settings.skips)


class DeltaSource(SourceConnector):
    """Rows of a Delta table: all of it, then what each version adds."""

    VERSION = "0.1.0"
    TASK: ClassVar[type[SourceTask]] = DeltaSourceTask

    @classmethod
    def config_def(cls) -> ConfigDef:
        return CONFIG

    @classmethod
    def validate(cls, config: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
        errors = folder_errors(config)
        path, starting = config.get("path", "").strip(), config.get(_STARTING, "").strip()
        if errors or not path:
            return errors
        try:
            table = load(Path(path))
            if table is None:
                return {}
            _state(Path(path), table)
        except TableSourceError as error:
            return {"path": [str(error)]}
        newest = table.version()
        if starting.isdecimal() and int(starting) > newest + 1:
            return {_STARTING: [f"is {starting}, but the table is at version {newest}"]}
        return {}

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
            ConfigError: an offset has no version, or a partition has no table or share.
        """
        return alterable(offsets, "version")

    def start(self, config: Mapping[str, str]) -> None:
        # Tasks may run elsewhere, with another working directory.
        path = str(Path(config["path"].strip()).absolute())
        self._config = {**config, "path": path}

    def task_configs(self, tasks_max: int) -> list[Mapping[str, str]]:
        settings = _settings(self._config)
        offsets = self.context.offset_reader
        return task_configs(self._config, settings, tasks_max, offsets, lambda: _first(settings))


def _settings(config: Mapping[str, str]) -> SourceSettings:
    parsed = CONFIG.parse({key: value for key, value in config.items() if key in CONFIG.keys})
    return source_settings(parsed, parsed["path"], _STARTING)


def _first(settings: SourceSettings) -> str:
    """Return where a new connector begins, in the form of `BEGIN` in the task config."""
    if settings.starting.isdecimal():
        return f"{FROM} {int(settings.starting)}"
    path = Path(settings.table)
    table = load(path)
    if table is None:
        return f"{FROM} 0"  # the table does not exist, so all of its versions are still to come
    _state(path, table)
    version = table.version()
    return f"{FROM} {version + 1}" if settings.starting == LATEST else f"{WHOLE} {version}"


def _state(path: Path, table: Any) -> TableState:
    """Return the state of a loaded table. Raises `TableSourceError` if its rows cannot be read."""
    try:
        return TableState.loaded(table)
    except TableSourceError as error:
        raise told_of(f"the table at {path}", error) from error
