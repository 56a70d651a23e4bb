"""`run_source` and `run_sink`: a connector's tasks on the log in memory, in virtual time.

The task bodies are the real ones. A task's `context.wait` takes no real time. Time that a connector
measures with its own clock, and its own `time.sleep`, is real.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from headgate.connector.api import (
    Connector,
    Converter,
    Headers,
    Partition,
    SinkConnector,
    Value,
)
from headgate.connector.converters import TaskConverters, task_converters
from headgate.connector.dead_letters import SOURCE_OFFSET, SOURCE_PARTITION
from headgate.connector.error_handling import LETTERS_TOPIC
from headgate.connector.schema import Schema
from headgate.connector.sink_names import sink_group, sink_subscription, topics_now
from headgate.ports import ConsumerRecord, ProducerRecord
from headgate.task.messages import TaskEnded, TaskKind, TaskOutcome, TaskSpec
from headgate.topics.offsets import decode_key, decode_value, encode_key, encode_value
from headgate_runtime.testing.body_run import MEMORY, Conduct, RunTools, run_task, task_spec
from headgate_runtime.testing.contexts import FakeConnectorContext, Offsets
from headgate_runtime.testing.job import (
    NAME,
    NO_SETTINGS,
    WORKER,
    full_config,
    is_planned,
    sink_class,
    source_class,
)
from headgate_runtime.testing.job import task_configs as made_task_configs
from headgate_runtime.testing.messages import Message, Raw
from headgate_runtime.testing.points import Points
from headgate_runtime.testing.rebalance import OtherMember
from headgate_runtime.testing.world import Origin, World

_AT = (SOURCE_PARTITION, SOURCE_OFFSET)
DRY_MS = 3_000
"""Time in ms after which a sink that has all its records and commits nothing is told to stop."""


@dataclass(slots=True)
class SourceRun:
    """The result of a run of a source's tasks."""

    messages: list[Message]
    """All records that are committed in the log, in its order, including those of earlier runs on
    it."""
    offsets: list[tuple[Partition, Mapping[str, Any]]]
    """Committed source offsets, as pairs of source partition and offset."""
    ended: TaskEnded
    """How the task ended. Of several tasks, it is the first that did more than stop."""
    idle: bool
    """Whether each task reported at its end that nothing was left to read."""
    skipped: int = 0
    """Records that `errors.tolerance` skipped."""
    quarantined: tuple[str, ...] = ()
    points: list[str] = field(default_factory=list[str])
    """Names of the points that the run passed: see `kill_at`."""
    killed: bool = False
    pauses: int = 0
    letters: list[Message] = field(default_factory=list[Message])
    """Dead letters in the log, with the source partition and offset that their headers name. Key
    and value are bytes."""


@dataclass(slots=True)
class SinkRun:
    """The result of a run of a sink's task."""

    committed: dict[tuple[str, int], int]
    """Consumer offsets of the sink's group, by topic partition."""
    ended: TaskEnded
    complete: bool
    """Whether committed offsets cover all records of the topics that it reads."""
    skipped: int = 0
    points: list[str] = field(default_factory=list[str])
    killed: bool = False
    pauses: int = 0
    rebalances: int = 0


def run_source(
    connector: type[Connector] | str,
    config: Mapping[str, str],
    *,
    offsets: Offsets = (),
    exactly_once: bool = True,
    until_idle: bool = True,
    max_records: int | None = None,
    worker_settings: Mapping[str, str] = NO_SETTINGS,
    world: World | None = None,
    kill_at: int | None = None,
    stop_at: int | None = None,
    pause_at: str = "",
    at_point: Callable[[int, str], None] | None = None,
) -> SourceRun:
    """Run the tasks of a source, one after the other, until each has nothing left to read.

    Args:
        connector: its class, or a value of ``connector.class``.
        config: its own keys, and any key of Connect's. ``tasks.max`` is 1 unless given.
        offsets: offsets committed before the run, as pairs of source partition and source offset.
        exactly_once: commit records and source offsets in one transaction.
        until_idle: as with ``headgate up --until-idle``, the present input is all that will come.
        max_records: stop a task once the log has this many records. For a source without an end.
        worker_settings: settings of the worker, added to those of every run, or in their place.
        world: the log to go on with. None: a new one.
        kill_at: number of a point, from 1, at which the run is killed: `SourceRun.points`.
        stop_at: number of a point at which the task is told to stop.
        pause_at: name of points at which the connector is paused, to be resumed 1 s later.
        at_point: called at each point with its number and its name.

    Raises:
        ConfigRefusedError: the config is not valid.
        TypeError: it is no source.
    """
    found = source_class(connector)
    world = world or World()
    full = full_config(found, config)
    world.log.offsets.append(
        [(encode_key(NAME, each), encode_value(at)) for each, at in offsets], world.now_ms()
    )
    points = Points(kill_at)
    known = FakeConnectorContext(_committed_offsets(world))
    run = SourceRun([], [], TaskEnded(TaskOutcome.STOPPED), idle=True)
    for number, task_config in enumerate(made_task_configs(found, full, known, worker_settings)):
        conduct = Conduct(lambda: False, pause_at, stop_at, at_point)
        conduct.done = _source_done(conduct, world, max_records)
        spec = task_spec(
            *(TaskKind.SOURCE, full, task_config, number, exactly_once, until_idle, worker_settings)
        )
        ended = run_task(spec, RunTools(world, points, found.TASK), world, points, conduct)
        _add(run, conduct, ended)
        if points.dead:
            break
    converters = task_converters(full, {**WORKER, **worker_settings})
    run.messages = [read(record, converters, origin) for record, origin in world.log.from_source]
    run.offsets, run.letters = _committed_offsets(world), _letters(world, full)
    run.points, run.killed = points.passed, points.dead
    return run


def _letters(world: World, config: Mapping[str, str]) -> list[Message]:
    found: list[Message] = []
    topic = config.get(LETTERS_TOPIC, "").strip()
    for each in chain.from_iterable(world.log.topics.get(topic, ())):
        headers = {name: json.loads(text or b"null") for name, text in each.headers if name in _AT}
        place = (each.value, each.key, topic, each.partition, each.headers, each.timestamp_ms)
        found.append(Message(*place, None, None, each.offset, *map(headers.get, _AT)))
    return found


def _add(run: SourceRun, conduct: Conduct, ended: TaskEnded) -> None:
    """Add the result of one task."""
    run.idle = run.idle and conduct.was_idle
    run.skipped += conduct.progress.skipped
    run.quarantined += conduct.progress.quarantined
    run.pauses += conduct.pauses
    if ended.outcome is not TaskOutcome.STOPPED and run.ended.outcome is TaskOutcome.STOPPED:
        run.ended = ended


def _source_done(conduct: Conduct, world: World, max_records: int | None) -> Any:
    def done() -> bool:
        conduct.was_idle = conduct.progress.idle
        enough = max_records is not None and len(world.log.from_source) >= max_records
        return conduct.progress.idle or enough

    return done


def _committed_offsets(world: World) -> list[tuple[Partition, Mapping[str, Any]]]:
    found: list[tuple[Partition, Mapping[str, Any]]] = []
    for record in world.log.offsets.read(0, 1_000_000)[0]:
        known, offset = decode_key(record.key or b""), decode_value(record.value)
        if known is not None and known.partition is not None and offset is not None:
            found.append((known.partition, offset))
    return found


def read(
    record: ConsumerRecord, converters: TaskConverters, origin: Origin | None = None
) -> Message:
    """Return a record of the log as a sink with these converters is given it."""
    key_schema, key = (None, None)
    if record.key is not None:
        key_schema, key = converters.key.to_connect_data(record.topic, record.key)
    value_schema, value = converters.value.to_connect_data(record.topic, record.value)
    headers: Headers = ()
    if record.headers:
        headers, _ = converters.header.to_connect_data(record.topic, record.headers)
    return Message(
        value,
        key,
        record.topic,
        record.partition,
        headers,
        record.timestamp_ms,
        key_schema,
        value_schema,
        record.offset,
        None if origin is None else origin.partition,
        None if origin is None else origin.offset,
    )


def run_sink(
    connector: type[Connector] | str,
    config: Mapping[str, str],
    messages: Sequence[Message | Value] = (),
    *,
    batch: int | None = None,
    worker_settings: Mapping[str, str] = NO_SETTINGS,
    world: World | None = None,
    kill_at: int | None = None,
    stop_at: int | None = None,
    pause_at: str = "",
    rebalance_at: int | None = None,
    at_point: Callable[[int, str], None] | None = None,
) -> SinkRun:
    """Put `messages` into the log, and run a task of the sink until it has written all records.

    Args:
        connector: its class, or a value of ``connector.class``.
        config: its own keys, and any key of Connect's. ``topics`` are those of the log unless
            given.
        messages: appended to the log before. A plain value is a message of the topic ``topic``.
        batch: most records that `put` is given at once. None: as many as there are, up to 2,000. A
            sink of planned batches has settings of its own for it.
        worker_settings: settings of the worker, added to those of every run, or in their place.
        world: the log to go on with. None: a new one.
        kill_at: number of a point, from 1, at which the run is killed: `SinkRun.points`.
        stop_at: number of a point at which the task is told to stop.
        pause_at: name of points at which the connector is paused, to be resumed 1 s later.
        rebalance_at: number of a point at which another member joins the sink's group for 1 s.
        at_point: called at each point with its number and its name.

    Raises:
        ConfigRefusedError: the config is not valid.
        TypeError: it is no sink.
        DataError: the converter of the config cannot write one of the messages.
    """
    found = sink_class(connector)
    world = world or World()
    _append(world, task_converters(config, {**WORKER, **worker_settings}), messages)
    spec = _sink_spec(found, config, world, worker_settings)
    points = Points(kill_at)
    group = sink_group(NAME, spec.connector_config)
    other = OtherMember(world, points, group, sorted(world.log.topics), rebalance_at)
    conduct = Conduct(lambda: False, pause_at, stop_at, at_point)
    topics = topics_now(sink_subscription(spec.connector_config), lambda: world.log.topics)
    conduct.done = _SinkDone(world, group, topics, points, other)
    ended = run_task(spec, RunTools(world, points, found.TASK, batch), world, points, conduct)
    other.leave()
    committed = dict(world.log.committed.get(group, {}))
    return SinkRun(
        committed,
        ended,
        is_complete(world, group, topics),
        conduct.progress.skipped,
        points.passed,
        points.dead,
        conduct.pauses,
        other.joined,
    )


def _sink_spec(
    found: type[SinkConnector],
    config: Mapping[str, str],
    world: World,
    worker_settings: Mapping[str, str],
) -> TaskSpec:
    """Return the spec of the sink's one task. It reads the topics of the log, unless the config
    names some."""
    if "topics" not in config and "topics.regex" not in config:
        topics = [one for one in world.log.topics if one != config.get(LETTERS_TOPIC)]
        config = {**config, "topics": ",".join(topics) or "topic"}
    full = full_config(found, config)
    return task_spec(
        TaskKind.SINK,
        full,
        made_task_configs(found, full, FakeConnectorContext(), worker_settings)[0],
        0,
        worker_settings=worker_settings,
        transport=world.elsewhere() if is_planned(found) else MEMORY,
    )


def is_complete(world: World, group: str, topics: Sequence[str]) -> bool:
    """Return whether the group's offsets cover all records of these topics."""
    committed = world.log.committed.get(group, {})
    return all(
        committed.get((topic, number), 0) >= len(records)
        for topic in topics
        for number, records in enumerate(world.log.topics.get(topic, ()))
    )


class _SinkDone:
    """Tells whether a sink has written all, or makes no more progress."""

    def __init__(
        self,
        world: World,
        group: str,
        topics: Sequence[str],
        points: Points,
        other: OtherMember,
    ) -> None:
        self._world = world
        self._group = group
        self._topics = topics
        self._points = points
        self._other = other
        self._seen = 0
        self._since_ms = world.now_ms()

    def __call__(self) -> bool:
        self._other.look()
        got_on, now_ms = self._points.got_on, self._world.now_ms()
        if got_on != self._seen or not got_on or self._other.is_member:
            self._seen, self._since_ms = got_on, now_ms
        if self._other.is_due:
            return now_ms - self._since_ms >= 10 * DRY_MS
        is_dry = now_ms - self._since_ms >= DRY_MS
        return is_dry or is_complete(self._world, self._group, self._topics)


def delivered(
    config: Mapping[str, str],
    messages: Sequence[Message | Value],
    worker_settings: Mapping[str, str] = NO_SETTINGS,
) -> list[Message]:
    """Return `messages` with their offsets in a new log, as a sink of this config is given them."""
    world, converters = World(), task_converters(config, {**WORKER, **worker_settings})
    _append(world, converters, messages)
    ends: dict[tuple[str, int], int] = {}
    found: list[Message] = []
    for given in messages:
        each = given if isinstance(given, Message) else Message(given)
        place = (each.topic, each.partition)
        offset = ends.get(place, 0)
        ends[place] = offset + 1
        raw = isinstance(each.value, Raw) or isinstance(each.key, Raw)
        record = world.log.topics[each.topic][each.partition][offset]
        found.append(replace(each, offset=offset) if raw else read(record, converters))
    return found


def _append(world: World, converters: TaskConverters, messages: Sequence[Message | Value]) -> None:
    log = world.log
    records: list[tuple[tuple[str, int], ProducerRecord]] = []
    for given in messages:
        each = given if isinstance(given, Message) else Message(given)
        logs = log.topics.setdefault(each.topic, [])
        while len(logs) <= each.partition:
            logs.append([])
        key = _bytes_of(converters.key, each.topic, each.key, each.key_schema)
        value = _bytes_of(converters.value, each.topic, each.value, each.value_schema)
        headers = (
            converters.header.from_connect(each.topic, each.headers, ()) if each.headers else ()
        )
        record = ProducerRecord(each.topic, each.partition, key, value, headers, each.timestamp_ms)
        records.append(((each.topic, each.partition), record))
    log.append(records)


def _bytes_of(
    converter: Converter, topic: str, value: Value, schema: Schema | None
) -> bytes | None:
    if isinstance(value, Raw):
        return value.data
    if value is None and schema is None:
        return None
    return converter.from_connect(topic, value, schema)
