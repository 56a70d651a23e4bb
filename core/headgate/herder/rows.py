"""Connectors as rows: all that is known of one, as plain data. The gRPC API lists and watches them.

A row is ``{"name", "type", "target_state", "task_count", "settled", "etag", "status"}``. "type" is
source or sink, "etag" `ConnectorEntry.etag`, "status" the body of ``GET
/connectors/<name>/status`` or None where none was reported.
Further parts are there when they are asked for: "config"; "task_configs", a list by task number;
"topics", those that the connector has used, None where they are not tracked.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from headgate.herder.calls import ShowConnectors
from headgate.herder.settings import HerderSettings
from headgate.ids import State, TargetState, TaskId
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_state import ConfigState
from headgate.topics.status import Status, StatusEvent, StatusView

_WANTED: Final = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}

_NONE: Final[Mapping[int, Status]] = {}


def row(
    state: ConfigState,
    statuses: StatusView,
    name: str,
    parts: Iterable[str],
    settings: HerderSettings,
) -> dict[str, Any]:
    """The row of a configured connector."""
    entry = state.entry(name)
    assert entry is not None and entry.config is not None, name
    task_count = state.count_tasks(name)
    kind = settings.kind(entry.config)._value_
    made: dict[str, Any] = {
        "name": name,
        "type": kind,
        "target_state": state.target_state(name)._value_,
        "task_count": task_count,
        "settled": is_settled(state, statuses, name),
        "etag": entry.etag,
        "status": statuses.answer(name, kind),
    }
    if "config" in parts:
        made["config"] = dict(entry.config)
    if "tasks" in parts:
        tasks = [TaskId(name, number) for number in range(task_count)]
        made["task_configs"] = [dict(state.task_config(task) or {}) for task in tasks]
    if "topics" in parts:
        tracked = settings.topic_tracking
        made["topics"] = sorted(statuses.topics.get(name, {})) if tracked else None
    return made


def rows(
    state: ConfigState, statuses: StatusView, call: ShowConnectors, settings: HerderSettings
) -> dict[str, Any]:
    """The answer to `call`."""
    names = call.names or state.connector_names()
    candidates = sorted(
        name
        for name in (set(names) if call.names else names)
        if (not call.after or name > call.after)
        and name.startswith(call.prefix)
        and state.entry(name) is not None
    )
    states = frozenset(call.states)
    matching = (name for name in candidates if not states or _has_one_of(statuses, name, states))
    chosen = list(matching if call.limit is None else islice(matching, call.limit))
    return {
        "rows": [row(state, statuses, name, call.parts, settings) for name in chosen],
        "more": call.limit is not None and next(matching, None) is not None,
        "config_offset": state.offset,
    }


def is_settled(state: ConfigState, statuses: StatusView, name: str) -> bool:
    """The reported statuses are what the user asked for: of the connector and of each task that is
    configured, and of no task more. Task configs must have been committed, unless it is stopped.

    After a restart, or with a changed config, the statuses of the run before may still stand.
    """
    entry = state.entries.get(name)
    connector = statuses.connectors.get(name)
    if entry is None or connector is None:
        return False
    wanted = _WANTED[entry.target_state or TargetState.STARTED]
    if connector.state is not wanted:
        return False
    reported = statuses.tasks.get(name, _NONE)
    if wanted is State.STOPPED:
        return all(status.state is State.UNASSIGNED for status in reported.values())
    count = entry.task_count
    if count is None or count != len(reported) or entry.inconsistent or entry.config is None:
        return False
    for number, status in reported.items():
        if status.state is not wanted or not 0 <= number < count:
            return False
    return True


def _has_one_of(statuses: StatusView, name: str, states: frozenset[str]) -> bool:
    connector = statuses.connectors.get(name)
    if connector is not None and connector.state.value in states:
        return True
    return any(each.state.value in states for each in statuses.tasks.get(name, {}).values())


def touched_by_configs(events: Iterable[ConfigEvent]) -> Iterator[str]:
    """Names of the connectors whose rows may be others after `events`."""
    for event in events:
        name = getattr(event, "connector", None)
        if name is not None:
            yield name


def touched_by_statuses(records: Iterable[tuple[str, StatusEvent]]) -> Iterator[str]:
    """Likewise, of records of the status topic."""
    for _, event in records:
        task = getattr(event, "task", None)
        name = getattr(event, "connector", None) if task is None else task.connector
        if name is not None:
            yield name
