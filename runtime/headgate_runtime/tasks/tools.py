"""What a body needs from the world to run its task: the log, the connector's class, converters."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from headgate.connector.api import (
    Connector,
    PlannedSinkTask,
    SinkConnector,
    SinkTask,
    SourceConnector,
    SourceTask,
    Transform,
)
from headgate.connector.converters import TaskConverters, task_converters
from headgate.ports import Clock, KeyedLog, RecordLog
from headgate.task.messages import TaskSpec
from headgate_runtime.plugins import PluginError, find_connector

TaskClass = type[SourceTask] | type[SinkTask] | type[PlannedSinkTask]

TRANSPORTS = {"embedded": "headgate_embedded"}


class Transport(Protocol):
    """What `open_transport` of a transport's package returns, as far as tasks use it."""

    @property
    def offset_log(self) -> KeyedLog: ...

    @property
    def record_log(self) -> RecordLog: ...

    @property
    def clock(self) -> Clock: ...

    def close(self) -> None: ...


class BodyTools(Protocol):
    def open_transport(self, spec: TaskSpec) -> Transport: ...

    def task_class(self, spec: TaskSpec) -> TaskClass: ...

    def converters(self, spec: TaskSpec) -> TaskConverters: ...

    def transforms(self, spec: TaskSpec) -> Sequence[Transform]: ...


class PluginTools:
    """The installed packages: transports by kind, connectors by plugin name."""

    def open_transport(self, spec: TaskSpec) -> Transport:
        """
        Raises:
            ValueError: no transport of that kind.
        """
        return open_transport(spec.transport)

    def task_class(self, spec: TaskSpec) -> TaskClass:
        """
        Raises:
            PluginError: the connector's class cannot be had, or has no task class.
        """
        return task_class(find_connector(spec.connector_config.get("connector.class", "")))

    def converters(self, spec: TaskSpec) -> TaskConverters:
        return task_converters(spec.connector_config, spec.worker_settings)

    def transforms(self, spec: TaskSpec) -> Sequence[Transform]:
        return load_transforms(spec.connector_config)


def open_transport(transport: Mapping[str, str]) -> Transport:
    kind = transport.get("kind", "")
    package = TRANSPORTS.get(kind)
    if package is None:
        raise ValueError(f"transport {kind!r}, expected one of {', '.join(sorted(TRANSPORTS))}")
    opened: Transport = importlib.import_module(package).open_transport(transport)
    return opened


def task_class(connector: type[Connector]) -> TaskClass:
    found = getattr(connector, "TASK", None)
    fits = (issubclass(connector, SourceConnector) and _is_kind(found, (SourceTask,))) or (
        issubclass(connector, SinkConnector) and _is_kind(found, (SinkTask, PlannedSinkTask))
    )
    if not fits:
        raise PluginError(
            f"{connector.__name__}.TASK is {found!r}; a source connector names a SourceTask there, "
            "a sink connector a SinkTask or PlannedSinkTask"
        )
    return cast(TaskClass, found)


def _is_kind(found: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(found, type) and issubclass(found, kinds)


def load_transforms(config: Mapping[str, str]) -> list[Transform]:
    """The chain named by ``transforms``; `type` is ``package.module:Class`` or
    ``package.module.Class``.

    Raises:
        PluginError: a type is missing or cannot be imported.
    """
    chain: list[Transform] = []
    for alias in filter(None, (part.strip() for part in config.get("transforms", "").split(","))):
        prefix = f"transforms.{alias}."
        own = {key[len(prefix) :]: text for key, text in config.items() if key.startswith(prefix)}
        name = own.pop("type", "")
        module, colon, attribute = name.partition(":")
        if not colon:
            module, _, attribute = name.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise PluginError(
                f"{prefix}type is {name!r}, which cannot be imported: {error}"
            ) from error
        transform: Transform = found()
        transform.configure(own)
        chain.append(transform)
    return chain
