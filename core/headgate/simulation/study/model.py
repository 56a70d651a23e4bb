"""What a study says: a cluster, its connectors, and what happens to them when.

All times are milliseconds of virtual time; time 0 is the start of the workers.
`headgate.simulation.study.reading` makes a `Study` of plain data and refuses what cannot be run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""Least and most milliseconds; each time one between them is drawn from the seed, both ends
included."""


class Verb(StrEnum):
    """What an event does; the first group is done to workers, the second to connectors."""

    CRASH = "crash"
    STOP = "stop"
    START = "start"
    FREEZE = "freeze"
    ROLL = "roll"

    CREATE = "create"
    DELETE = "delete"
    PAUSE = "pause"
    RESUME = "resume"
    RESTART = "restart"
    SCALE = "scale"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """One worker. Defaults are Kafka Connect's, for what Connect has a setting for."""

    protocol: str = "sessioned"
    """`connect.protocol`: ``eager``, ``compatible`` or ``sessioned``; ``headgate`` is our own."""
    policy: str = "kip415"
    """`headgate.assignment.policy`: ``kip415`` or ``connect``. Only rounds of the protocol
    ``headgate`` go by it; the others have Connect's policy."""
    session_timeout_ms: int = 10_000
    """`session.timeout.ms`"""
    heartbeat_interval_ms: int = 3_000
    """`heartbeat.interval.ms`"""
    rebalance_timeout_ms: int = 60_000
    """`rebalance.timeout.ms`"""
    sync_timeout_ms: int = 3_000
    """`worker.sync.timeout.ms`"""
    rebalance_delay_ms: int = 300_000
    """`scheduled.rebalance.max.delay.ms`; that of the leader counts."""
    task_stop_timeout_ms: int = 5_000
    """`task.shutdown.graceful.timeout.ms`: a task that takes longer to stop is killed."""
    task_start_ms: Span = (500, 500)
    """How long a task's `start` takes. The study's own setting, as the next two are."""
    task_stop_ms: Span = (200, 200)
    """How long a task takes to stop."""
    message_ms: Span = (1, 20)
    """How long each message takes between the worker and the broker, each way."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happens."""

    at_ms: int
    """The earliest time."""
    verb: Verb
    name: str = ""
    """Worker, connector or task; empty for `ROLL`."""
    on_worker: bool = False
    """`name` is a worker's. Workers and connectors can both be stopped."""
    tasks: int = 0
    """`SCALE`: `tasks.max` from now on."""
    for_ms: int | None = None
    """How long a worker freezes; or after how long a worker that has gone is back. None: never."""
    every_ms: int = 0
    """`ROLL`: time from one worker's stop to the next one's."""
    text: str = ""
    """As the study writes it."""
    within_ms: int = 0
    """How much later than `at_ms` it may happen: the seed says."""


@dataclass(frozen=True, slots=True)
class Study:
    """A cluster and what happens to it. `read_study` makes it."""

    workers: tuple[str, ...]
    """Names of the workers that start at time 0: ``w1`` and so on."""
    settings: WorkerSettings
    """What each worker has that has no entry in `own`."""
    connectors: Mapping[str, int]
    """Connectors of the study and their `tasks.max`."""
    events: tuple[Event, ...] = ()
    """Sorted by time."""
    own: Mapping[str, WorkerSettings] = field(default_factory=lambda: dict[str, WorkerSettings]())
    """Settings by worker."""
    first_delay_ms: int = 3_000
    """The broker's `group.initial.rebalance.delay.ms`."""
    duration_ms: int | None = None
    """When the study ends. None: when all is balanced after the last event."""
    title: str = ""

    def settings_of(self, worker: str) -> WorkerSettings:
        return self.own.get(worker, self.settings)

    def at_start(self) -> tuple[str, ...]:
        """Connectors that are created at time 0: all but those whose first event creates them."""
        first: dict[str, Verb] = {}
        for event in self.events:
            if event.verb in (Verb.CREATE, Verb.DELETE):
                first.setdefault(event.name, event.verb)
        return tuple(name for name in self.connectors if first.get(name) is not Verb.CREATE)
