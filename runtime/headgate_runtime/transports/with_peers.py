"""The transport of a worker on Kafka: brokers carry its logs and its group, HTTP its calls."""

from collections.abc import Callable
from typing import Any

from headgate.ports import Clock, ConfigLog, Fencer, Group, KeyedLog, Peers, RecordLog


class WithPeers:
    """A transport without `Peers`, and the peers to go with it."""

    config_log: ConfigLog
    offset_log: KeyedLog
    status_log: KeyedLog
    group: Group
    record_log: RecordLog
    fencer: Fencer
    clock: Clock

    def __init__(self, inner: Any, peers: Peers) -> None:
        for port in (
            *("config_log", "offset_log", "status_log", "group", "record_log", "fencer", "clock"),
        ):
            setattr(self, port, getattr(inner, port))
        self.peers = peers
        self._inner = inner

    def subscribe(self, on_change: Callable[[], None]) -> bool:
        return bool(self._inner.subscribe(on_change))

    def changed(self) -> bool:
        """Return whether there may be something new, calls excepted: their adapter wakes the
        worker."""
        return bool(self._inner.changed())

    def close(self) -> None:
        self._inner.close()
