"""Rows: all that is known of a connector, as plain data. The gRPC API lists and watches them.

A row is ``{"name", "type", "target_state", "task_count", "settled", "etag", "status"}``. "type" is
source or sink, "etag" is `ConnectorEntry.etag`. "status" is the body of ``GET
/connectors/<name>/status``, or None where none was reported.

A row has further parts if they are asked for:

- "config".
- "task_configs", a list by task number, asked for as "tasks".
- "topics", those that the connector has used; None where they are not tracked.
- "outdated", the numbers of tasks whose status is outdated (`headgate.herder.settled.outdated`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final

from headgate.herder.calls import ShowConnectors
from headgate.herder.settings import HerderSettings
from headgate.herder.settled import is_entry_settled, outdated
from headgate.ids import TargetState, TaskId
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_state import ConfigState
from headgate.topics.status import StatusEvent, StatusView

KEPT_MS: Final = 60_000
KEPT_MAX: Final = 20_000
_KEPT_PARTS: Final = ((), ("config",))


def row(
    state: ConfigState,
    statuses: StatusView,
    name: str,
    parts: Iterable[str],
    settings: HerderSettings,
) -> dict[str, Any]:
    """Return the row of a configured connector."""
    # A listing makes ten thousand of these while heartbeats wait, so lookups are avoided.
    entry = state.entries[name]
    assert entry.config is not None, name
    task_count = 0 if entry.inconsistent else entry.task_count or 0
    kind = settings.kind(entry.config)._value_
    made: dict[str, Any] = {
        "name": name,
        "type": kind,
        "target_state": (entry.target_state or TargetState.STARTED)._value_,
        "task_count": task_count,
        "settled": is_entry_settled(entry, statuses, name),
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
    if "outdated" in parts:
        made["outdated"] = outdated(entry, statuses, name)
    return made


class KeptRows:
    """Rows of a herder, kept until something about their connector is read, as long as callers go
    on to ask for rows. A caller must not change a row."""

    def __init__(self, settings: HerderSettings) -> None:
        self._settings = settings
        self._kept: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
        """Rows by parts, and by name."""
        self._names: list[str] | None = None
        """Names of all configured connectors, sorted; None: they are to be looked up again."""
        self._asked_ms = 0

    def asked(self, now_ms: int) -> None:
        """Note that a caller asks for rows."""
        self._asked_ms = now_ms

    def expire(self, now_ms: int) -> None:
        """Drop all rows if no caller has asked for long: a row takes more than a kilobyte."""
        if self._kept and now_ms - self._asked_ms > KEPT_MS:
            self._kept.clear()
            self._names = None

    def configs_read(self, touched: Iterable[str]) -> None:
        """Drop the rows of connectors about which records of the config topic were read."""
        self._names = None
        self.forget(touched)

    def names(self, state: ConfigState) -> Sequence[str]:
        """Return the names of all configured connectors, sorted."""
        if self._names is None:
            self._names = sorted(state.connector_names())
        return self._names

    def forget(self, touched: Iterable[str]) -> None:
        """Drop the rows of these connectors."""
        if self._kept:
            for name in touched:
                for kept in self._kept.values():
                    kept.pop(name, None)

    def row(
        self, state: ConfigState, statuses: StatusView, name: str, parts: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the row of a configured connector."""
        return self.rows(state, statuses, (name,), parts)[0]

    def rows(
        self,
        state: ConfigState,
        statuses: StatusView,
        names: Sequence[str],
        parts: tuple[str, ...] = (),
    ) -> list[dict[str, Any]]:
        """Return the rows of configured connectors."""
        kept = self._kept.setdefault(parts, {})
        room = KEPT_MAX - len(kept) if parts in _KEPT_PARTS else 0
        found: list[dict[str, Any]] = []
        for name in names:
            each = kept.get(name)
            if each is None:
                each = row(state, statuses, name, parts, self._settings)
                if room > 0:
                    kept[name] = each
                    room -= 1
            found.append(each)
        return found

    def disagreements(self, state: ConfigState, statuses: StatusView) -> Iterator[str]:
        """Yield, in words, where a kept row is not as it would be made now. Keeps rows, for the
        next check."""
        if list(self.names(state)) != sorted(state.connector_names()):
            yield "the names of connectors are kept as they were"
        for parts in _KEPT_PARTS:
            for name in state.connector_names():
                now = row(state, statuses, name, parts, self._settings)
                if (kept := self.row(state, statuses, name, parts)) != now:
                    yield f"the row of {name} is kept as {kept}; it is {now}"
        for kept_rows in self._kept.values():
            for name in kept_rows:
                if state.entry(name) is None:
                    yield f"a row of {name} is kept, which is gone"


def rows(
    state: ConfigState,
    statuses: StatusView,
    call: ShowConnectors,
    settings: HerderSettings,
    kept: KeptRows | None = None,
) -> dict[str, Any]:
    """Return the answer to `call`."""
    made = kept or KeptRows(settings)
    names: Sequence[str]
    if call.names:
        names = sorted({name for name in call.names if state.entry(name) is not None})
    else:
        names = made.names(state)
    states = frozenset(call.states)
    matching = (
        name
        for name in islice(names, _begin(names, call), None)
        if name.startswith(call.prefix) and (not states or _has_one_of(statuses, name, states))
    )
    chosen = list(matching if call.limit is None else islice(matching, call.limit))
    return {
        "rows": made.rows(state, statuses, chosen, call.parts),
        "more": call.limit is not None and next(matching, None) is not None,
        "config_offset": state.offset,
    }


def _begin(names: Sequence[str], call: ShowConnectors) -> int:
    """Return the index of the first of the sorted `names` that may be in the answer."""
    behind = bisect_right(names, call.after) if call.after else 0
    return max(behind, bisect_left(names, call.prefix))


def _has_one_of(statuses: StatusView, name: str, states: frozenset[str]) -> bool:
    connector = statuses.connectors.get(name)
    if connector is not None and connector.state.value in states:
        return True
    return any(each.state.value in states for each in statuses.tasks.get(name, {}).values())


def touched_by_configs(events: Iterable[ConfigEvent]) -> Iterator[str]:
    """Yield the names of the connectors whose rows may change by `events`."""
    for event in events:
        name = getattr(event, "connector", None)
        if name is not None:
            yield name


def touched_by_statuses(records: Iterable[tuple[str, StatusEvent]]) -> Iterator[str]:
    """Yield the names of the connectors whose rows may change by records of the status topic."""
    for _, event in records:
        task = getattr(event, "task", None)
        name = getattr(event, "connector", None) if task is None else task.connector
        if name is not None:
            yield name
