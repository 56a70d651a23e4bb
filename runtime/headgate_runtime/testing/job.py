"""A connector made ready for a run, as a worker does it: validation, `start`, `task_configs`."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from headgate.connector.api import (
    Connector,
    ConnectorContext,
    PlannedSinkTask,
    SinkConnector,
    SourceConnector,
)
from headgate.connector.validation import unknown_keys, validate_connector
from headgate_runtime.plugins.find import find_connector

WORKER: Final[Mapping[str, str]] = {
    "value.converter": "TypedConverter",
    "offset.flush.interval.ms": "1000",
    "group.id": "test-workers",
}
"""Settings of the worker. The converters are those of ``headgate up``."""

NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})

NAME: Final = "test"


class ConfigRefusedError(ValueError):
    """The config of the connector is not valid."""

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        lines = "".join(f"\n  {key}: {text}" for key, texts in errors.items() for text in texts)
        super().__init__(f"the config is refused:{lines}")
        self.errors = errors
        """Errors by the config's key."""


def connector_class(connector: type[Connector] | str) -> type[Connector]:
    """Return the class of a connector.

    Args:
        connector: a class, or a value of ``connector.class``.

    Raises:
        PluginError: there is no such class.
    """
    return find_connector(connector, looked_at=True) if isinstance(connector, str) else connector


def is_planned(connector: type[Connector]) -> bool:
    """Return whether it is a sink of planned batches, which reads the log itself."""
    task = getattr(connector, "TASK", None)
    return isinstance(task, type) and issubclass(task, PlannedSinkTask)


def full_config(connector: type[Connector], config: Mapping[str, str]) -> dict[str, str]:
    """Return `config` with the keys that every config has."""
    named = f"{connector.__module__}:{connector.__qualname__}"
    return {"name": NAME, "connector.class": named, "tasks.max": "1", **config}


def config_errors(
    connector: type[Connector],
    config: Mapping[str, str],
    worker_settings: Mapping[str, str] = NO_SETTINGS,
) -> dict[str, Sequence[str]]:
    """Return all errors of a config, by its keys, as a worker and a pipeline file report them.

    Args:
        worker_settings: added to those of `WORKER`, or in their place.
    """
    infos = validate_connector(
        connector,
        config,
        worker_settings={**WORKER, **worker_settings},
        exactly_once_enabled=True,
        runner=connector.REQUIRES_RUNNER or "process",
    )
    errors: dict[str, Sequence[str]] = {
        info.value.name: list(info.value.errors) for info in infos.configs if info.value.errors
    }
    for key, near in unknown_keys(connector, config).items():
        hint = f", did you mean {near}?" if near else ""
        errors.setdefault(key, [f"neither Connect nor {connector.__name__} defines it{hint}"])
    return errors


def task_configs(
    connector: type[Connector],
    config: Mapping[str, str],
    context: ConnectorContext,
    worker_settings: Mapping[str, str] = NO_SETTINGS,
) -> list[Mapping[str, str]]:
    """Return the configs of the tasks that a new instance of the connector wants.

    Raises:
        ConfigRefusedError: the config is not valid.
        ValueError: no task, or more than ``tasks.max``.
    """
    errors = config_errors(connector, config, worker_settings)
    if errors:
        raise ConfigRefusedError(errors)
    made = connector()
    made.context = context
    made.start(config)
    try:
        most = int(config["tasks.max"])
        found = list(made.task_configs(most))
    finally:
        made.stop()
    if not 0 < len(found) <= most:
        raise ValueError(
            f"{connector.__name__}.task_configs({most}) gave {len(found)} configs, expected 1 to "
            f"{most}"
        )
    return found


def source_class(connector: type[Connector] | str) -> type[SourceConnector]:
    """Return the class of a source.

    Raises:
        TypeError: it is no source.
    """
    found = connector_class(connector)
    if not issubclass(found, SourceConnector):
        raise TypeError(f"{found.__name__} is no SourceConnector")
    return found


def sink_class(connector: type[Connector] | str) -> type[SinkConnector]:
    """Return the class of a sink.

    Raises:
        TypeError: it is no sink.
    """
    found = connector_class(connector)
    if not issubclass(found, SinkConnector):
        raise TypeError(f"{found.__name__} is no SinkConnector")
    return found
