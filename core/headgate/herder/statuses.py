"""Statuses that this worker writes, and the leader's clean-up of those that nobody owns any more.

Source: Connect's AbstractHerder (onStartup, onFailure, ...), DistributedHerder.updateDeletedStatus.
Differs: the leader also removes a status as soon as it reads one of something that is not
configured (Java: at the next rebalance only), and each tombstone is written once.
"""

from headgate.herder.context import NO_CONFIG, Context
from headgate.herder.messages import WriteStatus
from headgate.ids import State, TaskId
from headgate.state import ConfigState
from headgate.status import (
    ConnectorStatusRemoved,
    ConnectorStatusReported,
    Status,
    StatusEvent,
    TaskStatusRemoved,
    TaskStatusReported,
    connector_key,
    decode_status,
    encode_connector_status,
    encode_task_status,
    is_late,
    may_write,
    task_key,
)

_SAFE = (State.UNASSIGNED, State.FAILED)
"""Written only where they cannot hide what a later owner said. Source: Connect's
KafkaStatusBackingStore.putSafe."""


class Statuses:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._connectors: dict[str, Status] = {}
        self._tasks: dict[str, dict[int, Status]] = {}
        """As read, possibly stale. In place: a status topic has one record per item and change, and
        folding single records over an immutable view of 100,000 tasks would cost its copy."""
        self._tombstones: set[str] = set()
        """Keys whose tombstone was written and not read back yet."""
        self._changed: dict[str, None] = {}
        """Connectors that were removed, or got other tasks, since the last clean-up."""

    # -- writing --

    def write_connector(self, name: str, state: State, trace: str | None = None) -> None:
        status = self._status(name, state, trace)
        safe = state in _SAFE
        if may_write(self._connectors.get(name), status, safe=safe, assigned_to_me=True):
            self._tombstones.discard(connector_key(name))
            self._ctx.emit(WriteStatus(*encode_connector_status(name, status)))

    def write_task(self, task: TaskId, state: State, trace: str | None = None) -> None:
        status = self._status(task.connector, state, trace)
        known = self._tasks.get(task.connector, {}).get(task.task)
        if may_write(known, status, safe=state in _SAFE, assigned_to_me=True):
            self._tombstones.discard(task_key(task))
            self._ctx.emit(WriteStatus(*encode_task_status(task, status)))

    def _status(self, connector: str, state: State, trace: str | None) -> Status:
        ctx = self._ctx
        entry = ctx.state.entry(connector)
        config = entry.config if entry is not None else None
        version = ctx.settings.version(config if config is not None else NO_CONFIG)
        return Status(
            state, ctx.settings.worker_id, max(ctx.standing.generation, 0), trace, version
        )

    # -- reading --

    def on_read(self, records: tuple[tuple[str, bytes | None], ...], *, leading: bool) -> None:
        """`leading`: this worker is the log's only writer and has read it all, so that what it does
        not know does not exist."""
        for key, value in records:
            if value is None:
                self._tombstones.discard(key)
            event = decode_status(key, value)
            self._fold(event)
            if leading:
                self._remove_if_orphan(event)

    def _fold(self, event: StatusEvent) -> None:
        match event:
            case ConnectorStatusReported(name, status):
                self._connectors[name] = status
            case ConnectorStatusRemoved(name):
                self._connectors.pop(name, None)
                self._tasks.pop(name, None)
            case TaskStatusReported(task, status):
                group = self._tasks.setdefault(task.connector, {})
                if not is_late(group.get(task.task), status):
                    group[task.task] = status
            case TaskStatusRemoved(task):
                self._tasks.get(task.connector, {}).pop(task.task, None)
            case _:
                pass  # topics are not tracked yet; a malformed record costs itself alone

    # -- the leader's clean-up --

    def connector_changed(self, name: str) -> None:
        """It was removed, or has other tasks. Its former owners are about to say so themselves."""
        self._changed[name] = None

    def clean_up(self, *, everything: bool) -> None:
        """Tombstones for what is not configured, after a round, as Java does it.

        `everything`: looks at all known statuses, as a worker must that begins to lead; else at
        those of changed connectors.
        """
        names = {*self._connectors, *self._tasks} if everything else self._changed
        for name in sorted(names):
            self._clean_up_connector(name)
        self._changed.clear()

    def _clean_up_connector(self, name: str) -> None:
        """Its tasks first, then itself."""
        state = self._ctx.state
        for number in sorted(self._tasks.get(name, {})):
            if not _task_configured(state, TaskId(name, number)):
                self._remove(task_key(TaskId(name, number)))
        if name in self._connectors and state.entry(name) is None:
            self._remove(connector_key(name))

    def _remove_if_orphan(self, event: StatusEvent) -> None:
        state = self._ctx.state
        match event:
            case ConnectorStatusReported(name, _) if state.entry(name) is None:
                self._remove(connector_key(name))
            case TaskStatusReported(task, _) if not _task_configured(state, task):
                self._remove(task_key(task))
            case _:
                pass

    def _remove(self, key: str) -> None:
        if key not in self._tombstones:
            self._tombstones.add(key)
            self._ctx.emit(WriteStatus(key, None))


def _task_configured(state: ConfigState, task: TaskId) -> bool:
    return state.task_config(task) is not None
