"""Settings of one herder. Each field names its key in Connect's worker config, if it has one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from headgate.connector.restart_policy import RestartPolicy
from headgate.task.messages import TaskKind
from headgate.topics.config_events import Config

ExactlyOnceSupport: TypeAlias = Literal["disabled", "preparing", "enabled"]
NO_TEXTS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Plugin:
    """What a worker knows of a connector class without making an instance of it."""

    kind: TaskKind
    version: str | None = None


NO_PLUGINS: Final[Mapping[str, Plugin]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HerderSettings:
    worker_id: str
    """Name of the worker in statuses: ``host:port`` in Connect, the worker's name here."""
    url: str
    """URL at which other workers call this one."""
    group: str = "headgate"
    """`group.id`"""
    config_topic: str = ""
    """`MemberSettings.config_topic`."""
    grpc_address: str = ""
    """`MemberSettings.grpc`."""
    client_id: str = ""
    """`client.id`: the beginning of the member id; `worker_id` if it is empty."""
    exactly_once_support: ExactlyOnceSupport = "disabled"
    """`exactly.once.source.support`"""
    protocols: tuple[str, ...] = ("headgate",)
    """Protocols offered to the group, best first; `connect.protocol` limits them."""
    session_timeout_ms: int = 10_000
    """`session.timeout.ms`"""
    heartbeat_interval_ms: int = 3_000
    """`heartbeat.interval.ms`"""
    rebalance_timeout_ms: int = 60_000
    """`rebalance.timeout.ms`"""
    sync_timeout_ms: int = 3_000
    """`worker.sync.timeout.ms`"""
    rebalance_delay_ms_max: int = 300_000
    """`scheduled.rebalance.max.delay.ms`"""
    task_stop_timeout_ms: int = 5_000
    """`task.shutdown.graceful.timeout.ms`"""
    connector_stop_timeout_ms: int = 5_000
    """Fixed in Connect."""
    request_timeout_ms: int = 90_000
    """Time after which a call without a deadline of its own is answered with an error. Fixed in
    Connect."""
    topic_tracking: bool = True
    """`topic.tracking.enable`"""
    topic_tracking_reset: bool = True
    """`topic.tracking.allow.reset`"""
    session_keys: bool = False
    """Calls between workers are signed. They are over HTTP, where anyone might make them."""
    key_ttl_ms: int = 3_600_000
    """`inter.worker.key.ttl.ms`; 0: keys never expire."""
    key_algorithm: str = "HmacSHA256"
    """`inter.worker.key.generation.algorithm`"""
    key_size: int | None = None
    """`inter.worker.key.size`, in bits; None: the usual size of the algorithm."""
    restart: RestartPolicy = RestartPolicy()
    """`headgate.restart.*`, where a connector's config does not say otherwise."""
    policy: str = "kip415"
    """`headgate.assignment.policy`"""
    plugins: Mapping[str, Plugin] = field(default_factory=lambda: NO_PLUGINS)
    """Plugins, by every spelling that `connector.class` may have."""
    worker_settings: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    """Settings that are handed to every task as they are."""
    transport: Mapping[str, str] = field(default_factory=lambda: NO_TEXTS)
    """How a task's body reaches the log. It is handed to the body as it is."""

    @property
    def exactly_once(self) -> bool:
        """Whether source tasks of this worker run exactly-once."""
        return self.exactly_once_support == "enabled"

    def kind(self, config: Config) -> TaskKind:
        """Return the kind of a connector. A class that is not among `plugins` is judged by its
        config: sinks must have `topics` or `topics.regex`."""
        plugin = self.plugins.get(config.get("connector.class") or "")
        if plugin is not None:
            return plugin.kind
        sink = bool(config.get("topics") or config.get("topics.regex"))
        return TaskKind.SINK if sink else TaskKind.SOURCE

    def version(self, config: Config) -> str | None:
        """Return the version of the connector's plugin; None: unknown. Source: KIP-891."""
        plugin = self.plugins.get(config.get("connector.class") or "")
        return plugin.version if plugin is not None else None
