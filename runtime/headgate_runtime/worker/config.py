"""What a worker process is given at its start, and the settings of its parts that follow from
it."""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headgate.connector.restart_policy import RestartPolicy
from headgate.herder.settings import HerderSettings, Plugin
from headgate.membership.protocols import COMPATIBLE, DEFAULT, HEADGATE, SESSIONED
from headgate.task.messages import UNTIL_IDLE, TaskKind
from headgate_runtime.config.settings import WorkerSettings
from headgate_runtime.plugins.table import Described, described

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker process is given at its start."""

    name: str
    url: str
    """URL under which other workers call it."""
    transport: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    """``remote``: address of the Spark Connect server that all workers share."""
    config_topic: str = ""
    """`HerderSettings.config_topic`."""
    grpc: str = ""
    """`HerderSettings.grpc_address`."""
    working_directory: str = ""
    """Directory to which relative paths in connector configs refer."""
    until_idle: bool = False
    """The worker ends once everything is read. Its source tasks are told so."""
    connectors: Mapping[str, Mapping[str, Any]] | None = None
    """Installed connector classes, in the form of `headgate_runtime.plugins.table.told`. None: the
    worker looks for them itself."""

    @classmethod
    def from_json(cls, line: str) -> "WorkerConfig":
        raw: dict[str, Any] = json.loads(line)
        return cls(**raw)


def herder_settings(config: WorkerConfig, settings: WorkerSettings) -> HerderSettings:
    """Return the settings of the herder."""
    return HerderSettings(
        worker_id=config.name,
        url=config.url,
        group=settings["group.id"],
        config_topic=config.config_topic,
        grpc_address=config.grpc,
        client_id=settings["client.id"] or f"{_client_prefix(config)}{config.name}",
        exactly_once_support=settings["exactly.once.source.support"],
        session_timeout_ms=settings["session.timeout.ms"],
        heartbeat_interval_ms=settings["heartbeat.interval.ms"],
        rebalance_timeout_ms=settings["rebalance.timeout.ms"],
        sync_timeout_ms=settings["worker.sync.timeout.ms"],
        rebalance_delay_ms_max=settings["scheduled.rebalance.max.delay.ms"],
        task_stop_timeout_ms=settings["task.shutdown.graceful.timeout.ms"],
        topic_tracking=settings["topic.tracking.enable"],
        topic_tracking_reset=settings["topic.tracking.allow.reset"],
        session_keys=config.transport.get("kind") == "kafka",  # calls go over HTTP there
        key_ttl_ms=settings["inter.worker.key.ttl.ms"],
        key_algorithm=settings["inter.worker.key.generation.algorithm"],
        key_size=settings["inter.worker.key.size"],
        protocols=offered_protocols(config, settings),
        policy=settings["headgate.assignment.policy"],
        restart=RestartPolicy(
            restarts_max=settings["headgate.restart.max"],
            backoff_ms=settings["headgate.restart.backoff.ms"],
            backoff_max_ms=settings["headgate.restart.backoff.max.ms"],
            quiet_ms=settings["headgate.restart.quiet.ms"],
            errors=settings["headgate.restart.errors"],
        ),
        plugins=_plugins(config),
        worker_settings=_task_settings(config, settings),
        transport=transport_settings(config, settings),
    )


def _task_settings(config: WorkerConfig, settings: WorkerSettings) -> Mapping[str, str]:
    """Return the worker's settings that its tasks are given."""
    spark = {f"spark.{key}": value for key, value in config.spark.items()}
    return {**settings.texts, **spark, UNTIL_IDLE: "true" if config.until_idle else "false"}


def transport_settings(config: WorkerConfig, settings: WorkerSettings) -> Mapping[str, str]:
    """Return the settings with which this worker and its tasks reach the log."""
    if config.transport.get("kind") != "embedded":
        return config.transport
    # A process that stands still with the log's lock must lose the lock before the members that
    # wait for it are taken for dead.
    lease_ms: int = settings["session.timeout.ms"] // 2
    return {"lock.lease.ms": str(lease_ms), **config.transport}


def offered_protocols(config: WorkerConfig, settings: WorkerSettings) -> tuple[str, ...]:
    """Return the protocols offered to the group, best first. If Java workers may be in it, theirs
    are offered too, as far as `connect.protocol` allows. Limited to an older protocol, the worker
    does not offer ours, which is newer."""
    if config.transport.get("kind") != "kafka":
        return (HEADGATE,)
    offered: dict[str, tuple[str, ...]] = {
        "sessioned": (HEADGATE, SESSIONED, COMPATIBLE, DEFAULT),
        "compatible": (COMPATIBLE, DEFAULT),
        "eager": (DEFAULT,),
    }
    return offered[settings["connect.protocol"]]


def _client_prefix(config: WorkerConfig) -> str:
    """Return the prefix of member ids. It is a Java worker's if Java workers may look at them."""
    return "connect-" if config.transport.get("kind") == "kafka" else ""


def _plugins(config: WorkerConfig) -> dict[str, Plugin]:
    if config.connectors is None:
        known = described()
    else:
        known = {name: Described(**each) for name, each in config.connectors.items()}
    found: dict[str, Plugin] = {}
    left_out: dict[str, list[str]] = {}
    """Reason -> names of the connectors that cannot be used for it."""
    for name, each in known.items():
        if each.error:
            left_out.setdefault(each.error, []).append(name)
            continue
        plugin = Plugin(TaskKind(each.kind), each.version)
        for spelling in (name, name.rpartition(".")[2], each.name):
            found.setdefault(spelling, plugin)
            found.setdefault(spelling.removesuffix("Connector"), plugin)
    for why, names in left_out.items():
        log.warning("not usable here: %s: %s", ", ".join(names), why)
    return found
