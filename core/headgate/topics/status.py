"""The status topic: its records, the state that a reader holds, and the rules by which a worker may
write a status.

Source: `KafkaStatusBackingStore`. Differs: the worker to which a connector or task is assigned may
always write its FAILED status. Java's rule for safe writes can hide it behind a stale RUNNING of
another worker with a higher generation. Also, each tombstone of a clean-up is written once.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, cast

from headgate.ids import State, TaskId
from headgate.java.json import NotJsonError, Parse, dumps, java_int
from headgate.ports import Place
from headgate.topics.config_records import Record, java_text, read_value, task_of_key
from headgate.topics.config_state import ConfigState
from headgate.topics.rejected import kept, seen

CONNECTOR_PREFIX: Final = "status-connector-"
TASK_PREFIX: Final = "status-task-"
TOPIC_PREFIX: Final = "status-topic-"
_TOPIC_SEPARATOR: Final = ":connector-"
_NO_TASKS: Final[Mapping[int, "Status"]] = {}


@dataclass(frozen=True, slots=True)
class Status:
    """The status that a worker reported for a connector or task. ``state.value`` is the word in the
    record."""

    state: State
    worker_id: str
    """Advertised host and port of the worker that wrote the status."""
    generation: int
    """Group generation of that worker when it wrote the status."""
    trace: str | None = None
    version: str | None = None
    """Version of the plugin (KIP-891); None in records of older workers."""
    restarts: int = 0
    """Number of consecutive restarts by the restart policy. Java's workers neither write nor read
    it."""
    config_offset: int | None = None
    """Config offset that the status takes into account: it belongs to a run that was made from what
    the config topic held about the item before this offset. None if it is not known: Java's workers
    neither write nor read it."""


@dataclass(frozen=True, slots=True)
class TopicActivity:
    """A connector has used a topic; `task` is its first task that reported it. Source: KIP-558."""

    topic: str
    connector: str
    task: int
    discovered_ms: int
    """Wall-clock time of the worker, in milliseconds since 1970."""


# -- events --


@dataclass(frozen=True, slots=True)
class ConnectorStatusReported:
    """A worker reported the status of a connector. Key: ``status-connector-<connector>``."""

    connector: str
    status: Status


@dataclass(frozen=True, slots=True)
class ConnectorStatusRemoved:
    """The status of a connector was removed, and with it the statuses of its tasks. Key:
    ``status-connector-<connector>``, no value."""

    connector: str


@dataclass(frozen=True, slots=True)
class TaskStatusReported:
    """A worker reported the status of a task. Key: ``status-task-<connector>-<n>``."""

    task: TaskId
    status: Status


@dataclass(frozen=True, slots=True)
class TaskStatusRemoved:
    """The status of a task was removed. Key: ``status-task-<connector>-<n>``, no value."""

    task: TaskId


@dataclass(frozen=True, slots=True)
class TopicUsed:
    """A connector has used a topic. Key: ``status-topic-<topic>:connector-<connector>``; `topic`
    and `connector` come from the key, not from the value."""

    topic: str
    connector: str
    activity: TopicActivity


@dataclass(frozen=True, slots=True)
class TopicReset:
    """A user or a worker reset the record of a topic's use. Key:
    ``status-topic-<topic>:connector-<connector>``, no value."""

    topic: str
    connector: str


@dataclass(frozen=True, slots=True)
class StatusRejected:
    """A record that no reader can use. It affects no record around it."""

    key: str
    reason: str
    partition: int = 0
    offset: int = -1


StatusEvent: TypeAlias = (
    ConnectorStatusReported
    | ConnectorStatusRemoved
    | TaskStatusReported
    | TaskStatusRemoved
    | TopicUsed
    | TopicReset
    | StatusRejected
)


# -- bytes --


def connector_key(connector: str) -> str:
    return CONNECTOR_PREFIX + connector


def task_key(task: TaskId) -> str:
    return f"{TASK_PREFIX}{task}"


def topic_key(topic: str, connector: str) -> str:
    return f"{TOPIC_PREFIX}{topic}{_TOPIC_SEPARATOR}{connector}"


def encode_connector_status(connector: str, status: Status) -> tuple[str, bytes]:
    return connector_key(connector), _encode(status)


def encode_task_status(task: TaskId, status: Status) -> tuple[str, bytes]:
    return task_key(task), _encode(status)


def encode_topic_activity(activity: TopicActivity) -> tuple[str, bytes]:
    content = {
        "name": activity.topic,
        "connector": activity.connector,
        "task": activity.task,
        "discoverTimestamp": activity.discovered_ms,
    }
    return topic_key(activity.topic, activity.connector), dumps({"topic": content})


def _encode(status: Status) -> bytes:
    table: dict[str, object] = {
        "state": status.state.value,
        "trace": status.trace,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "version": status.version,
    }
    if status.restarts:
        table["restarts"] = status.restarts
    if status.config_offset is not None:
        table["config_offset"] = status.config_offset
    return dumps(table)


def decode_status(
    key: bytes | str | None,
    value: bytes | None,
    parse: Parse | None = None,
    place: Place = (0, -1),
) -> StatusEvent:
    """Return the event that one record stands for. Only an absent value is a tombstone here; an
    empty one is rejected.

    Args:
        parse: As in `headgate.topics.config_records.decode`.
        place: Place of the record, which a rejection carries.
    """
    event = _decode(key, value, parse)
    if isinstance(event, StatusRejected):
        return replace(event, partition=place[0], offset=place[1])
    return event


def _decode(key: bytes | str | None, value: bytes | None, parse: Parse | None) -> StatusEvent:
    if key is None:
        return StatusRejected("", "a record without a key")
    text = key if isinstance(key, str) else java_text(key)
    if text.startswith(CONNECTOR_PREFIX):
        return _connector(text, text[len(CONNECTOR_PREFIX) :], value, parse)
    if text.startswith(TASK_PREFIX):
        return _task(text, text[len(TASK_PREFIX) :], value, parse)
    if text.startswith(TOPIC_PREFIX):
        return _topic(text, text[len(TOPIC_PREFIX) :], value, parse)
    return StatusRejected(text, "a key of no known kind")


def _connector(key: str, name: str, value: bytes | None, parse: Parse | None) -> StatusEvent:
    if not name:
        return StatusRejected(key, "the key names no connector")
    if value is None:
        return ConnectorStatusRemoved(name)
    status = _status(value, parse)
    if isinstance(status, str):
        return StatusRejected(key, status)
    return ConnectorStatusReported(name, status)


def _task(key: str, rest: str, value: bytes | None, parse: Parse | None) -> StatusEvent:
    parts = task_of_key(rest)
    if parts is None:
        return StatusRejected(key, "the key names no task, expected status-task-<connector>-<n>")
    task = TaskId(*parts)
    if value is None:
        return TaskStatusRemoved(task)
    status = _status(value, parse)
    if isinstance(status, str):
        return StatusRejected(key, status)
    return TaskStatusReported(task, status)


def _topic(key: str, rest: str, value: bytes | None, parse: Parse | None) -> StatusEvent:
    topic, _, tail = rest.partition(":")
    # Java skips the length of ":connector-" without looking at it.
    connector = tail[len(_TOPIC_SEPARATOR) - 1 :]
    if not topic or not connector:
        return StatusRejected(
            key, "the key names no topic and connector, expected status-topic-<t>:connector-<c>"
        )
    if value is None:
        return TopicReset(topic, connector)
    table = _object(value, parse)
    if isinstance(table, str):
        return StatusRejected(key, table)
    inner = table.get("topic")
    if not isinstance(inner, dict):
        return StatusRejected(key, f"'topic' is {seen(inner)}, expected an object")
    fields = cast(dict[str, Any], inner)
    name, owner = fields.get("name"), fields.get("connector")
    task, discovered_ms = fields.get("task"), fields.get("discoverTimestamp")
    if type(task) is not int or type(discovered_ms) is not int:
        return StatusRejected(key, "expected 'task' and 'discoverTimestamp' as integers")
    if type(name) is not str or type(owner) is not str:
        return StatusRejected(key, "expected 'name' and 'connector' as strings")
    activity = TopicActivity(name, owner, java_int(task), discovered_ms)
    return TopicUsed(topic, connector, activity)


def _object(value: bytes, parse: Parse | None) -> dict[str, Any] | str:
    try:
        content = read_value(value, parse)
    except NotJsonError as error:
        return str(error)
    if type(content) is not dict:
        return f"the value is {seen(content)}, expected an object"
    return cast(dict[str, Any], content)


def _status(value: bytes, parse: Parse | None) -> Status | str:
    """Return the status in `value`, or the reason why it holds none."""
    table = _object(value, parse)
    if isinstance(table, str):
        return table
    named = table.get("state")
    state = _STATES.get(named) if isinstance(named, str) else None
    if state is None:
        return f"'state' is {seen(named)}, expected one of {', '.join(_STATES)}"
    generation = table.get("generation")
    if type(generation) is not int:
        return f"'generation' is {seen(generation)}, expected an integer"
    trace, worker_id, version = table.get("trace"), table.get("worker_id"), table.get("version")
    for item in (trace, worker_id, version):
        if item is not None and type(item) is not str:
            return "expected 'trace', 'worker_id' and 'version' as strings or null"
    restarts = table.get("restarts")
    count = max(java_int(restarts), 0) if type(restarts) is int else 0
    told = table.get("config_offset")
    offset = told if type(told) is int and 0 <= told < 1 << 63 else None
    return Status(state, worker_id or "", java_int(generation), trace, version, count, offset)


_STATES: Final = {state.value: state for state in State}


# -- what a reader holds --


@dataclass(frozen=True, slots=True)
class StatusView:
    """The statuses and topic uses that a worker has read. Immutable; made by `fold_statuses`. It
    may be stale."""

    connectors: Mapping[str, Status] = field(default_factory=dict[str, Status])
    tasks: Mapping[str, Mapping[int, Status]] = field(
        default_factory=dict[str, Mapping[int, Status]]
    )
    """Task statuses by connector and number."""
    topics: Mapping[str, Mapping[str, TopicActivity]] = field(
        default_factory=dict[str, Mapping[str, TopicActivity]]
    )
    """Uses of topics, by connector and topic."""
    rejected: tuple[StatusRejected, ...] = ()
    """The last `REJECTED_KEPT` records that no reader could use."""
    rejected_count: int = 0

    def task(self, task: TaskId) -> Status | None:
        return self.tasks.get(task.connector, {}).get(task.task)

    def answer(self, connector: str, kind: str) -> dict[str, Any] | None:
        """Return the body of ``GET /connectors/<connector>/status`` as plain data; None if the
        connector has no status. `kind` is source, sink or unknown. Tasks are sorted by number."""
        status = self.connectors.get(connector)
        if status is None:
            return None
        tasks = self.tasks.get(connector, _NO_TASKS)
        # Inlined instead of calling `_shown_task`: a listing does this for ten thousand connectors.
        return {
            "name": connector,
            "connector": _shown(status),
            "tasks": [
                {
                    "id": number,
                    "state": each.state._value_,
                    "worker_id": each.worker_id,
                    "version": each.version,
                }
                if (each := tasks[number]).trace is None
                else _shown_task(number, each)
                for number in sorted(tasks)
            ],
            "type": kind,
        }

    def restart_plan(
        self, connector: str, kind: str, *, include_tasks: bool, only_failed: bool
    ) -> dict[str, Any] | None:
        """Return the body of the answer to a restart request: the status, with RESTARTING for
        everything that will restart. None if the connector has no status. Source: KIP-745,
        RestartPlan."""
        body = self.answer(connector, kind)
        if body is not None:
            for item in (body["connector"], *(body["tasks"] if include_tasks else ())):
                if not only_failed or item["state"] == State.FAILED.value:
                    item["state"] = State.RESTARTING.value
        return body

    def answer_task(self, task: TaskId) -> dict[str, Any] | None:
        """Return the body of ``GET /connectors/<connector>/tasks/<n>/status``; None if the task has
        no status."""
        status = self.task(task)
        return None if status is None else _shown_task(task.task, status)


def _shown(status: Status) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "state": status.state._value_,  # `value` takes ten times as long, for each of 30,000
        "worker_id": status.worker_id,
        "version": status.version,
    }
    if status.trace is not None:
        shown["trace"] = status.trace
    return shown


def _shown_task(number: int, status: Status) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": number,
        "state": status.state._value_,
        "worker_id": status.worker_id,
        "version": status.version,
    }
    if status.trace is not None:
        shown["trace"] = status.trace
    return shown


def fold_statuses(view: StatusView, events: Iterable[StatusEvent]) -> StatusView:
    """Return `view` after `events`, which are in the order of their records. `view` is not changed.

    The last record wins, with one exception: a task's UNASSIGNED is ignored while RUNNING of the
    same or a later generation is known, because its writer was late. Source: `readTaskStatus`.
    """
    draft = _Draft(view)
    for event in events:
        match event:
            case ConnectorStatusReported(name, status):
                draft.connectors[name] = status
            case ConnectorStatusRemoved(name):
                draft.connectors.pop(name, None)
                draft.tasks_of(name).clear()
            case TaskStatusReported(task, status):
                group = draft.tasks_of(task.connector)
                if not is_late(group.get(task.task), status):
                    group[task.task] = status
            case TaskStatusRemoved(task):
                draft.tasks_of(task.connector).pop(task.task, None)
            case TopicUsed(topic, name, activity):
                draft.topics_of(name)[topic] = activity
            case TopicReset(topic, name):
                draft.topics_of(name).pop(topic, None)
            case StatusRejected():
                draft.rejected.append(event)
    return draft.freeze()


class _Draft:
    """A `StatusView` in the making. It copies a connector's map at the first write to it."""

    __slots__ = ("connectors", "own_tasks", "own_topics", "rejected", "tasks", "topics", "view")

    def __init__(self, view: StatusView) -> None:
        self.connectors = dict(view.connectors)
        self.tasks: dict[str, Mapping[int, Status]] = dict(view.tasks)
        self.topics: dict[str, Mapping[str, TopicActivity]] = dict(view.topics)
        self.own_tasks: dict[str, dict[int, Status]] = {}
        self.own_topics: dict[str, dict[str, TopicActivity]] = {}
        self.rejected: list[StatusRejected] = []
        self.view = view

    def tasks_of(self, connector: str) -> dict[int, Status]:
        own = self.own_tasks.get(connector)
        if own is None:
            own = self.own_tasks[connector] = dict(self.tasks.get(connector, {}))
            self.tasks[connector] = own
        return own

    def topics_of(self, connector: str) -> dict[str, TopicActivity]:
        own = self.own_topics.get(connector)
        if own is None:
            own = self.own_topics[connector] = dict(self.topics.get(connector, {}))
            self.topics[connector] = own
        return own

    def freeze(self) -> StatusView:
        for name, group in self.own_tasks.items():
            if not group:
                del self.tasks[name]
        for name, topics in self.own_topics.items():
            if not topics:
                del self.topics[name]
        return StatusView(
            self.connectors,
            self.tasks,
            self.topics,
            kept(self.view.rejected, self.rejected),
            self.view.rejected_count + len(self.rejected),
        )


def is_late(known: Status | None, status: Status) -> bool:
    """Return whether a task's `status` is outdated: it is UNASSIGNED, and RUNNING of the same or a
    later generation is already known."""
    return (
        status.state is State.UNASSIGNED
        and known is not None
        and known.state is State.RUNNING
        and known.generation >= status.generation
    )


# -- writing --


def may_write(known: Status | None, status: Status, *, safe: bool, assigned_to_me: bool) -> bool:
    """Return whether `status` may be written over `known`, the status that this worker has read.

    Args:
        safe: The write must not hide the status of a later owner. UNASSIGNED and FAILED are written
            safely; other statuses are always written. Source: `CacheEntry.canWriteSafely`.
        assigned_to_me: The item is in this worker's current assignment. Its FAILED is then written
            whatever is known, since no other worker can report it. (Java drops it if the group's
            generations started again from the beginning.)
    """
    if not safe or known is None:
        return True
    if status.state is State.FAILED and assigned_to_me:
        return True
    return known.worker_id == status.worker_id or known.generation <= status.generation


def cleanup(
    view: StatusView, state: ConfigState, written: Container[str] = frozenset()
) -> tuple[Record, ...]:
    """Return tombstones for the statuses of connectors and tasks that are no longer configured.
    Source: `DistributedHerder.updateDeletedConnectorStatus` and `updateDeletedTaskStatus`.

    Args:
        written: Keys whose tombstones this worker has written but not yet read back.

    Returns:
        Each key once, by connector in order of name: its topics, its tasks, then the connector.
    """
    keys: list[str] = []
    for name in sorted({*view.connectors, *view.tasks, *view.topics}):
        configured = state.entry(name) is not None
        tasks = frozenset(state.tasks(name))
        if not configured:
            keys += [topic_key(topic, name) for topic in sorted(view.topics.get(name, {}))]
        for number in sorted(view.tasks.get(name, {})):
            if TaskId(name, number) not in tasks:
                keys.append(task_key(TaskId(name, number)))
        if not configured and name in view.connectors:
            keys.append(connector_key(name))
    return tuple((key, None) for key in keys if key not in written)
