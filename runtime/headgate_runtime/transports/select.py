"""Which adapter serves a transport: the only place that knows their names, imported lazily."""

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
"""Kind -> package that has `open_transport` and `open_task_transport`, and may have `before_forks`
(`headgate_runtime.tasks.zygote`)."""


class TaskTransport(Protocol):
    """The ports that the tasks of one connector use."""

    offset_log: KeyedLog
    record_log: RecordLog
    fencer: Fencer
    clock: Clock

    def offset_view(self) -> OffsetView:
        """The connector's source offsets as they are now, by the topics they are in."""
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

        To be called before anything else. Returns False if this log cannot call back: then ask
        `changed` often. Incoming calls are announced by the adapter that carries them.
        """
        ...

    def changed(self) -> bool:
        """Whether a log, the group or a call may have something new since
        this was asked last. For one thread; cheap, so that an idle loop need not look at each."""
        ...

    def close(self) -> None: ...


def adapter(transport: Mapping[str, str]) -> Any:
    """The package for ``transport["kind"]``."""
    kind = transport.get("kind", "")
    if kind not in ADAPTERS:
        raise ValueError(f"transport kind {kind!r}, expected one of {', '.join(ADAPTERS)}")
    return importlib.import_module(ADAPTERS[kind])


def may_keep_waiting(transport: Mapping[str, str]) -> bool:
    """Whether who writes there may have to wait for long: brokers may be away."""
    return transport.get("kind") == "kafka"


def open_transport(transport: Mapping[str, str], url: str = "") -> Transport:
    """The ports as a worker reached at `url` uses them."""
    return cast(Transport, adapter(transport).open_transport(transport, url=url, warn=log.warning))


def open_task_transport(
    transport: Mapping[str, str],
    connector_config: Mapping[str, str],
    *,
    connector: str,
    kind: str,
    exactly_once: bool,
) -> TaskTransport:
    """The ports as tasks of `connector` use them: its client settings, its own offsets topic.

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
    """Why none of the brokers that only this connector uses can be reached; empty: one can be, or
    there are none. Looks once.

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
    """What `open_elsewhere` takes."""
    return json.dumps([dict(transport), dict(connector_config), connector])


def open_elsewhere(argument: str) -> TaskTransport:
    """The ports as a sink task of a connector uses them, in a process that knows nothing else of
    it."""
    transport, connector_config, connector = json.loads(argument)
    return open_task_transport(
        transport, connector_config, connector=connector, kind="sink", exactly_once=False
    )
