"""The leader's writes: one pure decision per call, made on a state that no one else can change.

Every decision is one append, all or none. Source: Connect's KafkaConfigBackingStore.

Differs:

- A stop is one append (two in Java).
- Task configs are one append. It carries the unchanged connector record again, so that compaction
  cannot separate a commit from the configs that it commits.
- If no producer has to be fenced before the task count record, the record goes with the commit, so
  that no task waits for it. Connect's leader writes it when the first task asks.
- What would change nothing is not written.
- A patch is merged with the config in force at its turn, so concurrent patches all count. In Java
  the last of them wins, whole.

Where Java workers are in the group, task configs are written as Java does: first the task configs,
and their commit once these were read back. There is no connector record, which would restart the
connector on a Java worker. Should the leader die in between, the owner publishes the task configs
again to the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, assert_never

from headgate.herder.calls import config_digest
from headgate.herder.messages import (
    CreateConnector,
    DeleteConnector,
    ErrorKind,
    Failure,
    PutConnectorConfig,
    PutTaskConfigs,
    SetTargetState,
    Success,
)
from headgate.herder.reads import connector_info, not_found
from headgate.herder.settings import HerderSettings
from headgate.ids import TargetState, TaskId
from headgate.java.json_reader import NAME_LENGTH_MAX
from headgate.task.messages import TaskKind
from headgate.topics.config_events import Config, RecordRejected
from headgate.topics.config_records import (
    SESSION_KEY,
    Record,
    decode,
    encode_commit,
    encode_connector,
    encode_connector_tombstone,
    encode_restart,
    encode_session_key,
    encode_target_state,
    encode_target_state_tombstone,
    encode_task,
    encode_task_count,
)
from headgate.topics.config_state import ConfigState, ConnectorEntry
from headgate.topics.fencing import is_fenced_by_starting


@dataclass(frozen=True, slots=True)
class MergedPatch:
    """Changes of a connector config, and the whole config that they gave when it was validated."""

    name: str
    changes: Mapping[str, str | None]
    config: Config
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class OrderRestart:
    """A restart that all workers carry out, and the answer to its caller."""

    name: str
    include_tasks: bool
    only_failed: bool
    plan: Success


PrivilegedCall: TypeAlias = (
    CreateConnector
    | PutConnectorConfig
    | MergedPatch
    | DeleteConnector
    | SetTargetState
    | PutTaskConfigs
    | OrderRestart
)


@dataclass(frozen=True, slots=True)
class RecordCount:
    """The last step of a fencing round: write the task count record of the connector, if the
    round's commit is still in force."""

    connector: str
    commit_offset: int


@dataclass(frozen=True, slots=True)
class WriteSessionKey:
    """Write the key that signs calls between workers from now on."""

    key: bytes = field(repr=False)
    algorithm: str
    created_ms: int


OwnWrite: TypeAlias = RecordCount | WriteSessionKey
"""Writes that the leader makes without a call."""


@dataclass(frozen=True, slots=True)
class Write:
    """Append `records`, then answer with `answer`."""

    records: tuple[Record, ...]
    answer: Success
    then: tuple[Record, ...] = ()
    """Records to append once `records` were read back, before the answer."""


@dataclass(frozen=True, slots=True)
class Outdated:
    """The state that the call was prepared on has changed: prepare the call again."""


Decision: TypeAlias = Write | Success | Failure | Outdated

SHOWN_MAX: Final = 80
"""Most characters of a key that are shown in an error."""
STALE_CONFIG = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a "
    "concurrent config change)"
)
ANOTHER_ETAG: Final = (
    "Connector {name} is not as the request expects it: {seen}, expected etag {etag}. Nothing was "
    "changed; read the connector again, and decide anew"
)
OVERTAKEN = "Fencing failed because new task configurations were generated for the connector {}"


def subject_of(call: PrivilegedCall | OwnWrite) -> str:
    """Return the lane of a write: writes about one connector are made one after the other."""
    match call:
        case PutTaskConfigs() | RecordCount():
            return call.connector
        case WriteSessionKey():
            return SESSION_KEY
        case _:
            return call.name


def etag_of(call: PrivilegedCall | OwnWrite) -> int | None:
    """Return the etag that the call requires; None: none."""
    if isinstance(call, PutConnectorConfig | MergedPatch | DeleteConnector | SetTargetState):
        return call.etag
    return None


def etag_refusal(state: ConfigState, name: str, etag: int) -> Failure | None:
    """Return why a change that requires `etag` is refused; None: it is not."""
    entry = state.entry(name)
    if entry is not None and entry.etag == etag:
        return None
    seen = "it does not exist" if entry is None else f"its etag is {entry.etag}"
    text = ANOTHER_ETAG.format(name=name, etag=etag, seen=seen)
    return Failure(ErrorKind.PRECONDITION, text)


def absent(state: ConfigState, name: str, etag: int | None) -> Failure:
    """Return why a change of a connector that has no config is refused."""
    refusal = None if etag is None else etag_refusal(state, name, etag)
    return refusal or not_found(name)


def decide(
    state: ConfigState,
    call: PrivilegedCall | OwnWrite,
    settings: HerderSettings,
    *,
    java: bool = False,
) -> Decision:
    """Decide a call or a write of the leader's own. `java`: Java workers are in the group and read
    it, too."""
    etag = etag_of(call)
    if etag is not None and (refusal := etag_refusal(state, subject_of(call), etag)) is not None:
        return refusal
    return _readable(_decided(state, call, settings, java=java))


def _readable(decision: Decision) -> Decision:
    """Refuse to write a record that no reader of the topic would accept, as one with a name of more
    than 50,000 bytes. Java writes it, and waits for ever to read it back."""
    if not isinstance(decision, Write):
        return decision
    for key, value in (*decision.records, *decision.then):
        if value is None or len(value) <= NAME_LENGTH_MAX:
            continue  # as most are: reading each of 100,000 task configs would take seconds
        event = decode(0, key, value)
        if isinstance(event, RecordRejected):
            text = f"The record {key[:SHOWN_MAX]} could not be read back: {event.reason}"
            return Failure(ErrorKind.BAD_REQUEST, text)
    return decision


def _decided(
    state: ConfigState, call: PrivilegedCall | OwnWrite, settings: HerderSettings, *, java: bool
) -> Decision:
    match call:
        case CreateConnector():
            return _create(state, call, settings)
        case PutConnectorConfig():
            return _put(state, call, settings)
        case MergedPatch():
            return _patch(state, call, settings)
        case DeleteConnector():
            return _delete(state, call)
        case SetTargetState():
            return _set_target_state(state, call)
        case PutTaskConfigs():
            return _put_task_configs(state, call, settings, java=java)
        case OrderRestart():
            return _restart(state, call)
        case RecordCount():
            return _record_count(state, call)
        case WriteSessionKey(key, algorithm, created_ms):
            return Write((encode_session_key(key, algorithm, created_ms),), Success())
        case _:
            assert_never(call)


def task_configs_changed(entry: ConnectorEntry, configs: Sequence[Config]) -> bool:
    """Return whether these task configs must be written. They must if the number of tasks or a task
    config differs, if the connector config is newer than the last complete commit (KAFKA-15575), or
    if nothing complete is there to compare with. Source: `AbstractHerder.taskConfigsChanged`."""
    if entry.inconsistent or entry.task_count != len(configs) or entry.applied != entry.config:
        return True
    return any(entry.tasks.get(n) != config for n, config in enumerate(configs))


def _info(
    state: ConfigState, name: str, config: Config, settings: HerderSettings, *, created: bool
) -> Success:
    """Return the answer to create and put: ConnectorInfo, and whether the connector is new."""
    info = connector_info(state, name, settings, config)
    return Success({**(info or {}), "created": created})


def _create(state: ConfigState, call: CreateConnector, settings: HerderSettings) -> Decision:
    if state.entry(call.name) is not None:
        return Failure(ErrorKind.ALREADY_EXISTS, f"Connector {call.name} already exists")
    records: list[Record] = []
    orphan = state.entries.get(call.name)
    if call.initial_state is not None:
        records.append(encode_target_state(call.name, call.initial_state))
    elif orphan is not None and orphan.target_state not in (None, TargetState.STARTED):
        # A target state that was written for a connector nobody created, or after its deletion,
        # would become the initial state of this one.
        records.append(encode_target_state_tombstone(call.name))
    records.append(encode_connector(call.name, call.config))
    return Write(tuple(records), _info(state, call.name, call.config, settings, created=True))


def _put(state: ConfigState, call: PutConnectorConfig, settings: HerderSettings) -> Decision:
    entry = state.entry(call.name)
    if entry is None:
        return _create(state, CreateConnector(call.name, call.config), settings)
    answer = _info(state, call.name, call.config, settings, created=False)
    if entry.config == call.config:
        return replace(answer, config_offset=state.offset, etag=entry.etag)
    return Write((encode_connector(call.name, call.config),), answer)


def merged(name: str, config: Config, changes: Mapping[str, str | None]) -> Config:
    """Return `config` after `changes`. Source: ConnectUtils.patchConfig."""
    kept = {key: value for key, value in config.items() if key not in changes}
    return {**kept, **{k: v for k, v in changes.items() if v is not None}, "name": name}


def _patch(state: ConfigState, call: MergedPatch, settings: HerderSettings) -> Decision:
    entry = state.entry(call.name)
    if entry is None or entry.config is None:
        return not_found(call.name)
    if merged(call.name, entry.config, call.changes) != call.config:
        return Outdated()
    return _put(state, PutConnectorConfig(call.name, call.config), settings)


def _restart(state: ConfigState, call: OrderRestart) -> Decision:
    if state.entry(call.name) is None:
        return Failure(ErrorKind.NOT_FOUND, f"Unknown connector: {call.name}")
    record = encode_restart(
        call.name, include_tasks=call.include_tasks, only_failed=call.only_failed
    )
    return Write((record,), call.plan)


def _delete(state: ConfigState, call: DeleteConnector) -> Decision:
    if state.entry(call.name) is None:
        return not_found(call.name)
    tombstones = encode_connector_tombstone(call.name), encode_target_state_tombstone(call.name)
    return Write(tombstones, Success())


def _set_target_state(state: ConfigState, call: SetTargetState) -> Decision:
    entry = state.entry(call.name)
    if entry is None:
        return Failure(ErrorKind.NOT_FOUND, f"Unknown connector {call.name}")
    if call.target_state is not TargetState.STOPPED:
        return Write((encode_target_state(call.name, call.target_state),), Success())
    empty = entry.task_count in (None, 0) and not entry.inconsistent
    if empty and state.target_state(call.name) is TargetState.STOPPED:
        return Success(config_offset=state.offset, etag=entry.etag)
    records = [] if empty else [encode_commit(call.name, 0)]
    records.append(encode_target_state(call.name, TargetState.STOPPED))
    return Write(tuple(records), Success())


def _put_task_configs(
    state: ConfigState, call: PutTaskConfigs, settings: HerderSettings, *, java: bool
) -> Decision:
    name = call.connector
    entry = state.entry(name)
    if entry is None or entry.config is None:
        return not_found(name)
    if call.configs and state.target_state(name) is TargetState.STOPPED:
        text = f"Cannot submit non-empty set of task configs for stopped connector {name}"
        return Failure(ErrorKind.BAD_REQUEST, text)
    if call.made_of is not None and call.made_of != config_digest(entry.config):
        return Failure(ErrorKind.CONFLICT, STALE_CONFIG)
    renewed = call.instead_of is not None and call.instead_of == entry.commit_offset
    if not renewed and not task_configs_changed(entry, call.configs):
        return Success()
    tasks = tuple(encode_task(TaskId(name, n), config) for n, config in enumerate(call.configs))
    commit = (encode_commit(name, len(tasks)), *_count_at_once(name, entry, len(tasks), settings))
    if java and tasks:
        return Write(tasks, Success(), then=commit)
    if java:
        return Write(commit, Success())
    again = encode_connector(name, entry.config, entry.configured_at)
    return Write((again, *tasks, *commit), Success())


def _count_at_once(
    name: str, entry: ConnectorEntry, count: int, settings: HerderSettings
) -> tuple[Record, ...]:
    """Return the task count record, if no producer has to be fenced before it; otherwise
    nothing."""
    assert entry.config is not None
    transactional = settings.exactly_once and settings.kind(entry.config) is TaskKind.SOURCE
    if not count or not transactional or not is_fenced_by_starting(entry.fencing_count, count):
        return ()
    return (encode_task_count(name, count),)


def _record_count(state: ConfigState, call: RecordCount) -> Decision:
    entry = state.entry(call.connector)
    if entry is None or entry.commit_offset != call.commit_offset:
        return Failure(ErrorKind.CONFLICT, OVERTAKEN.format(call.connector))
    if not entry.fencing_pending:
        return Success()
    assert entry.task_count is not None  # a commit says it
    return Write((encode_task_count(call.connector, max(entry.task_count, 0)),), Success())
