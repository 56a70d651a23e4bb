"""Events of the config topic to state, by the rules of Java's reader, `KafkaConfigBackingStore`.

Nothing else makes a `ConfigState`. Every reader of the same records must hold the same state,
Java's included, so odd records are read by Java's rule: a commit whose task configs are incomplete
(the log was compacted, or a commit was written twice) makes the connector inconsistent, and
repairing it is the herder's work, not the reader's.

What outlives a connector's tombstone: its task count record and whether fencing is pending (a
connector made again under the same name must fence the producers of its namesake), its task
generation, its inconsistency, and its target state, which has a tombstone of its own.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from headgate.errors import LogOrderError
from headgate.topics.config_events import (
    Config,
    ConfigEvent,
    ConnectorConfigured,
    ConnectorRemoved,
    LoggerLevelChanged,
    RecordRejected,
    RestartRequested,
    SessionKeyChanged,
    TargetStateChanged,
    TargetStateRemoved,
    TaskConfigured,
    TaskCountRecorded,
    TasksCommitted,
)
from headgate.topics.config_state import EMPTY, ConfigState, ConnectorEntry
from headgate.topics.rejected import REJECTED_KEPT

REPLAY_BATCH: Final = 1_000
"""How many records of a long log to decode and fold at a time: what is decoded is folded while the
processor still has it at hand. A third cheaper than 5,000; fewer would copy the index too often."""
_COMMIT_PREFIX: Final = "commit-"


def apply(state: ConfigState, event: ConfigEvent) -> ConfigState:
    """The state after one event. Dear: fold events as they were polled."""
    return fold(state, (event,))


def fold(state: ConfigState, events: Iterable[ConfigEvent]) -> ConfigState:
    """The state after `events`, the same in any batching. `state` is left as it was.

    Args:
        events: of records with rising offsets; holes are normal (transaction markers, compaction).

    Raises:
        LogOrderError: an event's offset does not rise.

    Cost: O(events), plus a copy of the connector index, plus per connector touched a copy of its
    deferred task configs. Replay in batches of `REPLAY_BATCH`.
    """
    draft = _Draft(state)
    handlers = _HANDLERS
    end = state.offset
    for event in events:
        offset = event.offset
        if offset < end:
            raise LogOrderError(
                f"record at offset {offset} after the config offset {end} had been reached; "
                "offsets must rise: hand over records in log order, each once"
            )
        handlers[type(event)](draft, event)
        if type(event) is not RecordRejected or event.advances:
            end = offset + 1
    return draft.freeze(end)


class _Entry:
    """A `ConnectorEntry` while it is being written. `deferred_owned` is the draft's own copy of
    `deferred`, made when it is first written to."""

    __slots__ = (
        "applied",
        "commit_offset",
        "config",
        "configured_at",
        "deferred",
        "deferred_owned",
        "deferred_seen",
        "fencing_count",
        "fencing_pending",
        "inconsistent",
        "restarted_at",
        "target_state",
        "target_state_at",
        "task_count",
        "task_generation",
        "tasks",
        "tasks_restarted_at",
    )

    def __init__(self, frozen: ConnectorEntry) -> None:
        self.config = frozen.config
        self.target_state = frozen.target_state
        self.tasks = frozen.tasks
        self.task_count = frozen.task_count
        self.deferred = frozen.deferred
        self.deferred_owned: dict[int, Config] | None = None
        self.deferred_seen = frozen.deferred_seen
        self.inconsistent = frozen.inconsistent
        self.task_generation = frozen.task_generation
        self.commit_offset = frozen.commit_offset
        self.applied = frozen.applied
        self.fencing_count = frozen.fencing_count
        self.fencing_pending = frozen.fencing_pending
        self.configured_at = frozen.configured_at
        self.target_state_at = frozen.target_state_at
        self.restarted_at = frozen.restarted_at
        self.tasks_restarted_at = frozen.tasks_restarted_at

    def defer(self, task: int, config: Config) -> None:
        owned = self.deferred_owned
        if owned is None:
            owned = dict(self.deferred)
            self.deferred = self.deferred_owned = owned
            self.deferred_seen = True
        owned[task] = config

    def drop_deferred(self) -> None:
        self.deferred = EMPTY
        self.deferred_owned = None

    def remove(self) -> None:
        """What a connector's tombstone takes with it. Source: `processConnectorRemoval`."""
        self.config = None
        self.configured_at = None
        self.restarted_at = self.tasks_restarted_at = None
        self.task_count = None
        self.commit_offset = None
        self.tasks = EMPTY
        self.applied = None
        self.drop_deferred()
        self.deferred_seen = False

    def freeze(self) -> ConnectorEntry:
        return ConnectorEntry(
            config=self.config,
            target_state=self.target_state,
            tasks=self.tasks,
            task_count=self.task_count,
            deferred=self.deferred,
            deferred_seen=self.deferred_seen,
            inconsistent=self.inconsistent,
            task_generation=self.task_generation,
            commit_offset=self.commit_offset,
            applied=self.applied,
            fencing_count=self.fencing_count,
            fencing_pending=self.fencing_pending,
            configured_at=self.configured_at,
            target_state_at=self.target_state_at,
            restarted_at=self.restarted_at,
            tasks_restarted_at=self.tasks_restarted_at,
        )


class _Draft:
    """The state that one `fold` is writing. It copies what it writes to and never leaves `fold`."""

    __slots__ = (
        "assignment_offset",
        "frozen",
        "rejected",
        "rejected_count",
        "session_key",
        "touched",
    )

    def __init__(self, state: ConfigState) -> None:
        self.frozen = state.entries
        self.touched: dict[str, _Entry] = {}
        self.session_key = state.session_key
        self.rejected: deque[RecordRejected] = deque(state.rejected, REJECTED_KEPT)
        self.rejected_count = state.rejected_count
        self.assignment_offset = state.assignment_offset

    def entry(self, connector: str) -> _Entry:
        entry = self.touched.get(connector)
        if entry is None:
            entry = _Entry(self.frozen.get(connector, _NOTHING))
            self.touched[connector] = entry
        return entry

    def freeze(self, offset: int) -> ConfigState:
        entries = self.frozen
        if self.touched:
            entries = dict(entries)
            for name, draft in self.touched.items():
                entry = draft.freeze()
                if entry == _NOTHING:
                    entries.pop(name, None)
                else:
                    entries[name] = entry
        return ConfigState(
            offset=offset,
            entries=entries,
            session_key=self.session_key,
            rejected=tuple(self.rejected),
            rejected_count=self.rejected_count,
            assignment_offset=self.assignment_offset,
        )


_NOTHING: Final = ConnectorEntry()


def _on_connector_configured(draft: _Draft, event: ConnectorConfigured) -> None:
    entry = draft.entry(event.connector)
    if entry.config is None:
        draft.assignment_offset = event.offset + 1
    entry.config = event.config
    entry.configured_at = event.offset + 1 if event.changed is None else event.changed


def _on_connector_removed(draft: _Draft, event: ConnectorRemoved) -> None:
    entry = draft.entry(event.connector)
    if entry.config is not None:
        draft.assignment_offset = event.offset + 1
    entry.remove()


def _on_task_configured(draft: _Draft, event: TaskConfigured) -> None:
    draft.entry(event.connector).defer(event.task, event.config)


def _on_tasks_committed(draft: _Draft, event: TasksCommitted) -> None:
    entry = draft.entry(event.connector)
    if entry.config is None:
        # The connector was deleted, and compaction has taken its tombstone:
        #   task-a-0, commit-a {"tasks":1}        (connector-a is gone, twice)
        # What was left of it must not join the tasks of a later namesake.
        entry.remove()
        return
    deferred = entry.deferred
    count = event.task_count
    # More than `count` is allowed: compaction keeps the higher-numbered ones of an older, larger
    # set. Fewer is not: their records were compacted away, or this commit was written twice.
    complete = len(deferred) >= count and all(n in deferred for n in range(count))
    if complete:
        if deferred:
            entry.tasks = {**entry.tasks, **deferred}
        if entry.deferred_seen:
            generation = entry.task_generation
            entry.task_generation = 0 if generation is None else generation + 1
        entry.applied = entry.config
    entry.inconsistent = not complete
    entry.drop_deferred()
    entry.task_count = count
    entry.commit_offset = event.offset
    entry.fencing_pending = True
    draft.assignment_offset = event.offset + 1


def _on_target_state_changed(draft: _Draft, event: TargetStateChanged) -> None:
    # Also for a connector that is not there yet: one created STOPPED has this record before its
    # own, and an orphan decides the birth state of a later connector, as in Java.
    entry = draft.entry(event.connector)
    entry.target_state = event.target_state
    entry.target_state_at = event.offset + 1


def _on_target_state_removed(draft: _Draft, event: TargetStateRemoved) -> None:
    entry = draft.entry(event.connector)
    entry.target_state = entry.target_state_at = None


def _on_task_count_recorded(draft: _Draft, event: TaskCountRecorded) -> None:
    entry = draft.entry(event.connector)
    entry.fencing_count = event.task_count
    entry.fencing_pending = False


def _on_session_key_changed(draft: _Draft, event: SessionKeyChanged) -> None:
    draft.session_key = event


def _on_restart_requested(draft: _Draft, event: RestartRequested) -> None:
    """The order itself is for workers that are there, and never replayed: what stays is which
    statuses take account of it."""
    entry = draft.entry(event.connector)
    if entry.config is None:
        return
    entry.restarted_at = event.offset + 1
    if event.include_tasks:
        entry.tasks_restarted_at = event.offset + 1


def _on_news(_draft: _Draft, _event: LoggerLevelChanged) -> None:
    """Log levels are orders of the moment: for workers that are there, never replayed."""


def _on_record_rejected(draft: _Draft, event: RecordRejected) -> None:
    draft.rejected.append(event)
    draft.rejected_count += 1
    if event.advances and event.key.startswith(_COMMIT_PREFIX):
        # Java asks whether the connector is configured before it looks into the commit.
        connector = event.key[len(_COMMIT_PREFIX) :]
        if draft.entry(connector).config is None:
            draft.entry(connector).remove()


_HANDLERS: Final[Mapping[type, Callable[[_Draft, Any], None]]] = {
    ConnectorConfigured: _on_connector_configured,
    ConnectorRemoved: _on_connector_removed,
    TaskConfigured: _on_task_configured,
    TasksCommitted: _on_tasks_committed,
    TargetStateChanged: _on_target_state_changed,
    TargetStateRemoved: _on_target_state_removed,
    TaskCountRecorded: _on_task_count_recorded,
    SessionKeyChanged: _on_session_key_changed,
    RestartRequested: _on_restart_requested,
    LoggerLevelChanged: _on_news,
    RecordRejected: _on_record_rejected,
}
