"""A snapshot: what ``headgate up`` knows of its cluster at one moment.

It is plain data. The display shows it, the idle rule judges it, and the timeline keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from headgate.herder.messages import TaskView, WorkerView
from headgate.ids import State, TargetState, TaskId
from headgate.ports import TopicPartition


class Phase(StrEnum):
    """State of a worker process, seen from outside."""

    STARTING = "starting"
    """The process is alive and has not answered yet."""
    UP = "up"
    SILENT = "silent"
    """It answered before and does not now: it is stopped, overloaded or hung."""
    WAITING = "restarting"
    """The process ended. Another one starts after a pause."""
    GIVEN_UP = "given up"
    """The process ended too often."""


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    name: str
    phase: Phase
    pid: int | None
    view: WorkerView | None
    """Answer to this look. None: it gave none."""
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
    """Whether the pipeline file names it."""
    target_state: TargetState
    tasks: tuple[TaskId, ...]
    """Tasks of the committed set."""
    committed: bool
    """Whether the task configs are complete. False: it is new, or its owner must repair them."""
    ends: Mapping[TopicPartition, int]
    """End offsets of a sink's topics, taken after the workers were asked."""
    consumed: Mapping[TopicPartition, int]
    """Committed consumer offsets of a sink, taken after `ends`."""

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
    """Rounds of the group, including those before the first look."""
    applying: tuple[str, ...] = ()
    """Changes of connectors that have still to be made, in words."""
    refused: tuple[str, ...] = ()
    """Changes that the cluster refused, and why."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Reasons of failures by name (``events``, ``events-0``), from the status topic."""
    spark_ui: str | None = None
    """Address of Spark's own web pages."""

    def views(self) -> tuple[tuple[str, WorkerView], ...]:
        """Return the views of this look, with the names of their workers."""
        return tuple((one.name, one.view) for one in self.workers if one.view is not None)

    def view_of(self, worker: str) -> WorkerView:
        """Return the view of a worker that is among `views`."""
        return self._views[worker]

    def known(self) -> "Snapshot":
        """Return the snapshot with the latest answer of each living worker that gave none this
        time."""
        lives = (Phase.UP, Phase.SILENT)
        workers = (
            replace(one, view=one.view or one.last_view) if one.phase in lives else one
            for one in self.workers
        )
        return replace(self, workers=tuple(workers))

    def connector_owners(self) -> Mapping[str, Sequence[tuple[str, State]]]:
        """Return connector name -> (worker, state) for each worker that says it owns the
        connector."""
        return self._connector_owners

    def task_owners(self) -> Mapping[TaskId, Sequence[tuple[str, TaskView]]]:
        return self._task_owners

    # Looked up for each connector or task, so made once.

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
        """Latest generation that a worker is in. None if no worker is in the group."""
        found = [view.generation for _, view in self.views() if view.generation >= 0]
        return max(found, default=None)
