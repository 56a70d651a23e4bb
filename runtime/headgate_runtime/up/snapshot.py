"""What ``headgate up`` knows of its cluster at one moment.

Plain data: the display shows it, the idle rule judges it, the timeline keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from headgate.herder.messages import TaskView, WorkerView
from headgate.ids import State, TargetState, TaskId
from headgate.ports import TopicPartition


class Phase(StrEnum):
    """How a worker process stands, seen from outside."""

    STARTING = "starting"
    """The process lives and has not answered yet."""
    UP = "up"
    SILENT = "silent"
    """It answered before and does not now: stopped, overloaded or hung."""
    WAITING = "restarting"
    """The process ended; another one starts after a pause."""
    GIVEN_UP = "given up"
    """The process ended too often."""


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    name: str
    phase: Phase
    pid: int | None
    view: WorkerView | None
    """The answer of this very poll; None when there was none."""
    last_view: WorkerView | None = None
    """The latest answer, however old."""
    silent_s: float = 0.0
    """Seconds since its last answer."""
    starts: int = 1
    """How many processes it has had."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class ConnectorSnapshot:
    """A connector as the config topic has it, and how far its sink is."""

    name: str
    kind: str
    """``source``, ``sink`` or ``unknown``."""
    named: bool
    """The pipeline file names it."""
    target_state: TargetState
    tasks: tuple[TaskId, ...]
    """Tasks of the committed set."""
    committed: bool
    """The task configs are complete. False: new, or to be repaired by the owner."""
    ends: Mapping[TopicPartition, int]
    """Sinks: end offsets of its topics, taken after the workers were asked."""
    consumed: Mapping[TopicPartition, int]
    """Sinks: committed consumer offsets, taken after `ends`."""

    @property
    def lag(self) -> int:
        """Records of its topics that the sink has not committed yet."""
        return sum(
            max(0, end - self.consumed.get(partition, 0)) for partition, end in self.ends.items()
        )


@dataclass(frozen=True)
class Snapshot:
    at: float
    """Monotonic seconds."""
    workers: tuple[WorkerSnapshot, ...]
    connectors: tuple[ConnectorSnapshot, ...]
    config_offset: int
    """Config offset as read for this snapshot, after the workers were asked."""
    rebalances: int = 0
    """Rounds of the group that were seen, those before the first look included."""
    applying: tuple[str, ...] = ()
    """Changes of connectors that are still to be made, in words."""
    refused: tuple[str, ...] = ()
    """Changes that the cluster refused, and why."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Reason by name of what FAILED (``events``, ``events-0``), from the status topic."""
    spark_ui: str | None = None
    """Address of Spark's own pages."""

    def views(self) -> tuple[tuple[str, WorkerView], ...]:
        """Fresh views with the names of their workers."""
        return tuple((one.name, one.view) for one in self.workers if one.view is not None)

    def view_of(self, worker: str) -> WorkerView:
        """The fresh view of one of `views`."""
        return self._views[worker]

    def known(self) -> "Snapshot":
        """With a worker's latest answer where it did not answer this time, and lives."""
        lives = (Phase.UP, Phase.SILENT)
        workers = (
            replace(one, view=one.view or one.last_view) if one.phase in lives else one
            for one in self.workers
        )
        return replace(self, workers=tuple(workers))

    def connector_owners(self) -> Mapping[str, Sequence[tuple[str, State]]]:
        """Connector name -> (worker, state) of each worker that says it has it."""
        return self._connector_owners

    def task_owners(self) -> Mapping[TaskId, Sequence[tuple[str, TaskView]]]:
        return self._task_owners

    # Asked for once for each connector or task, so made once.

    @cached_property
    def _views(self) -> Mapping[str, WorkerView]:
        return dict(self.views())

    @cached_property
    def _connector_owners(self) -> Mapping[str, Sequence[tuple[str, State]]]:
        owners: dict[str, list[tuple[str, State]]] = {}
        for worker, view in self.views():
            for name, state in view.connectors.items():
                owners.setdefault(name, []).append((worker, state))
        return owners

    @cached_property
    def _task_owners(self) -> Mapping[TaskId, Sequence[tuple[str, TaskView]]]:
        owners: dict[TaskId, list[tuple[str, TaskView]]] = {}
        for worker, view in self.views():
            for task in view.tasks:
                owners.setdefault(task.task, []).append((worker, task))
        return owners

    @property
    def generation(self) -> int | None:
        """The latest that a worker is in; None when none is in the group."""
        found = [view.generation for _, view in self.views() if view.generation >= 0]
        return max(found, default=None)
