"""A study out of plain data, as TOML or a dict of Python has it, checked whole before any run."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from headgate.connector.nearest import nearest
from headgate.errors import CoreError
from headgate.simulation.study.event_text import EventError, event_of
from headgate.simulation.study.model import Event, Span, Study, WorkerSettings
from headgate.simulation.study.plausible import problems_of
from headgate.simulation.study.times import TimeError, time_ms, time_text

Path: TypeAlias = tuple[str, ...]
"""A key with the tables above it; an event's number, from 0, stands behind ``events``."""

WORKERS_MAX: Final = 100
TASKS_MAX: Final = 2_000
WORKER_NAME: Final = re.compile(r"w[1-9][0-9]*")
TABLES: Final = ("cluster", "connectors", "workers", "events")
TOP: Final = ("title", "duration")
EVENT_KEYS: Final = ("at", "do", "within")
PROTOCOLS: Final = ("eager", "compatible", "sessioned", "headgate")
POLICIES: Final = ("kip415", "connect")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a study: where it stands, and what would be right."""

    path: Path
    text: str

    def __str__(self) -> str:
        where = _shown(self.path)
        return f"{where}: {self.text}" if where else self.text


class StudyError(CoreError):
    """A study that cannot be run; `problems` are all that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class _Wrong(Exception):
    """A value that is none of its key's."""


def read_study(document: Mapping[str, Any]) -> Study:
    """The study that `document` describes, as docs/build/simulation.md has it.

    Args:
        document: ``cluster``, ``connectors``, ``workers``, ``events``, ``title`` and ``duration``,
            as `tomllib` reads them. Keys with dots may be nested tables. Times are texts such as
            ``"90s"``; settings that end with ``.ms`` may be whole numbers.

    Raises:
        StudyError: unknown keys, settings, events and names, values out of range, and events that
            cannot happen when they should, such as the crash of a worker that is down. All at once.
    """
    return _Reader(document).study()


def _milliseconds(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise _Wrong(f"{value}, expected 0 or more")
        return value
    if isinstance(value, str):
        try:
            return time_ms(value)
        except TimeError as error:
            raise _Wrong(str(error)) from None
    raise _Wrong(f'{_seen(value)}, expected milliseconds, or a text such as "60s"')


def _text_of_time(value: object) -> int:
    if isinstance(value, str):
        return _milliseconds(value)
    raise _Wrong(f'{_seen(value)}, expected a text such as "3s"')


def _above_0(value: object) -> int:
    found = _milliseconds(value)
    if found == 0:
        raise _Wrong("0, expected more than 0")
    return found


def _span(value: object) -> Span:
    if isinstance(value, list):
        given = cast(list[object], value)
        ends = [_milliseconds(each) for each in given]
        if len(ends) != 2 or ends[0] > ends[1]:
            raise _Wrong(f"{given}, expected the least and the most: [1, 20]")
        return ends[0], ends[1]
    one = _milliseconds(value)
    return one, one


def _one_of(known: Sequence[str]) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if isinstance(value, str) and value in known:
            return value
        near = _meant(value, known) if isinstance(value, str) else ""
        raise _Wrong(f"{_seen(value)}, expected one of {', '.join(known)}{near}")

    return parse


KEYS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = MappingProxyType(
    {
        "connect.protocol": ("protocol", _one_of(PROTOCOLS)),
        "headgate.assignment.policy": ("policy", _one_of(POLICIES)),
        "session.timeout.ms": ("session_timeout_ms", _above_0),
        "heartbeat.interval.ms": ("heartbeat_interval_ms", _above_0),
        "rebalance.timeout.ms": ("rebalance_timeout_ms", _above_0),
        "worker.sync.timeout.ms": ("sync_timeout_ms", _above_0),
        "scheduled.rebalance.max.delay.ms": ("rebalance_delay_ms", _milliseconds),
        "task.shutdown.graceful.timeout.ms": ("task_stop_timeout_ms", _milliseconds),
        "task.start.ms": ("task_start_ms", _span),
        "task.stop.ms": ("task_stop_ms", _span),
        "message.delay.ms": ("message_ms", _span),
    }
)
"""Settings of a worker: the field of `WorkerSettings`, and what makes its value of a text."""
FIRST_DELAY: Final = "group.initial.rebalance.delay.ms"


class _Reader:
    """Walks the document once and collects what is wrong."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.problems: list[Problem] = []

    def study(self) -> Study:
        self._top()
        cluster = self._table("cluster")
        workers = self._workers(cluster)
        first_delay_ms = self._value(("cluster", FIRST_DELAY), cluster, _milliseconds, 3_000)
        settings = self._settings(("cluster",), cluster, WorkerSettings(), ("workers", FIRST_DELAY))
        connectors = self._connectors()
        events = self._events(connectors)
        study = Study(
            workers=workers,
            settings=settings,
            connectors=connectors,
            events=tuple(event for _, event in sorted(events, key=lambda one: one[1].at_ms)),
            own=self._own(settings, {*workers, *(e.name for _, e in events if e.on_worker)}),
            first_delay_ms=first_delay_ms,
            duration_ms=self._value(("duration",), self.document, _milliseconds, None),
            title=str(self.document.get("title", "")),
        )
        for number, text in problems_of(study, events):
            self._problem(("events", str(number), "do"), text)
        self._in_order(events)
        self._too_late(study, events)
        if self.problems:
            raise StudyError(self.problems)
        return study

    def _problem(self, path: Path, text: str) -> None:
        self.problems.append(Problem(path, text))

    def _top(self) -> None:
        for key in self.document:
            if key not in (*TABLES, *TOP):
                near = _meant(key, (*TABLES, *TOP))
                hint = near or f"; a study has {', '.join((*TABLES, *TOP))}"
                self._problem((key,), f"unknown{hint}")

    def _table(self, name: str) -> dict[str, Any]:
        found = self.document.get(name, {})
        if isinstance(found, Mapping):
            return _flat(cast(Mapping[str, Any], found))
        self._problem((name,), f"{_seen(found)}, expected a table: [{name}]")
        return {}

    def _tables(self, name: str, example: str) -> dict[str, dict[str, Any]]:
        """The tables below `name`, such as ``[connectors.orders]``."""
        found = self.document.get(name, {})
        if not isinstance(found, Mapping):
            self._problem((name,), f"{_seen(found)}, expected tables: [{example}]")
            return {}
        tables: dict[str, dict[str, Any]] = {}
        for key, value in cast(Mapping[str, Any], found).items():
            if isinstance(value, Mapping):
                tables[key] = _flat(cast(Mapping[str, Any], value))
            else:
                self._problem((name, key), f"{_seen(value)}, expected a table: [{example}]")
        return tables

    def _value(
        self, path: Path, table: Mapping[str, Any], parse: Callable[[object], Any], default: Any
    ) -> Any:
        if path[-1] not in table:
            return default
        try:
            return parse(table[path[-1]])
        except _Wrong as error:
            self._problem(path, str(error))
            return default

    def _workers(self, cluster: Mapping[str, Any]) -> tuple[str, ...]:
        count = self._value(("cluster", "workers"), cluster, _count(WORKERS_MAX), 3)
        return tuple(f"w{number}" for number in range(1, count + 1))

    def _settings(
        self, path: Path, table: Mapping[str, Any], base: WorkerSettings, others: Sequence[str] = ()
    ) -> WorkerSettings:
        found: dict[str, Any] = {}
        for key in table:
            if key in others:
                continue
            if key not in KEYS:
                self._problem((*path, key), f"unknown setting{_meant(key, (*others, *KEYS))}")
                continue
            name, parse = KEYS[key]
            found[name] = self._value((*path, key), table, parse, getattr(base, name))
        made = replace(base, **found)
        if {"session_timeout_ms", "heartbeat_interval_ms"} & set(found):
            self._heartbeats(path, made)
        return made

    def _heartbeats(self, path: Path, made: WorkerSettings) -> None:
        if made.heartbeat_interval_ms >= made.session_timeout_ms:
            text = (
                f"{made.heartbeat_interval_ms}, expected less than session.timeout.ms, which is "
                f"{made.session_timeout_ms}"
            )
            self._problem((*path, "heartbeat.interval.ms"), text)

    def _own(self, settings: WorkerSettings, known: Iterable[str]) -> dict[str, WorkerSettings]:
        own: dict[str, WorkerSettings] = {}
        names = sorted(known)
        for name, table in self._tables("workers", "workers.w1").items():
            if name not in names:
                text = f"no worker of this study: it has {', '.join(names)}{_meant(name, names)}"
                self._problem(("workers", name), text)
            own[name] = self._settings(("workers", name), table, settings)
        return own

    def _connectors(self) -> dict[str, int]:
        connectors: dict[str, int] = {}
        for name, table in self._tables("connectors", "connectors.orders").items():
            path = ("connectors", name)
            for key in table:
                if key not in ("tasks", "tasks.max"):
                    self._problem((*path, key), f"unknown key{_meant(key, ('tasks',))}")
            if WORKER_NAME.fullmatch(name) or not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
                text = "expected letters, digits, _, . and -, and no worker's name"
                self._problem(path, text)
            key = "tasks.max" if "tasks.max" in table else "tasks"
            connectors[name] = self._value((*path, key), table, _count(TASKS_MAX), 1)
        if not connectors and not self.problems:
            self._problem((), "no connectors: name at least one in a table [connectors.NAME]")
        return connectors

    def _events(self, connectors: Mapping[str, int]) -> list[tuple[int, Event]]:
        found = self.document.get("events", [])
        if not isinstance(found, list):
            text = f"{_seen(found)}, expected tables: [[events]]"
            self._problem(("events",), text)
            return []
        events: list[tuple[int, Event]] = []
        for number, raw in enumerate(cast(list[object], found)):
            event = self._event(("events", str(number)), raw, connectors)
            if event is not None:
                events.append((number, event))
        return events

    def _event(self, path: Path, raw: object, connectors: Mapping[str, int]) -> Event | None:
        if not isinstance(raw, Mapping):
            self._problem(path, f"{_seen(raw)}, expected a table: [[events]]")
            return None
        table = cast(Mapping[str, Any], raw)
        for key in table:
            if key not in EVENT_KEYS:
                meant = _meant(key, EVENT_KEYS)
                hint = meant or '; an event has at = "60s" and do = "crash w1"'
                self._problem((*path, key), f"unknown key{hint}")
        missing = [key for key in EVENT_KEYS[:2] if not isinstance(table.get(key), str)]
        for key in missing:
            example = 'at = "60s"' if key == "at" else 'do = "crash w1"'
            seen = f"{_seen(table[key])}, expected a text" if key in table else "missing"
            self._problem((*path, key), f"{seen}: {example}")
        if missing:
            return None
        at_ms = self._value((*path, "at"), table, _milliseconds, None)
        within_ms = self._value((*path, "within"), table, _text_of_time, 0)
        try:
            event = event_of(table["do"], list(connectors))
        except EventError as error:
            self._problem((*path, "do"), str(error))
            return None
        return None if at_ms is None else replace(event, at_ms=at_ms, within_ms=within_ms)

    def _in_order(self, events: Sequence[tuple[int, Event]]) -> None:
        """An event happens before the next one, wherever within its time."""
        ordered = sorted(events, key=lambda one: one[1].at_ms)
        for (number, event), (_, after) in pairwise(ordered):
            if event.within_ms and event.at_ms + event.within_ms > after.at_ms:
                text = f'reaches beyond "{after.text}" at {time_text(after.at_ms)}'
                self._problem(("events", str(number), "within"), text)

    def _too_late(self, study: Study, events: Sequence[tuple[int, Event]]) -> None:
        for number, event in events:
            if study.duration_ms is not None and event.at_ms + event.within_ms >= study.duration_ms:
                text = "after the end of the study, which duration sets"
                self._problem(("events", str(number), "at"), text)


def _count(most: int) -> Callable[[object], int]:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise _Wrong(f"{_seen(value)}, expected a whole number from 1 to {most}")
        return value

    return parse


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`table` with dots in place of inner tables: TOML has both for a key with dots."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= _flat(cast(Mapping[str, Any], value), f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _meant(word: str, known: Iterable[str]) -> str:
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""


def _seen(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{value}"'
    return "a table" if isinstance(value, Mapping) else str(value)


def _shown(path: Path) -> str:
    """``[cluster] workers``; of an event its number, from 1."""
    if path[:1] == ("events",) and len(path) > 1:
        return " ".join((f"event {int(path[1]) + 1}", *path[2:]))
    size = 2 if path[:1] in (("connectors",), ("workers",)) else 1
    if len(path) > size or path[:1] == ("cluster",):
        return " ".join((f"[{'.'.join(path[:size])}]", *path[size:]))
    return f"[{'.'.join(path)}]" if len(path) == size == 2 else ".".join(path)


def setting_names() -> Mapping[str, str]:
    """Settings of a worker in a study, each with its default as text."""
    defaults = WorkerSettings()
    assert {name for name, _ in KEYS.values()} == {each.name for each in fields(defaults)}
    return {key: str(getattr(defaults, name)) for key, (name, _) in KEYS.items()}
