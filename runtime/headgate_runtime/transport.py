"""Which adapter serves a transport: the only place that knows their names, imported lazily."""

import importlib
import logging
from collections.abc import Mapping
from typing import Any, Protocol, cast

from headgate.ports import Clock, ConfigLog, Fencer, Group, KeyedLog, Peers, RecordLog

log = logging.getLogger(__name__)

FACTORIES = {"embedded": "headgate_embedded:open_transport"}


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

    def changed(self) -> bool:
        """Whether a log, the group or a call may have something new for who looks again, since
        this was asked last. For one thread; cheap, so that an idle loop need not look at each."""
        ...

    def close(self) -> None: ...


def transport_factory(transport: Mapping[str, str]) -> Any:
    """The adapter's `open_transport` for ``transport["kind"]``."""
    kind = transport.get("kind", "")
    if kind not in FACTORIES:
        raise ValueError(f"transport kind {kind!r}, expected one of {', '.join(FACTORIES)}")
    module, _, name = FACTORIES[kind].partition(":")
    return getattr(importlib.import_module(module), name)


def open_transport(transport: Mapping[str, str], url: str = "") -> Transport:
    """The ports as a worker reached at `url` uses them."""
    return cast(Transport, transport_factory(transport)(transport, url=url, said=log.warning))
