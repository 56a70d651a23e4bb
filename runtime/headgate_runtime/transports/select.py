"""The adapter for each kind of transport. Only this module knows their names; they are imported
lazily."""

import importlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from headgate.ports import Clock, ConfigLog, Fencer, Group, KeyedLog, Peers, RecordLog
from headgate.topics.offsets import OffsetView

log = logging.getLogger(__name__)

ADAPTERS = {
    "embedded": "headgate_embedded",
    "kafka": "headgate_kafka",
    "standalone": "headgate_runtime.transports.standalone",
}
"""Kind -> package with `open_transport` and `open_task_transport`. It may have `before_forks`
(`headgate_runtime.tasks.zygote`)."""


class TaskTransport(Protocol):
    """The ports that the tasks of one connector use."""

    offset_log: KeyedLog
    record_log: RecordLog
    fencer: Fencer
    clock: Clock

    def offset_view(self) -> OffsetView:
        """Return the connector's current source offsets, by the topics that hold them."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """All ports of one log."""

    config_log: ConfigLog
    offset_log: KeyedLog
    status_log: KeyedLog
    group: Group
    record_log: RecordLog
    fencer: Fencer
    peers: Peers
    clock: Clock

    def subscribe(self, on_change: Callable[[], None]) -> bool:
        """Have `on_change` called, from any thread, when a log or the group may have something new.

        Must be called before any other method. Returns False if this log cannot call back; then
        `changed` must be asked often. The adapter that carries incoming calls announces them.
        """
        ...

    def changed(self) -> bool:
        """Return whether a log, the group or a call may have something new since the last call. For
        one thread. It is cheap, so that an idle loop need not look at each of them."""
        ...

    def close(self) -> None: ...


def adapter(transport: Mapping[str, str]) -> Any:
    """Return the package for ``transport["kind"]``."""
    kind = transport.get("kind", "")
    if kind not in ADAPTERS:
        raise ValueError(f"transport kind {kind!r}, expected one of {', '.join(ADAPTERS)}")
    return importlib.import_module(ADAPTERS[kind])


def may_keep_waiting(transport: Mapping[str, str]) -> bool:
    """Return whether a writer may have to wait for long, because brokers may be away."""
    return transport.get("kind") == "kafka"


def open_transport(transport: Mapping[str, str], url: str = "") -> Transport:
    """Return the ports as a worker with address `url` uses them."""
    return cast(Transport, adapter(transport).open_transport(transport, url=url, warn=log.warning))


def open_task_transport(
    transport: Mapping[str, str],
    connector_config: Mapping[str, str],
    *,
    connector: str,
    kind: str,
    exactly_once: bool,
) -> TaskTransport:
    """Return the ports as tasks of `connector` use them, with its client settings and offsets
    topic.

    Args:
        kind: "source" or "sink".
    """
    opened = adapter(transport).open_task_transport(
        transport,
        connector_config,
        connector=connector,
        kind=kind,
        exactly_once=exactly_once,
        warn=log.warning,
    )
    return cast(TaskTransport, opened)


def unreached(transport: Mapping[str, str], connector_config: Mapping[str, str], kind: str) -> str:
    """Return why no broker that only this connector uses can be reached. Empty if one can, or if
    there are none. It looks once.

    Args:
        kind: "source" or "sink".
    """
    package = ADAPTERS.get(transport.get("kind", ""))
    look = None if package is None else getattr(importlib.import_module(package), "unreached", None)
    return "" if look is None else cast(str, look(transport, connector_config, kind))


OPENER: Final = f"{__name__}:open_elsewhere"
"""Importable name of `open_elsewhere`, for executors."""


def opener_argument(
    transport: Mapping[str, str], connector_config: Mapping[str, str], connector: str
) -> str:
    """Return the argument of `open_elsewhere`."""
    return json.dumps([dict(transport), dict(connector_config), connector])


def open_elsewhere(argument: str) -> TaskTransport:
    """Return the ports as a connector's sink task uses them, in a process that knows no more about
    it."""
    transport, connector_config, connector = json.loads(argument)
    return open_task_transport(
        transport, connector_config, connector=connector, kind="sink", exactly_once=False
    )
