"""Connectors as rows: all that is known of one, as plain data. The gRPC API lists and watches them.

A row is ``{"name", "type", "target_state", "task_count", "settled", "etag", "status"}``. "type" is
source or sink, "etag" `ConnectorEntry.etag`, "status" the body of ``GET
/connectors/<name>/status`` or None where none was reported.
Further parts are there when they are asked for: "config"; "task_configs", a list by task number;
"topics", those that the connector has used, None where they are not tracked.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from headgate.herder.calls import ShowConnectors
from headgate.herder.settings import HerderSettings
from headgate.ids import State, TargetState
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_state import ConfigState
from headgate.topics.status import StatusEvent, StatusView

_WANTED: Final = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


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
    tasks = state.tasks(name)
    kind = settings.kind(entry.config).value
    made: dict[str, Any] = {
        "name": name,
        "type": kind,
        "target_state": state.target_state(name).value,
        "task_count": len(tasks),
        "settled": is_settled(state, statuses, name),
        "etag": entry.etag,
        "status": statuses.answer(name, kind),
    }
    if "config" in parts:
        made["config"] = dict(entry.config)
    if "tasks" in parts:
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
    matching = sorted(
        name
        for name in dict.fromkeys(names)
        if name.startswith(call.prefix)
        and (not call.after or name > call.after)
        and state.entry(name) is not None
        and (not call.states or _has_one_of(statuses, name, frozenset(call.states)))
    )
    chosen = matching if call.limit is None else matching[: call.limit]
    return {
        "rows": [row(state, statuses, name, call.parts, settings) for name in chosen],
        "more": len(chosen) < len(matching),
        "config_offset": state.offset,
    }


def is_settled(state: ConfigState, statuses: StatusView, name: str) -> bool:
    """The reported statuses are what the user asked for: of the connector and of each task that is
    configured, and of no task more. Task configs must have been committed, unless it is stopped.

    After a restart, or with a changed config, the statuses of the run before may still stand.
    """
    target = state.target_state(name)
    wanted = _WANTED[target]
    connector = statuses.connectors.get(name)
    if connector is None or connector.state is not wanted:
        return False
    reported = statuses.tasks.get(name, {})
    if target is TargetState.STOPPED:
        return all(status.state is State.UNASSIGNED for status in reported.values())
    entry = state.entry(name)
    if entry is None or entry.task_count is None or entry.inconsistent:
        return False
    numbers = {task.task for task in state.tasks(name)}
    return set(reported) == numbers and all(each.state is wanted for each in reported.values())


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
