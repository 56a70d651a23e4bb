"""The fold of the config topic: events become a `ConfigState` by the rules of Java's reader,
`KafkaConfigBackingStore`.

Nothing else makes a `ConfigState`. Every reader of the same records, Java's included, must reach
the same state, so odd records are read by Java's rules. A commit whose task configs are incomplete
makes the connector inconsistent (the log was compacted, or the commit was written twice). Repairing
that is the herder's work, not the reader's.

Some state outlives a connector's tombstone: its task generation, its inconsistency, and its target
state, which has a tombstone of its own. So do its task count record and whether fencing is pending,
since a connector created again under the same name must fence the producers of its namesake.
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
"""Number of records of a long log to decode and fold at a time, so that decoded records are folded
while they are in the processor's cache. It costs a third less than batches of 5,000; smaller
batches would copy the index of connectors too often."""
_COMMIT_PREFIX: Final = "commit-"


def apply(state: ConfigState, event: ConfigEvent) -> ConfigState:
    """Return the state after one event. Expensive, since it copies what it touches; prefer to
    `fold` events in batches."""
    return fold(state, (event,))


def fold(state: ConfigState, events: Iterable[ConfigEvent]) -> ConfigState:
    """Return the state after `events`; the result does not depend on how they are batched. `state`
    is not changed.

    Args:
        events: Events whose offsets rise. Gaps are normal (transaction markers, compaction).

    Raises:
        LogOrderError: The offset of an event does not rise.

    Cost: O(events), plus one copy of the connector index, plus one copy of the deferred task
    configs of each connector touched. Replay in batches of `REPLAY_BATCH`.
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
    """A `ConnectorEntry` in the making. `deferred_owned` is the draft's own copy of `deferred`,
    made at the first write to it."""

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
        """Drop everything that a connector's tombstone removes. Source:
        `processConnectorRemoval`."""
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
    """A `ConfigState` in the making. It copies what it writes to, and never leaves `fold`."""

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
        # The connector was deleted, and compaction has removed its tombstone:
        #
        #   task-a-0, commit-a {"tasks":1}        (connector-a is gone, twice)
        #
        # Its leftover task configs must not join the tasks of a later connector of the same name.
        entry.remove()
        return
    deferred = entry.deferred
    count = event.task_count
    # More than `count` configs are allowed: compaction keeps the higher-numbered ones of an older,
    # larger set. Fewer are not: their records were compacted away, or this commit was written
    # twice.
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
    # This also applies to a connector that does not exist yet. The target state of one created
    # STOPPED is written before its config, and an orphaned target state decides the initial state
    # of a later connector, as in Java.
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
    """Record the config offset of the restart. The restart itself is executed only by workers that
    are running, never on replay; what remains is which statuses already account for it."""
    entry = draft.entry(event.connector)
    if entry.config is None:
        return
    entry.restarted_at = event.offset + 1
    if event.include_tasks:
        entry.tasks_restarted_at = event.offset + 1


def _on_news(_draft: _Draft, _event: LoggerLevelChanged) -> None:
    """Do nothing: a log level is applied only by workers that are running, never on replay."""


def _on_record_rejected(draft: _Draft, event: RecordRejected) -> None:
    draft.rejected.append(event)
    draft.rejected_count += 1
    if event.advances and event.key.startswith(_COMMIT_PREFIX):
        # Java checks that the connector is configured before it parses the commit record.
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
