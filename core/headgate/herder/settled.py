"""Whether the statuses of a connector are what the user last asked for.

A status with a config offset takes account of all records about its connector or task before that
offset. So a status of the run before a change or a restart is known as such, however late the next
one comes. Statuses of Java workers have no config offset, and are taken as they are.
"""

from collections.abc import Mapping
from typing import Final

from headgate.ids import State, TargetState
from headgate.topics.config_state import ConnectorEntry
from headgate.topics.status import Status, StatusView

_WANTED: Final = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}
_NONE: Final[Mapping[int, Status]] = {}
THE_CONNECTOR: Final = -1
"""Stands for the connector itself among task numbers."""


def is_entry_settled(entry: ConnectorEntry, statuses: StatusView, name: str) -> bool:
    """Return whether the connector and each configured task report what the user asked for.

    No other task may have a status, and no status may be outdated. Task configs must have been
    committed, unless the connector is STOPPED, or was created PAUSED.
    """
    # Offsets are compared without calls: a listing does this for ten thousand connectors.
    connector = statuses.connectors.get(name)
    if connector is None:
        return False
    wanted = _WANTED[entry.target_state or TargetState.STARTED]
    told = connector.config_offset
    if connector.state is not wanted or (told is not None and told < _connector_since(entry)):
        return False
    reported = statuses.tasks.get(name, _NONE)
    if wanted is State.STOPPED:
        return all(status.state is State.UNASSIGNED for status in reported.values())
    if wanted is State.PAUSED and entry.commit_offset is None:
        return not reported  # it gets tasks when it is resumed
    count = entry.task_count
    if count is None or count != len(reported) or entry.inconsistent or entry.config is None:
        return False
    if wanted is State.RUNNING and _awaits_commit(entry, connector):
        return False
    since = _tasks_since(entry)
    for number, status in reported.items():
        if status.state is not wanted or not 0 <= number < count:
            return False
        told = status.config_offset
        if told is not None and told < since:
            return False
    return True


def outdated(entry: ConnectorEntry, statuses: StatusView, name: str) -> list[int]:
    """Return the numbers of the tasks whose status is of a run before the last change or restart in
    the config topic. `THE_CONNECTOR` stands for the connector itself."""
    connector, found = statuses.connectors.get(name), list[int]()
    if connector is not None and _is_outdated(connector, _connector_since(entry)):
        found.append(THE_CONNECTOR)
    started = (entry.target_state or TargetState.STARTED) is TargetState.STARTED
    awaits = connector is not None and started and _awaits_commit(entry, connector)
    since = _tasks_since(entry)
    for number, status in sorted(statuses.tasks.get(name, _NONE).items()):
        told = status.config_offset is not None
        if (awaits and told) or _is_outdated(status, since):
            found.append(number)
    return found


def _is_outdated(status: Status, since: int) -> bool:
    return status.config_offset is not None and status.config_offset < since


def _connector_since(entry: ConnectorEntry) -> int:
    return max(entry.configured_at or 0, entry.restarted_at or 0)


def _tasks_since(entry: ConnectorEntry) -> int:
    commit = -1 if entry.commit_offset is None else entry.commit_offset
    return max(commit + 1, entry.tasks_restarted_at or 0)


def _awaits_commit(entry: ConnectorEntry, connector: Status) -> bool:
    """Return whether the task configs in force were made of an earlier connector config. Java
    workers do not commit equal task configs again, so this is only so if the status `connector`
    shows that one of ours has the connector."""
    if connector.config_offset is None or (entry.commit_offset or 0) >= (entry.configured_at or 0):
        return False
    return entry.applied != entry.config
