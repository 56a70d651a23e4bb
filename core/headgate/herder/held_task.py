"""A task that a worker holds: its state, the spec of its next run, and its view."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headgate.herder.context import Context
from headgate.herder.messages import TaskView
from headgate.herder.news import News
from headgate.herder.task_table import SHOWN, TaskState
from headgate.ids import State, TargetState, TaskId
from headgate.task.messages import (
    LongCall,
    TaskEnded,
    TaskKind,
    TaskOutcome,
    TaskProgress,
    TaskSpec,
)
from headgate.topics.config_events import Config
from headgate.topics.config_state import ConnectorEntry
from headgate.topics.fencing import transactional_id

NO_PROGRESS: Final = TaskProgress(0, 0, False)


@dataclass(slots=True)
class HeldTask:
    task: TaskId
    state: TaskState = TaskState.IDLE
    run: str = ""
    """The run that is alive, or the last one."""
    commit_offset: int | None = None
    """Task generation that the run was started for."""
    target_told: TargetState = TargetState.STARTED
    """Target state that the run was last told."""
    revoked: bool = False
    stop_requested: bool = False
    """This worker asked the present run to stop: how it ends says nothing about the task."""
    reached: bool = False
    """A run with the present task configs has reported something other than its end."""
    ended: TaskEnded | None = None
    """Last report of the present run, or the herder's own verdict on it."""
    progress: TaskProgress = NO_PROGRESS
    topics: tuple[str, ...] = ()
    """Topics that the run has used."""
    attempts: int = 0
    """How often the task was started again after it was fenced or lost."""
    failures: int = 0
    """Attempts since the task last ran for a while. The backoff depends on them."""
    restarts: int = 0
    """Restarts in a row by the restart policy."""
    counted: bool = False
    """`restarts` is known: it continues the last owner's count, or begins anew."""
    restart_at_ms: int | None = None
    """When the restart policy starts the task again; None: it does not."""
    running_since_ms: int | None = None
    moved_ms: int | None = None
    """When the run last moved records, or began; None before that."""
    call: str = ""
    """Method of the connector's code that has not returned for long; empty: none."""
    call_since_ms: int | None = None
    tickets: tuple[int, ...] = ()
    """Tickets of restart requests, which are answered at the next start."""
    show_restarting: bool = False
    """The stop is part of a restart, and the status becomes RESTARTING after it."""
    log_read: bool = False
    """The run was fenced, and the log was read to its end since."""
    confirmed: bool = False
    """The run was fenced, and the membership was confirmed since."""
    fenced_ms: int = 0


class HeldTasks:
    """The tasks that a worker holds.

    An assignment may bring 100,000 tasks in one command, and only some are started within it. So a
    `HeldTask` is made when it is first asked for.

    A caller that gets a task by anything but `look` may change it, so the task counts as news.
    """

    def __init__(self, news: News) -> None:
        self._news = news
        self._known: dict[TaskId, HeldTask | None] = {}
        self._by_connector: dict[str, dict[TaskId, None]] = {}

    def add(self, tasks: Iterable[TaskId]) -> Mapping[TaskId, None]:
        """Hold these tasks, too. Return those that were not held before."""
        known = self._known
        new = dict.fromkeys([task for task in tasks if task not in known])
        known.update(new)
        self._news.came(new)
        connector, siblings = "", dict[TaskId, None]()
        for task in new:
            if task.connector != connector:
                connector = task.connector
                siblings = self._by_connector.setdefault(connector, {})
            siblings[task] = None
        return new

    def remove(self, task: TaskId) -> None:
        del self._known[task]
        self._news.went(task)
        siblings = self._by_connector[task.connector]
        del siblings[task]
        if not siblings:
            del self._by_connector[task.connector]

    def get(self, task: TaskId) -> HeldTask | None:
        return self[task] if task in self._known else None

    def of(self, connector: str) -> list[HeldTask]:
        return [self[task] for task in self._by_connector.get(connector, ())]

    def disagreements(self) -> Iterator[str]:
        """Yield, in words, where the two tables contradict each other."""
        listed = {task for siblings in self._by_connector.values() for task in siblings}
        if listed != set(self._known):
            yield f"{len(listed)} tasks are listed by connector, {len(self._known)} are held"
        for connector, siblings in self._by_connector.items():
            if not siblings or any(task.connector != connector for task in siblings):
                yield f"under connector {connector} are listed {list(map(str, siblings))}"
        for task, held in self._known.items():
            if held is not None and held.task != task:
                yield f"{held.task} is held as {task}"

    def __getitem__(self, task: TaskId) -> HeldTask:
        self._news.changed(task)
        return self.look(task)

    def look(self, task: TaskId) -> HeldTask:
        """Return a held task, which the caller must not change."""
        held = self._known[task]
        if held is None:
            held = self._known[task] = HeldTask(task)
        return held

    def __contains__(self, task: TaskId) -> bool:
        return task in self._known

    def __iter__(self) -> Iterator[TaskId]:
        return iter(self._known)


def begin_anew(held: HeldTask) -> None:
    """Begin the counts anew, after a request for a start or with other task configs."""
    held.attempts = held.failures = held.restarts = 0
    held.counted = True


def task_spec(ctx: Context, held: HeldTask, entry: ConnectorEntry) -> TaskSpec:
    """Return the spec that the body of the task's next run is given."""
    settings, membership, task = ctx.settings, ctx.membership, held.task
    # The config that the committed task configs were made of: a newer one is in force for
    # tasks once it has task configs of its own.
    connector_config = entry.applied if entry.applied is not None else entry.config
    assert connector_config is not None
    kind = settings.kind(connector_config)
    exactly_once = settings.exactly_once and kind is TaskKind.SOURCE
    return TaskSpec(
        run=held.run,
        task=task,
        kind=kind,
        connector_config=_texts(connector_config),
        task_config=_texts(entry.tasks[task.task]),
        target_state=ctx.state.target_state(task.connector),
        commit_offset=entry.commit_offset if entry.commit_offset is not None else -1,
        exactly_once=exactly_once,
        transactional_id=transactional_id(settings.group, task.connector, task.task)
        if exactly_once
        else None,
        group=settings.group,
        member_id=membership.member_id,
        generation=membership.generation,
        worker_id=settings.worker_id,
        worker_settings=settings.worker_settings,
        transport=settings.transport,
        reached=held.reached,
    )


def note_call(held: HeldTask, call: LongCall, now_ms: int) -> None:
    """Keep the body's last report on a call of the connector's code. It counts until the next
    one."""
    held.call = call.method
    held.call_since_ms = now_ms - call.took_ms if call.method else None


def has_failed(held: HeldTask) -> bool:
    """Return whether the run's last report is a failure. Parts of the run may still be alive."""
    ended = held.ended
    if ended is None or ended.outcome is not TaskOutcome.FAILED or held.stop_requested:
        return False
    return held.state in (TaskState.ENDING, TaskState.FAILED)


def _is_failing(held: HeldTask) -> bool:
    """Return whether a failed run still has parts alive. The task is FAILED, with its reason, after
    that."""
    return held.state is TaskState.ENDING and has_failed(held)


def task_view(held: HeldTask) -> TaskView:
    progress = held.progress
    detail = progress.detail
    if not detail and held.ended is not None and not _is_failing(held):
        detail = held.ended.reason
    return TaskView(
        held.task,
        SHOWN.get(held.state, State.UNASSIGNED),
        progress.records,
        progress.skipped,
        progress.idle and held.state is TaskState.RUNNING,
        held.attempts,
        detail,
        held.restarts,
        held.restart_at_ms if held.state is TaskState.FAILED else None,
        held.moved_ms,
        progress.quarantined,
        progress.batch,
        progress.commits,
        held.call,
        held.call_since_ms,
        progress.measured,
    )


def _texts(config: Config) -> dict[str, str]:
    """Return a config as tasks get it: keys without a value are left out, as if never given."""
    return {key: value for key, value in config.items() if value is not None}
