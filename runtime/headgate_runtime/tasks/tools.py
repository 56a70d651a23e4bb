"""What a body needs to run its task: the log, the connector's class and its converters."""

from collections.abc import Sequence
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
from headgate.connector.transforms import make_transforms
from headgate.task.messages import TaskSpec
from headgate_runtime.plugins.converters import converter_maker
from headgate_runtime.plugins.find import PluginError, find_connector
from headgate_runtime.transports.select import TaskTransport, open_task_transport

TaskClass = type[SourceTask] | type[SinkTask] | type[PlannedSinkTask]


class BodyTools(Protocol):
    def open_transport(self, spec: TaskSpec) -> TaskTransport: ...

    def task_class(self, spec: TaskSpec) -> TaskClass: ...

    def converters(self, spec: TaskSpec) -> TaskConverters: ...

    def transforms(self, spec: TaskSpec) -> Sequence[Transform]: ...


class PluginTools:
    """Tools from the installed packages: transports by kind, connectors by plugin name."""

    def open_transport(self, spec: TaskSpec) -> TaskTransport:
        """Return the transport of the task.

        Raises:
            ValueError: no transport of that kind.
        """
        return open_task_transport(
            spec.transport,
            spec.connector_config,
            connector=spec.task.connector,
            kind=spec.kind.value,
            exactly_once=spec.exactly_once,
        )

    def task_class(self, spec: TaskSpec) -> TaskClass:
        """Return the class of the task.

        Raises:
            PluginError: the connector's class is not usable, or has no task class.
        """
        name = spec.connector_config.get("connector.class", "")
        return task_class(find_connector(name, looked_at=True))

    def converters(self, spec: TaskSpec) -> TaskConverters:
        make = converter_maker(spec.transport)
        return task_converters(spec.connector_config, spec.worker_settings, make)

    def transforms(self, spec: TaskSpec) -> Sequence[Transform]:
        return make_transforms(spec.connector_config)


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
    task = cast(TaskClass, found)
    missing = sorted(getattr(task, "__abstractmethods__", ()))
    if missing:
        raise PluginError(
            f"{connector.__name__}.TASK, {task.__name__}, does not implement {', '.join(missing)}"
        )
    return task


def _is_kind(found: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(found, type) and issubclass(found, kinds)
