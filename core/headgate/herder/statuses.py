"""Statuses that this worker writes, and the leader's clean-up of those that nobody owns any more.

Source: Connect's AbstractHerder (onStartup, onFailure, ...), DistributedHerder.updateDeletedStatus;
KIP-558 (topics that a connector has used).

Differs:

- The leader also removes a status as soon as it reads one of something that is not configured. Java
  does so at the next rebalance only.
- The leader writes each tombstone once, unless it reads another record of the key after that.
- A used topic is written once. Java writes it for every record until the first write is read back.
- The leader, not every former owner, removes the used topics of a deleted connector.
- A late status of a former owner does not stay the last one: the present owner writes its own
  again. The former owner may have been frozen or cut off, or have given up a task that had not
  started yet.
- The present owner also writes its status again after a removal that was meant for a deleted
  connector of the same name.
- The removal of a connector's status hides those of its tasks from readers. The leader removes
  these too.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from headgate.herder.context import NO_CONFIG, Context, StatusUnheard
from headgate.herder.messages import WriteStatus
from headgate.ids import State, TaskId
from headgate.topics import status as st
from headgate.topics.config_state import ConfigState

_SAFE = (State.UNASSIGNED, State.FAILED)
"""States that are written only if they cannot hide a status of a later owner. Source: Connect's
KafkaStatusBackingStore.putSafe."""


UNHEARD_MS: Final = 5_000
"""Time within which a worker reads back the status that it wrote, unless that was compacted away. A
status that was not read back by then is written once more, which costs a record."""

TRACE_CHARS_MAX: Final = 50_000
"""Length limit of a trace in a status. Java writes the whole trace. But a broker refuses a record
of more than a megabyte: it would never be written, and would block the statuses that wait with
it."""


def shortened(trace: str) -> str:
    """Return `trace`, without its middle if it is too long: the cause stands at one of its ends."""
    if len(trace) <= TRACE_CHARS_MAX:
        return trace
    half = TRACE_CHARS_MAX // 2
    left_out = len(trace) - 2 * half
    return f"{trace[:half]}\n... {left_out} characters left out ...\n{trace[-half:]}"


class Statuses:
    """All statuses as read, and those that this worker writes of its own work."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._connectors: dict[str, st.Status] = {}
        self._tasks: dict[str, dict[int, st.Status]] = {}
        """Task statuses as read, possibly stale, by connector and number. They are changed in
        place. Folding each record into an immutable view of 100,000 tasks would copy that view."""
        self._topics: dict[str, dict[str, st.TopicActivity]] = {}
        """Topics used, by connector and topic."""
        self._topics_written: set[str] = set()
        """Keys of used topics that were written and not read back yet."""
        self._generation = 0
        """Last generation that this worker was a member of. Its statuses carry that even after it
        has left the group, or was left out of it."""
        self._own: dict[str, tuple[st.Status, bytes]] = {}
        """This worker's last status under each key that it owns, and its encoded value."""
        self._unheard: dict[str, tuple[str | TaskId, int]] = {}
        """Connectors and tasks, by key, whose own status may be hidden by another one that was
        read. With each, the latest generation of the statuses of it that were read."""
        self._held_back: dict[str, int] = {}
        """Highest config offset that statuses may tell, by connector, because a restart that was
        read is not carried out yet."""
        self._versions: dict[str, str | None] = {}
        """Versions that connector instances on this worker have told, by connector."""
        self._said_again: set[str] = set()
        """Keys of statuses that were written again after a removal, or after a status of another
        worker that is not older. Each is written again only once. A worker that removes it twice
        has read a reason that this worker has yet to read. And two workers that both think the work
        theirs would answer each other for ever."""
        self._tombstones: set[str] = set()
        """Keys whose tombstone was written, and of which nothing was read since."""
        self._changed: dict[str, None] = {}
        """Connectors that were removed, or got other tasks, since the last clean-up."""
        self._orphans: dict[str, str | TaskId] = {}
        """Connectors and tasks, by key, of which the log has a record that is not shown, or that
        was not configured when it was read. The removal of a connector's status hides those of its
        tasks from readers, but removes none of them."""

    @property
    def view(self) -> st.StatusView:
        """The statuses as read so far. It shares this object's tables, so do not keep it."""
        return st.StatusView(self._connectors, self._tasks, self._topics)

    def disagreements(self) -> Iterator[str]:
        """Yield, in words, which keys are watched or written again without an own status."""
        for name, keys in (("unheard", self._unheard), ("said again", self._said_again)):
            if extra := sorted(set(keys) - set(self._own)):
                yield f"statuses {name} of what is not said here: {extra[:5]}"

    def membership_changed(self) -> None:
        if self._ctx.membership.generation >= 0:
            self._generation = self._ctx.membership.generation

    # -- writing --

    def restarts_of(self, work: str | TaskId) -> int:
        """Return the restarts in a row of a connector or task, by the last status that was read."""
        if isinstance(work, TaskId):
            known = self._tasks.get(work.connector, {}).get(work.task)
        else:
            known = self._connectors.get(work)
        return 0 if known is None else known.restarts

    def write_connector(
        self,
        name: str,
        state: State,
        trace: str | None = None,
        *,
        restarts: int = 0,
        tasks_known: bool = True,
    ) -> None:
        """Write the status of a connector. `tasks_known` False: it is not known yet which tasks it
        will have. `take_account` is called when it is."""
        status = self._status(name, state, trace, restarts)
        if not tasks_known:
            status = replace(status, config_offset=0)
        safe = state in _SAFE
        if st.may_write(self._connectors.get(name), status, safe=safe, assigned_to_me=True):
            self._write(st.encode_connector_status(name, status), status)

    def write_task(
        self, task: TaskId, state: State, trace: str | None = None, *, restarts: int = 0
    ) -> None:
        status = self._status(task.connector, state, trace, restarts)
        known = self._tasks.get(task.connector, {}).get(task.task)
        if st.may_write(known, status, safe=state in _SAFE, assigned_to_me=True):
            self._write(st.encode_task_status(task, status), status)

    def take_account(self, item: str | TaskId, config_offset: int | None = None) -> None:
        """Write the last status of `item` again, with the present config offset: it takes account
        of what was read since, too.

        Args:
            config_offset: write only if the last status takes account of less than that. None:
                always.
        """
        name, key = (
            (item.connector, st.task_key(item))
            if isinstance(item, TaskId)
            else (item, st.connector_key(item))
        )
        own, _ = self._own.get(key, (None, b""))
        if own is None or own.config_offset is None:
            return
        if config_offset is not None and own.config_offset >= config_offset:
            return
        status = replace(own, config_offset=self._config_offset(name))
        encode = st.encode_task_status(item, status) if isinstance(item, TaskId) else None
        self._write(encode or st.encode_connector_status(name, status), status)

    def hold_back(self, connector: str, config_offset: int) -> None:
        """Let statuses tell no more than `config_offset`: a restart there is not carried out
        yet."""
        self._held_back.setdefault(connector, config_offset)

    def held_back_no_more(self) -> None:
        """Lift all holds, because every restart that was read is carried out."""
        self._held_back.clear()

    def _config_offset(self, connector: str) -> int:
        return self._held_back.get(connector, self._ctx.state.offset)

    def _write(self, record: tuple[str, bytes], status: st.Status) -> None:
        key, value = record
        self._tombstones.discard(key)
        self._forget(key)
        self._own[key] = status, value
        self._ctx.emit(WriteStatus(key, value))

    def connector_gone(self, name: str) -> None:
        """Forget a connector that this worker does not hold any more, after its last status."""
        self._versions.pop(name, None)
        self._forget(st.connector_key(name))

    def task_gone(self, task: TaskId) -> None:
        self._forget(st.task_key(task))

    def _forget(self, key: str) -> None:
        self._own.pop(key, None)
        self._said_again.discard(key)
        self._unheard.pop(key, None)

    def _status(self, connector: str, state: State, trace: str | None, restarts: int) -> st.Status:
        ctx = self._ctx
        self.membership_changed()  # or is just changing
        entry = ctx.state.entry(connector)
        config = entry.config if entry is not None else None
        version = ctx.settings.version(config if config is not None else NO_CONFIG)
        if version is None:
            version = self._version_of(connector)
        shown = None if trace is None else shortened(trace)
        worker = ctx.settings.worker_id
        offset = self._config_offset(connector)
        return st.Status(state, worker, self._generation, shown, version, restarts, offset)

    def version_told(self, connector: str, version: str | None) -> None:
        """Note the version of the class of a connector that has started here."""
        self._versions[connector] = version

    def _version_of(self, connector: str) -> str | None:
        """Return the version of a class that is not among the plugins. The instance here tells it,
        or else the connector's last status, by another worker."""
        if connector in self._versions:
            return self._versions[connector]
        known = self._connectors.get(connector)
        return None if known is None else known.version

    # -- topics --

    def topics_used(self, task: TaskId, topics: Iterable[str]) -> None:
        """Write which topics a task has used, unless that is known. Ignored if the connector is not
        configured."""
        name = task.connector
        if not self._ctx.settings.topic_tracking or self._ctx.state.entry(name) is None:
            return
        known = self._topics.get(name, {})
        for topic in topics:
            key = st.topic_key(topic, name)
            if topic in known or key in self._topics_written:
                continue
            self._topics_written.add(key)
            self._tombstones.discard(key)
            activity = st.TopicActivity(topic, name, task.task, self._ctx.wall_ms)
            self._ctx.emit(WriteStatus(*st.encode_topic_activity(activity)))

    def reset_topics(self, name: str) -> None:
        """Remove the topics that the connector has used. Topics that its tasks go on to use come
        back with their next progress."""
        for topic in sorted(self._topics.get(name, {})):
            self._remove(st.topic_key(topic, name))

    # -- reading --

    def on_read(self, records: tuple[tuple[str, st.StatusEvent], ...], *, leading: bool) -> None:
        """Fold records of the status topic, and answer those that hide statuses of this worker.

        `leading`: this worker is the log's only writer and has read all of it, so what it does not
        know does not exist. A leader that is still reading looks for orphans later (`clean_up`).
        """
        for key, event in records:
            # Any record of the key counts: of a tombstone, or of a used topic, a compacted log may
            # keep only the record that came after it.
            self._tombstones.discard(key)
            self._topics_written.discard(key)
            self._orphans.pop(key, None)
            self._say_again(event)
            self._look_for_orphans(event)
            self._fold(event)
        if leading:
            self._remove_orphans([key for key, _ in records])

    def _look_for_orphans(self, event: st.StatusEvent) -> None:
        state = self._ctx.state
        match event:
            case st.ConnectorStatusReported(name, _) if state.entry(name) is None:
                self._orphans[st.connector_key(name)] = name
            case st.TaskStatusReported(task, _) if not _task_configured(state, task):
                self._orphans[st.task_key(task)] = task
            case st.TopicUsed(topic, name, _) if state.entry(name) is None:
                self._orphans[st.topic_key(topic, name)] = name
            case st.ConnectorStatusRemoved(name):
                for number in self._tasks.get(name, {}):
                    task = TaskId(name, number)
                    self._orphans[st.task_key(task)] = task
            case _:
                pass

    def _say_again(self, event: st.StatusEvent) -> None:
        """Write this worker's status again if a record hides it. A former owner may write about
        work that is this worker's by now. A status may be removed because its work was not
        configured for a while. Compaction would keep that record alone."""
        state = self._ctx.state
        match event:
            case st.ConnectorStatusReported(name, status):
                self._say_connector(name, status)
            case st.TaskStatusReported(task, status):
                self._say_task(task, status)
            case st.ConnectorStatusRemoved(name) if state.entry(name) is not None:
                self._say_connector(name, None)
                for number in sorted(self._tasks.get(name, {})):
                    self._say_task(TaskId(name, number), None)
            case st.TaskStatusRemoved(task) if _task_configured(state, task):
                self._say_task(task, None)
            case _:
                pass

    def _say_connector(self, name: str, over: st.Status | None) -> None:
        self._answer(st.connector_key(name), name, over)

    def _say_task(self, task: TaskId, over: st.Status | None) -> None:
        self._answer(st.task_key(task), task, over)

    def _answer(self, key: str, item: str | TaskId, over: st.Status | None) -> None:
        """Write this worker's last status of `item` again if `over` hides it. `over` is a late
        status, or None for a removal.

        In a generation that this worker has been in, no other worker has the work that it holds.
        But another worker may still write a status of it. A Java worker that gave up a task while
        the task started writes RUNNING once the start is over, with its generation of then.

        In two cases it first waits `UNHEARD_MS`. In the first, the status read before is not this
        worker's own. That one may be still to come, or gone, since a compacted log shows only the
        last record of a key. In the second, a status has a generation that this worker has yet to
        hear of, which may have made `item` another worker's.
        """
        if key not in self._own:
            return
        own, _ = self._own[key]
        known = self._known(item)
        spoken = max(-1 if status is None else status.generation for status in (known, over))
        if over is not None and over == replace(own, trace=over.trace):
            self._unheard.pop(key, None)  # the trace may differ: a journal keeps none
        elif self._is_mine(over):
            pass
        elif key in self._unheard:
            self._unheard[key] = item, max(self._unheard[key][1], spoken)
        elif self._is_mine(known) and spoken <= self._generation:
            self._repeat(key, over)
        else:
            self._unheard[key] = item, spoken
            self._ctx.after(UNHEARD_MS, StatusUnheard(key))

    def on_unheard(self, key: str) -> None:
        """Write the status under `key` again after `UNHEARD_MS`, if it was not read back. By then
        the item may be another worker's, or not configured."""
        item, spoken = self._unheard.pop(key, (None, -1))
        if item is None or not self._ctx.membership.alive:
            return
        if self._configured(item) and spoken <= self._generation:
            self._repeat(key, self._known(item))

    def _is_mine(self, status: st.Status | None) -> bool:
        return status is not None and status.worker_id == self._ctx.settings.worker_id

    def _known(self, item: str | TaskId) -> st.Status | None:
        if isinstance(item, TaskId):
            return self._tasks.get(item.connector, {}).get(item.task)
        return self._connectors.get(item)

    def _configured(self, item: str | TaskId) -> bool:
        state = self._ctx.state
        if isinstance(item, TaskId):
            return _task_configured(state, item)
        return state.entry(item) is not None

    def _repeat(self, key: str, over: st.Status | None) -> None:
        """Write again the status that `over` hides, None for a removal."""
        own, value = self._own[key]
        older = over is not None and over.generation < own.generation
        if not older and key in self._said_again:
            return
        if not older:
            self._said_again.add(key)
        self._ctx.emit(WriteStatus(key, value))

    def _fold(self, event: st.StatusEvent) -> None:
        match event:
            case st.ConnectorStatusReported(name, status):
                self._connectors[name] = status
            case st.ConnectorStatusRemoved(name):
                self._connectors.pop(name, None)
                self._tasks.pop(name, None)
            case st.TaskStatusReported(task, status):
                group = self._tasks.setdefault(task.connector, {})
                if not st.is_late(group.get(task.task), status):
                    group[task.task] = status
            case st.TaskStatusRemoved(task):
                self._tasks.get(task.connector, {}).pop(task.task, None)
            case st.TopicUsed(topic, name, activity):
                self._topics.setdefault(name, {})[topic] = activity
            case st.TopicReset(topic, name):
                self._topics.get(name, {}).pop(topic, None)
            case st.StatusRejected():
                pass  # a record that nobody can use changes nothing

    # -- the leader's clean-up --

    def connector_changed(self, name: str) -> None:
        """Note for the next clean-up that a connector was removed or has other tasks. Its former
        owners are about to write that themselves."""
        self._changed[name] = None

    def clean_up(self, *, everything: bool) -> None:
        """Write tombstones for statuses of what is not configured, after a round, as Java does.

        `everything`: look at all known statuses, as a worker must that begins to lead. Otherwise
        only at those of changed connectors.
        """
        if everything:
            self._changed.update(dict.fromkeys([*self._connectors, *self._tasks, *self._topics]))
        for name in sorted(self._changed):
            self._clean_up_connector(name)
        self._changed.clear()
        self._remove_orphans(list(self._orphans))

    def _clean_up_connector(self, name: str) -> None:
        """Remove statuses of what is not configured: topics and tasks first, then the connector."""
        state = self._ctx.state
        if state.entry(name) is None:
            self.reset_topics(name)
        for number in sorted(self._tasks.get(name, {})):
            if not _task_configured(state, TaskId(name, number)):
                self._remove(st.task_key(TaskId(name, number)))
        if name in self._connectors and state.entry(name) is None:
            self._remove(st.connector_key(name))

    def _remove_orphans(self, keys: Iterable[str]) -> None:
        """Remove those of these keys whose connector or task is not configured. A key whose
        connector or task is configured and shown is no orphan any more."""
        state = self._ctx.state
        for key in keys:
            match self._orphans.get(key):
                case None:
                    continue
                case TaskId() as task:
                    configured = _task_configured(state, task)
                    shown = configured and task.task in self._tasks.get(task.connector, {})
                case name:
                    configured = shown = state.entry(name) is not None
            if not configured:
                self._remove(key)
            if shown or not configured:
                del self._orphans[key]

    def _remove(self, key: str) -> None:
        if key not in self._tombstones:
            self._tombstones.add(key)
            self._ctx.emit(WriteStatus(key, None))


def _task_configured(state: ConfigState, task: TaskId) -> bool:
    return state.task_config(task) is not None
