"""The view of an observer on a cluster's topics and its group, with findings about what is wrong.

It is pure: a `Look` in, plain data out. Everything that a worker could know is computed from the
same records by the same functions. No worker was asked, and no group was joined.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from headgate.assignment.model import Work
from headgate.ids import State, TargetState, TaskId
from headgate.membership.codec import CODECS, Assignment, Metadata
from headgate.membership.leading import changed
from headgate.ports import TopicPartition
from headgate.topics.config_state import ConfigState, ConnectorEntry
from headgate.topics.offsets import OffsetTable
from headgate.topics.status import Status, StatusView
from headgate.wire import WireError
from headgate_runtime.worker.rejected_log import Rejected, shown_key, words
from headgate_runtime.worker.traces import first_words

STABLE: Final = "Stable"
REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")
"""Group states in which brokers do not show what members say."""
COMPARED: Final = "config.storage.topic and bootstrap.servers"
REJECTED_SHOWN: Final = 10
"""Rejected records of each topic that are shown in words."""
RUNS_SHOWN: Final = 10
"""Runs of missing tasks that are shown."""

_STATE_OF_TARGET: Final = {
    TargetState.STARTED: State.RUNNING,
    TargetState.PAUSED: State.PAUSED,
    TargetState.STOPPED: State.STOPPED,
}


class GroupMember(Protocol):
    """A member as the group coordinator describes it. The bytes are the workers' own."""

    @property
    def member_id(self) -> str: ...
    @property
    def client_id(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def metadata(self) -> bytes:
        """Metadata that the member sent. Empty while a round is under way."""
        ...

    @property
    def assignment(self) -> bytes: ...


class GroupLook(Protocol):
    @property
    def group(self) -> str: ...
    @property
    def state(self) -> str:
        """State as the coordinator calls it: Stable, PreparingRebalance, CompletingRebalance,
        Empty, Dead."""
        ...

    @property
    def protocol(self) -> str:
        """Protocol that all members share. Empty while there is none."""
        ...

    @property
    def members(self) -> Sequence[GroupMember]: ...


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """A sink's consumer group: its committed offsets, and the end offsets of the topics."""

    group: str
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """One source partition of a connector, as a task would read it."""

    partition: Mapping[str, Any]
    offset: Mapping[str, Any] | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """All that was read at one moment: the group first, then the topics to their ends."""

    group: GroupLook
    topics: Mapping[str, str]
    """Names of the internal topics, under ``config``, ``status``, ``offset``."""
    state: ConfigState
    statuses: StatusView
    source_offsets: Mapping[str, Sequence[SourceOffset]] = field(
        default_factory=dict[str, Sequence[SourceOffset]]
    )
    offset_tables: Mapping[str, OffsetTable] = field(default_factory=dict[str, OffsetTable])
    """Offset tables by topic: the workers' offsets topic, and connectors' own topics."""
    sink_progress: Mapping[str, SinkProgress] = field(default_factory=dict[str, SinkProgress])
    passing: tuple[str, ...] = ()
    """Client ids of members that came or left during the look."""
    problems: tuple[str, ...] = ()
    """Failures to read, with their reasons."""
    exactly_once: bool | None = None
    """Whether the workers have exactly-once sources. None: it is not known."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """A member with its decoded bytes, or the reason why they could not be decoded."""

    member: GroupMember
    metadata: Metadata | None
    assignment: Assignment | None
    problem: str | None

    @property
    def connectors(self) -> tuple[str, ...]:
        return self._owned[0]

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        return self._owned[1]

    @property
    def _owned(self) -> tuple[tuple[str, ...], tuple[TaskId, ...]]:
        """The work that it reported when it joined, with the changes of the round."""
        if self.metadata is None or self.assignment is None:
            return (), ()
        return changed(self.metadata.connectors, self.metadata.tasks, self.assignment.change)

    @property
    def name(self) -> str:
        url = self.metadata.url if self.metadata is not None else ""
        return url.removeprefix("http://").removeprefix("https://").rstrip("/") or (
            self.member.client_id
        )


def describe(look: Look) -> dict[str, Any]:
    """Return the cluster as plain data. ``findings`` says in words what does not fit together.

    - ``group``: id, state, protocol, leader (name of a worker, null while there is none),
      generation (see `_generation`), members.
    - ``config``: topic, offset, rejected records, session_key.
    - ``status``, ``offset``: topic, rejected records. ``own_offsets``: the same for each own topic
      of a connector that has rejected records.
    - ``connectors``: by name: type, target_state, state, owner, tasks, inconsistent, fencing (with
      ``waiting``: see `_waits_for_fencing`), and ``offsets`` (source) or ``progress`` (sink).
    """
    workers = [_read(member, look.group.protocol) for member in look.group.members]
    owners = _owners(worker for worker in workers if not _of_another(look, worker.metadata))
    names = sorted(look.state.connector_names())
    shared = look.topics.get("offset")
    return {
        "group": _group(look, workers, owners),
        "config": _config(look),
        "status": _topic(look.topics.get("status"), look.statuses),
        "offset": _topic(shared, look.offset_tables.get(shared or "", OffsetTable())),
        "own_offsets": [
            _topic(topic, table)
            for topic, table in sorted(look.offset_tables.items())
            if topic != shared and table.rejected_count
        ],
        "connectors": {name: _connector(look, name, owners) for name in names},
        "findings": [*_findings(look, workers, owners)],
    }


def _read(member: GroupMember, protocol: str) -> _Worker:
    if not member.metadata:
        return _Worker(member, None, None, None)
    codec = CODECS.get(protocol)
    if codec is None:
        problem = f"protocol {protocol!r} is none of {', '.join(CODECS)}"
        return _Worker(member, None, None, problem)
    try:
        metadata = codec.decode_metadata(member.metadata)
        assignment = codec.decode_assignment(member.assignment) if member.assignment else None
    except WireError as error:
        return _Worker(member, None, None, str(error))
    return _Worker(member, metadata, assignment, None)


def _owners(workers: Iterable[_Worker]) -> dict[Work, list[str]]:
    owners: dict[Work, list[str]] = {}
    for worker in workers:
        works: list[Work] = [*worker.connectors, *worker.tasks]
        for work in works:
            owners.setdefault(work, []).append(worker.name)
    return owners


def _group(
    look: Look, workers: Sequence[_Worker], owners: Mapping[Work, Sequence[str]]
) -> dict[str, Any]:
    leaders = {w.assignment.leader for w in workers if w.assignment is not None}
    leader = next((w.name for w in workers if w.member.member_id in leaders), None)
    return {
        "id": look.group.group,
        "state": look.group.state,
        "protocol": look.group.protocol or None,
        "leader": leader,
        "generation": _generation(look, owners),
        "members": [_member(worker) for worker in workers],
    }


def _generation(look: Look, owners: Mapping[Work, Sequence[str]]) -> int | None:
    """Return the latest generation in the statuses that owners wrote on their own work. If no work
    has an owner, all statuses of present work count.

    Brokers do not show the group's generation, and a round that moves nothing writes no status. A
    group that is made anew begins with 1 again. So statuses of others' work or of deleted
    connectors may be from the previous group. The same holds for the generation that our members
    say they completed last.
    """
    names = [*look.state.connector_names()]
    works: list[Work] = [*names, *(task for name in names for task in look.state.tasks(name))]
    return max(
        (
            status.generation
            for work in works
            if (status := _status(look.statuses, work)) is not None
            and (not owners or status.worker_id in owners.get(work, ()))
        ),
        default=None,
    )


def _member(worker: _Worker) -> dict[str, Any]:
    metadata, assignment = worker.metadata, worker.assignment
    return {
        "name": worker.name,
        "member_id": worker.member.member_id,
        "host": worker.member.host,
        "url": metadata.url if metadata is not None else None,
        "config_offset": metadata.config_offset if metadata is not None else None,
        "config_topic": (metadata.config_topic or None) if metadata is not None else None,
        "connectors": sorted(worker.connectors),
        "tasks": [str(task) for task in sorted(worker.tasks)],
        "delay_ms": assignment.delay_ms if assignment is not None else 0,
        "problem": worker.problem,
    }


def _config(look: Look) -> dict[str, Any]:
    key = look.state.session_key
    return {
        **_topic(look.topics.get("config"), look.state),
        "offset": look.state.offset,
        "session_key": None
        if key is None
        else {"algorithm": key.algorithm, "creation_timestamp_ms": key.creation_timestamp_ms},
    }


class _Read(Protocol):
    """The result of reading a topic."""

    @property
    def rejected_count(self) -> int: ...
    @property
    def rejected(self) -> Sequence[Rejected]: ...


def _topic(topic: str | None, read: _Read) -> dict[str, Any]:
    return {
        "topic": topic,
        "rejected_count": read.rejected_count,
        "rejected": [
            {
                "partition": one.partition,
                "offset": one.offset,
                "key": shown_key(one.key),
                "reason": one.reason,
            }
            for one in read.rejected
        ],
    }


def _connector(look: Look, name: str, owners: Mapping[Work, Sequence[str]]) -> dict[str, Any]:
    entry = look.state.entries[name]
    status = look.statuses.connectors.get(name)
    sink = look.sink_progress.get(name)
    shown: dict[str, Any] = {
        "type": "source" if sink is None else "sink",
        "config": dict(entry.config or {}),
        "target_state": look.state.target_state(name).value,
        "inconsistent": entry.inconsistent,
        "fencing": {
            "pending": entry.fencing_pending,
            "count": entry.fencing_count,
            "waiting": _waits_for_fencing(look, name, owners),
        },
        "owner": _owner(owners, name),
        **_reported(status),
        "tasks": [
            {"id": task.task, "owner": _owner(owners, task), **_reported(look.statuses.task(task))}
            for task in look.state.tasks(name)
        ],
    }
    if sink is None:
        shown["offsets"] = [
            {"partition": one.partition, "offset": one.offset}
            for one in look.source_offsets.get(name, ())
        ]
    else:
        shown["progress"] = _progress(sink)
    return shown


def _waits_for_fencing(look: Look, name: str, owners: Mapping[Work, Sequence[str]]) -> bool:
    """Return whether tasks of a source do not start because older producers are not fenced yet.

    Without exactly-once no task count is ever recorded, so pending fencing means nothing then.
    Exactly-once is known from a worker's properties, or else from any task count recorded in this
    cluster. A task that runs by its owner's status does not wait.
    """
    entry, tasks = look.state.entries[name], look.state.tasks(name)
    if not entry.fencing_pending or name in look.sink_progress or look.exactly_once is False:
        return False
    if look.state.target_state(name) is not TargetState.STARTED:
        return False
    if not any(owners.get(task) for task in tasks) or any(
        _has_begun(look.statuses.task(task), owners.get(task, ())) for task in tasks
    ):
        return False
    return look.exactly_once is True or any(
        each.fencing_count is not None for each in look.state.entries.values()
    )


def _has_begun(status: Status | None, held: Sequence[str]) -> bool:
    """Return whether the owner has reported more about its task than that it was given up."""
    return (
        status is not None
        and status.worker_id in held
        and status.state not in (State.UNASSIGNED, State.RESTARTING)
    )


def _progress(sink: SinkProgress) -> dict[str, Any]:
    return {
        "group": sink.group,
        "lag": sum(max(0, end - sink.committed.get(p, 0)) for p, end in sink.ends.items()),
        "partitions": [
            {"topic": topic, "partition": n, "committed": sink.committed.get((topic, n)), "end": e}
            for (topic, n), e in sorted(sink.ends.items())
        ],
    }


def _owner(owners: Mapping[Work, Sequence[str]], work: Work) -> str | None:
    return next(iter(owners.get(work, ())), None)


def _reported(status: Status | None) -> dict[str, Any]:
    if status is None:
        return {"state": None, "worker_id": None, "generation": None, "trace": None}
    return {
        "state": status.state.value,
        "worker_id": status.worker_id,
        "generation": status.generation,
        "trace": status.trace,
    }


def _status(statuses: StatusView, work: Work) -> Status | None:
    return statuses.connectors.get(work) if isinstance(work, str) else statuses.task(work)


# -- what does not fit together --


def _findings(
    look: Look, workers: Sequence[_Worker], owners: Mapping[Work, Sequence[str]]
) -> Iterator[str]:
    yield from look.problems
    yield from _about_members(look, workers)
    settled = look.group.state == STABLE and not any(
        w.assignment is not None and w.assignment.delay_ms for w in workers
    )
    for name in sorted(look.state.connector_names()):
        yield from _about_connector(look, name)
        if _waits_for_fencing(look, name, owners):
            yield _about_fencing(look, name)
        works: list[Work] = [name, *look.state.tasks(name)]
        for work in works:
            held = owners.get(work, ())
            if len(held) > 1:
                yield f"{work} is owned by {len(held)} workers: {', '.join(held)}"
            elif settled and not held:
                yield f"{work} is owned by nobody, though the group is stable and no delay runs"
            yield from _about_status(look, work, held)
    yield from _about_leftovers(look)
    yield from _about_rejected("config", look.topics.get("config"), look.state)
    yield from _about_rejected("status", look.topics.get("status"), look.statuses)
    for topic, table in sorted(look.offset_tables.items()):
        yield from _about_rejected("offsets", topic, table)


def _about_rejected(what: str, topic: str | None, read: _Read) -> Iterator[str]:
    count, shown = read.rejected_count, read.rejected[:REJECTED_SHOWN]
    if count:
        yield f"{count} records of {what} topic {topic} cannot be used and are passed over"
        yield from (f"{what} topic {topic}, {words(one)}" for one in shown)
    if count > len(shown):
        yield f"{what} topic {topic}: and {count - len(shown)} more, see rejected in --json"


def _about_members(look: Look, workers: Sequence[_Worker]) -> Iterator[str]:
    group, names = look.group, [*look.state.connector_names()]
    if group.state == "Dead":
        yield f"the brokers know no group {group.group}: is group.id the one that workers have?"
    elif group.state == "Empty" and names:
        yield f"group {group.group} has no members: no worker with this group.id runs"
    elif group.state in REBALANCING:
        yield (
            f"group {group.group} is {group.state}: its members did not tell what they have read. "
            f"If it stays so, compare their {COMPARED}: two clusters may have one group.id"
        )
    if look.passing:
        yield (
            f"{', '.join(look.passing)} came into group {group.group} or left it while it was "
            f"looked at. Who does so again and again may have other topics: compare its {COMPARED}"
        )
    for worker in workers:
        if worker.problem is not None:
            yield f"member {worker.name}: {worker.problem}"
        elif worker.metadata is not None:
            yield from _about_topic(look, worker.name, worker.metadata, len(names))


def _of_another(look: Look, metadata: Metadata | None) -> bool:
    """Return whether a member names a config topic other than the observed one. Its work does not
    belong to this cluster, whatever its name."""
    named = "" if metadata is None else metadata.config_topic
    return bool(named) and not named.startswith(f"'{look.topics.get('config')}' ")


def _about_topic(look: Look, name: str, metadata: Metadata, count: int) -> Iterator[str]:
    """Yield a finding if a member does not read the observed config topic, which has `count`
    connectors."""
    topic = look.topics.get("config")
    if _of_another(look, metadata):
        yield (
            f"member {name} reads config topic {metadata.config_topic}, and not {topic}: does "
            f"another cluster with other topics use group.id {look.group.group}?"
        )
    elif metadata.config_offset > look.state.offset:
        yield (
            f"member {name} has read its config topic to offset {metadata.config_offset}, but "
            f"{topic} ends at {max(look.state.offset, 0)}: does another cluster with other topics "
            f"use group.id {look.group.group}?"
        )
    elif metadata.config_offset < 0 and count:
        yield (
            f"member {name} has read nothing of its config topic, but {topic} has {count} "
            f"connectors: does it have other topics? Compare its {COMPARED}"
        )


def _about_connector(look: Look, name: str) -> Iterator[str]:
    entry = look.state.entries[name]
    if entry.inconsistent:
        yield (
            f"{name} is inconsistent: the last commit names {entry.task_count} tasks, "
            f"{_missing(entry)} without a config since the commit before. No task of it runs until "
            "its task configs are written again; a restart of the connector does that"
        )
    elif (
        entry.task_count is None
        and look.state.target_state(name) is TargetState.STARTED
        and (status := look.statuses.connectors.get(name)) is not None
        and status.state is State.RUNNING
    ):
        yield f"{name} is RUNNING and has no task configs yet"
    for partition in look.source_offsets.get(name, ()):
        if partition.problem is not None:
            yield f"{name}: the offset of {dict(partition.partition)} is there: {partition.problem}"


def _about_fencing(look: Look, name: str) -> str:
    certain = look.exactly_once is True
    return (
        f"{name} {'waits' if certain else 'may wait'} until older producers are shut out"
        f"{'' if certain else ' (if exactly-once is on)'}: no task count record follows its task "
        "configs, and none of its tasks has started. If it stays so, the logs of the leader and "
        "of the tasks' owners say why"
    )


def _missing(entry: ConnectorEntry) -> str:
    """Return the missing tasks as runs. A wrong commit may name any number, so they are not counted
    one by one."""
    count, runs, first = entry.task_count or 0, list[str](), 0
    for known in (*sorted(n for n in entry.tasks if n < count), count):
        if known > first:
            runs.append(f"{first}-{known - 1}" if known - first > 1 else str(first))
        first = known + 1
    more = f" and {len(runs) - RUNS_SHOWN} more runs" if len(runs) > RUNS_SHOWN else ""
    return f"tasks {', '.join(runs[:RUNS_SHOWN])}{more}" if runs else "some"


def _about_status(look: Look, work: Work, held: Sequence[str]) -> Iterator[str]:
    name = work if isinstance(work, str) else work.connector
    status = _status(look.statuses, work)
    if status is None:
        return
    target = look.state.target_state(name)
    if status.state is State.FAILED:
        yield f"{work} FAILED on {status.worker_id}: {first_words(status.trace) or 'no trace'}"
    elif status.state in _STATE_OF_TARGET.values() and status.state is not _STATE_OF_TARGET[target]:
        yield f"{work} is {status.state} on {status.worker_id}, its target state is {target}"
    if len(held) == 1 and status.worker_id != held[0] and status.state is not State.UNASSIGNED:
        yield (
            f"{work} is owned by {held[0]}, its status ({status.state}) is of {status.worker_id} "
            f"from generation {status.generation}"
        )


def _about_leftovers(look: Look) -> Iterator[str]:
    names = {*look.statuses.connectors, *(n for n, tasks in look.statuses.tasks.items() if tasks)}
    for name in sorted(names):
        if look.state.entry(name) is None:
            yield f"{name} has statuses and is not configured (deleted, not yet cleaned up)"
            continue
        tasks = set(look.state.tasks(name))
        for number in sorted(look.statuses.tasks.get(name, {})):
            if TaskId(name, number) not in tasks:
                yield f"{name}-{number} has a status and is no task of {name}"
