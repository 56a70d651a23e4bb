"""What a worker shows of itself, all of it or what has changed since it was asked before.

Part of `headgate.herder.messages`, from where the others import it too. It travels as JSON (see
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
    task: TaskId
    state: State
    records: int
    skipped: int
    idle: bool
    attempts: int
    """How often it was started anew after being fenced or lost."""
    detail: str
    restarts: int = 0
    """Restarts in a row by the restart policy."""
    restart_at_ms: int | None = None
    """When a FAILED task is started anew, by the worker's monotonic clock; None: it is not."""
    moved_ms: int | None = None
    """When the run last moved records, or began, by the worker's monotonic clock; None: it has not
    begun."""
    quarantined: tuple[str, ...] = ()
    """Inputs that the task has set aside and does not read, each with its reason."""
    batch: BatchDone | None = None
    """The last batch of a task of planned batches."""
    commits: int = 0
    """Commits of this run that had records."""
    call: str = ""
    """The method of the connector that has not returned for long; empty: there is none."""
    call_since_ms: int | None = None
    """When it was called, by the worker's monotonic clock."""
    measured: Measured | None = None
    """None: the body measures nothing."""


@dataclass(frozen=True, slots=True)
class LoopBusy:
    """How long the thread of a worker's herder has been busy: heartbeats and answers wait for
    that."""

    commands: int
    """Commands that it has handled."""
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
    """How long the rebalances of a worker took. Times are of the worker's monotonic clock."""

    count: int = 0
    """Rebalances that are over."""
    took_ms: int = 0
    """Time of all of them."""
    took_ms_max: int = 0
    """Time of the longest of those that ended in the last one or two minutes."""
    ended_ms: int | None = None
    """When the last one was over; None: none is yet."""
    began_ms: int | None = None
    """When the one that is under way began; None: none is."""


@dataclass(frozen=True, slots=True)
class Startups:
    """Starts of connectors and tasks on a worker, by how they ended. One that is stopped before its
    `start` has returned is left out."""

    connectors: int = 0
    failed_connectors: int = 0
    tasks: int = 0
    failed_tasks: int = 0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What `DescribeWorker` answers."""

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
    """What to ask with for what changes from now on; empty: it was not asked to tell that."""
    since: str = ""
    """The mark that was asked with: `connectors` and `tasks` have only what has changed since.
    Empty: they have all."""
    gone_connectors: tuple[str, ...] = ()
    """With `since`: connectors that the worker has no more."""
    gone_tasks: tuple[TaskId, ...] = ()
    """With `since`: tasks that the worker has no more."""
    fencing_rounds: int = 0
    """Rounds of fencing by this worker, as leader, that have shut producers out (KIP-618)."""
    failed_fencing_rounds: int = 0
    loop: LoopBusy | None = None
    """None: whoever serves the herder does not measure it."""
    rebalance_times: Rebalances = Rebalances()
    startups: Startups = Startups()
    connector_calls: tuple[ConnectorCall, ...] = ()

    def quiet_ms(self, task: TaskView) -> int | None:
        """Time since the run of one of `tasks` last moved records, or began; None: it has not
        begun."""
        return None if task.moved_ms is None else max(self.now_ms - task.moved_ms, 0)

    def call_ms(self, task: TaskView) -> int | None:
        """How long the `call` of one of `tasks` has taken by now; None: there is none."""
        return None if task.call_since_ms is None else max(self.now_ms - task.call_since_ms, 0)


class ViewOfWorker:
    """One worker's view, put together from what it tells.

    Ask it with `mark`, and `take` the answer.
    """

    def __init__(self) -> None:
        self.mark = ""
        """Mark of the last answer; empty: there is none, and all is to be told."""
        self.changed = 0
        """How many connectors and tasks the last answer told of."""
        self._connectors: Mapping[str, State] = {}
        self._tasks: dict[TaskId, TaskView] = {}
        self._views: tuple[TaskView, ...] = ()

    def take(self, told: WorkerView) -> WorkerView:
        """The whole view after an answer to a question with `mark`. What has not changed is the
        same object as before."""
        if not told.since:
            self._connectors, self._tasks = told.connectors, {}
        elif told.connectors or told.gone_connectors:
            # A copy: views of before keep theirs.
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
