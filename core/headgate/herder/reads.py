"""Answers to reads: Connect's bodies, from what this worker has read. Any worker answers.

Source: Connect's ConnectorsResource and AbstractHerder; KIP-465 (expand), KIP-558 (topics).

Differs: reads are answered at once, also during a rebalance (Java: 500, or a wait for its end).
NOT_FOUND is answered only when the log was read to its end since the question, so a connector that
was just created elsewhere is found. An inconsistent connector shows no tasks and no task configs.
"""

from dataclasses import replace
from typing import Any, Final, TypeAlias, assert_never

from headgate.herder.calls import (
    DescribeConnector,
    DescribeStatus,
    DescribeTasks,
    DescribeTaskStatus,
    DescribeTopics,
    ErrorKind,
    Failure,
    ListConnectors,
    Result,
    ShowConnector,
    ShowConnectors,
    Success,
)
from headgate.herder.rows import KeptRows, rows
from headgate.herder.settings import HerderSettings
from headgate.ids import TaskId
from headgate.topics.config_events import Config
from headgate.topics.config_state import ConfigState
from headgate.topics.status import StatusView

Read: TypeAlias = (
    ListConnectors
    | DescribeConnector
    | DescribeTasks
    | DescribeStatus
    | DescribeTaskStatus
    | DescribeTopics
    | ShowConnector
    | ShowConnectors
)

BEHIND: Final = (
    "Request timed out. The worker has read the config topic to config offset {}, which is its end "
    "and less than the min_config_offset that was asked for. Is the offset one of this cluster?"
)
TRACKING_DISABLED: Final = Failure(ErrorKind.FORBIDDEN, "Topic tracking is disabled.")
RESET_DISABLED: Final = Failure(ErrorKind.FORBIDDEN, "Topic tracking reset is disabled.")


def read(
    state: ConfigState,
    statuses: StatusView,
    call: Read,
    settings: HerderSettings,
    kept: KeptRows | None = None,
) -> Result:
    """Return the answer to `call`, as plain data. It has the etag if it shows a connector's config.

    Args:
        kept: rows that need not be made again.
    """
    result = _read(state, statuses, call, settings, kept or KeptRows(settings))
    if isinstance(result, Failure):
        return result
    entry = state.entry(call.name) if isinstance(call, DescribeConnector | ShowConnector) else None
    etag = None if entry is None else entry.etag
    return replace(result, config_offset=max(state.offset, 0), etag=etag)


def _read(
    state: ConfigState, statuses: StatusView, call: Read, settings: HerderSettings, kept: KeptRows
) -> Result:
    match call:
        case ListConnectors(expand):
            return Success(_list(state, statuses, expand, settings, kept))
        case DescribeConnector(name):
            info = connector_info(state, name, settings)
            return not_found(name) if info is None else Success(info)
        case DescribeTasks(name):
            if state.entry(name) is None:
                return not_found(name)
            return Success([_task_info(state, task) for task in state.tasks(name)])
        case DescribeStatus(name):
            body = statuses.answer(name, kind_of(state, name, settings))
            return _no_status("connector", name) if body is None else Success(body)
        case DescribeTaskStatus(task):
            shown = statuses.answer_task(task)
            return _no_status("task", str(task)) if shown is None else Success(shown)
        case DescribeTopics(name):
            if not settings.topic_tracking:
                return TRACKING_DISABLED
            return Success({name: {"topics": sorted(statuses.topics.get(name, {}))}})
        case ShowConnector(name, parts):
            if state.entry(name) is None:
                return not_found(name)
            shown_row = kept.row(state, statuses, name, parts)
            return Success({"row": shown_row, "config_offset": state.offset})
        case ShowConnectors():
            return Success(rows(state, statuses, call, settings, kept))
        case _:
            assert_never(call)


def is_behind(state: ConfigState, call: object) -> bool:
    """Return whether the worker has read less of the config topic than the call requires."""
    if not isinstance(call, ShowConnector | ShowConnectors):
        return False
    return max(state.offset, 0) < call.min_config_offset


def connector_info(
    state: ConfigState, name: str, settings: HerderSettings, config: Config | None = None
) -> dict[str, Any] | None:
    """Return the ConnectorInfo of a connector; None: it is not configured. `config`: the config
    that is about to be in force, also of a connector that is not configured yet. The tasks are
    those before the change."""
    entry = state.entry(name)
    if config is None:
        config = entry.config if entry is not None else None
    if config is None:
        return None
    tasks = [{"connector": task.connector, "task": task.task} for task in state.tasks(name)]
    return {
        "name": name,
        "config": dict(config),
        "tasks": tasks,
        "type": settings.kind(config).value,
    }


def kind_of(state: ConfigState, name: str, settings: HerderSettings) -> str:
    """Return "source" or "sink"; or "unknown", since a status may outlive its connector."""
    entry = state.entry(name)
    if entry is None or entry.config is None:
        return "unknown"
    return settings.kind(entry.config).value


def not_found(name: str) -> Failure:
    return Failure(ErrorKind.NOT_FOUND, f"Connector {name} not found")


def _no_status(what: str, name: str) -> Failure:
    return Failure(ErrorKind.NOT_FOUND, f"No status found for {what} {name}")


def _list(
    state: ConfigState,
    statuses: StatusView,
    expand: tuple[str, ...],
    settings: HerderSettings,
    kept: KeptRows,
) -> object:
    if not expand:
        return list(state.connector_names())
    out: dict[str, dict[str, Any]] = {}
    for name in state.connector_names():
        parts: dict[str, Any] = {}
        if "info" in expand:
            parts["info"] = connector_info(state, name, settings)
        if "status" in expand:
            parts["status"] = kept.row(state, statuses, name)["status"]
            if parts["status"] is None:
                continue  # as in Java: not there yet, or not there any more
        out[name] = parts
    return out


def _task_info(state: ConfigState, task: TaskId) -> dict[str, Any]:
    config = state.task_config(task)
    return {
        "id": {"connector": task.connector, "task": task.task},
        "config": None if config is None else dict(config),
    }
