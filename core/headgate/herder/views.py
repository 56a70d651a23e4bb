"""Views: what a worker shows of itself, either everything or the changes since an earlier answer.

Other modules import these names from `headgate.herder.messages`. Views travel as JSON (see
`headgate.wire`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from headgate.ids import State, TaskId
from headgate.task.messages import BatchDone, Measured

K = TypeVar("K", str, TaskId)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TaskView:
    """View of a task that a worker holds."""

    task: TaskId
    state: State
    records: int
    skipped: int
    idle: bool
    attempts: int
    """How often the task was started again after it was fenced or lost."""
    detail: str
    """What the body says of its progress, or why the last run ended."""
    restarts: int = 0
    """Restarts in a row by the restart policy."""
    restart_at_ms: int | None = None
    """When a FAILED task is started again, on the worker's monotonic clock; None: it is not."""
    moved_ms: int | None = None
    """When the run last moved records, or began, on the worker's monotonic clock. None: it has not
    begun."""
    quarantined: tuple[str, ...] = ()
    """Inputs that the task has set aside and does not read, each with its reason."""
    batch: BatchDone | None = None
    """Last batch of a task that runs planned batches."""
    commits: int = 0
    """Number of commits of this run that had records."""
    call: str = ""
    """Method of the connector's code that has not returned for long; empty: none."""
    call_since_ms: int | None = None
    """When that method was called, on the worker's monotonic clock."""
    measured: Measured | None = None
    """Measurements of the body; None: it measures nothing."""


@dataclass(frozen=True, slots=True)
class LoopBusy:
    """How long the thread of a worker's herder has been busy. Heartbeats and answers wait while it
    is."""

    commands: int
    """Number of commands that the thread has handled."""
    seconds: float
    """Time for all of them."""
    longest_s: float
    """Time for the longest of the last one or two minutes."""


@dataclass(frozen=True, slots=True)
class ConnectorCall:
    """A method of a connector, not of a task, that has not returned for long."""

    connector: str
    method: str
    """``validate``, ``start``, ``task_configs``, ``stop``, ``alter_offsets`` or
    ``reached_offsets``."""
    took_ms: int
    """How long it has taken by now."""


@dataclass(frozen=True, slots=True)
class Rebalances:
    """How long a worker's rebalances took. Times are on its monotonic clock."""

    count: int = 0
    """Number of rebalances that are over."""
    took_ms: int = 0
    """Time of all of them."""
    took_ms_max: int = 0
    """Time of the longest of those that ended in the last one or two minutes."""
    ended_ms: int | None = None
    """When the last one was over; None: none is yet."""
    began_ms: int | None = None
    """When the rebalance under way began; None: none is."""


@dataclass(frozen=True, slots=True)
class Startups:
    """Counts of the starts of connectors and tasks on a worker, by how they ended. A start that is
    stopped before `start()` has returned is not counted."""

    connectors: int = 0
    failed_connectors: int = 0
    tasks: int = 0
    failed_tasks: int = 0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """Answer to `DescribeWorker`."""

    worker_id: str
    url: str
    member_id: str
    leader: str
    """Member id of the leader; empty while there is none."""
    generation: int
    config_offset: int
    settled: bool
    """No rebalance, delay, reconfiguration, start, stop or fencing is under way here."""
    pending: tuple[str, ...]
    """What is under way, in words."""
    connectors: Mapping[str, State]
    """In order of their names."""
    tasks: tuple[TaskView, ...]
    """In order of their ids."""
    rebalances: int
    now_ms: int = 0
    """The worker's monotonic clock when it answered."""
    mark: str = ""
    """`DescribeWorker.seen` for what changes from now on. Empty: the question had no `seen`."""
    since: str = ""
    """Mark of the question, if `connectors` and `tasks` have only what has changed since. Empty:
    they have everything."""
    gone_connectors: tuple[str, ...] = ()
    """With `since`: connectors that the worker does not hold any more."""
    gone_tasks: tuple[TaskId, ...] = ()
    """With `since`: tasks that the worker does not hold any more."""
    fencing_rounds: int = 0
    """Fencing rounds of this worker, as leader, that have fenced producers (KIP-618)."""
    failed_fencing_rounds: int = 0
    loop: LoopBusy | None = None
    """None: the herder's host does not measure it."""
    rebalance_times: Rebalances = Rebalances()
    startups: Startups = Startups()
    connector_calls: tuple[ConnectorCall, ...] = ()

    def quiet_ms(self, task: TaskView) -> int | None:
        """Return the time since the run of one of `tasks` last moved records, or began. None: it
        has not begun."""
        return None if task.moved_ms is None else max(self.now_ms - task.moved_ms, 0)

    def call_ms(self, task: TaskView) -> int | None:
        """Return how long the `call` of one of `tasks` has taken by now; None: there is none."""
        return None if task.call_since_ms is None else max(self.now_ms - task.call_since_ms, 0)


class ViewOfWorker:
    """A worker's whole view, put together from answers that tell only what has changed.

    Ask the worker with `mark` as `DescribeWorker.seen`, and give the answer to `take`.
    """

    def __init__(self) -> None:
        self.mark = ""
        """Mark of the last answer. Empty: there is none, and the next answer tells everything."""
        self.changed = 0
        """Number of connectors and tasks in the last answer."""
        self._connectors: Mapping[str, State] = {}
        self._tasks: dict[TaskId, TaskView] = {}
        self._views: tuple[TaskView, ...] = ()

    def take(self, told: WorkerView) -> WorkerView:
        """Return the whole view after an answer to a question with `mark`. What has not changed is
        the same object as before."""
        if not told.since:
            self._connectors, self._tasks = told.connectors, {}
        elif told.connectors or told.gone_connectors:
            # A copy, so that earlier views stay as they were.
            self._connectors = _changed(self._connectors, told.connectors, told.gone_connectors)
        if told.tasks or told.gone_tasks or not told.since:
            new = {view.task: view for view in told.tasks}
            self._tasks = _changed(self._tasks, new, told.gone_tasks)
            self._views = tuple(self._tasks.values())
        self.mark = told.mark
        self.changed = len(told.connectors) + len(told.tasks)
        return replace(
            told,
            connectors=self._connectors,
            tasks=self._views,
            since="",
            gone_connectors=(),
            gone_tasks=(),
        )


def _changed(known: Mapping[K, V], new: Mapping[K, V], gone: Iterable[K]) -> dict[K, V]:
    made = dict(known)
    for key in gone:
        made.pop(key, None)
    before = len(made)
    made.update(new)
    if len(made) == before:
        return made
    return {key: made[key] for key in sorted(made)}
