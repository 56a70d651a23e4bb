"""What the leader writes: one pure decision per call, made on a state that no one else can change.

Every decision is one append, all or none. Source: Connect's KafkaConfigBackingStore.

Differs: stop is one append (two in Java); task configs are one append that carries the unchanged
connector record again, so that compaction cannot part a commit from what it commits; what would
change nothing is not written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, assert_never

from headgate.events import Config
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
from headgate.herder.settings import HerderSettings
from headgate.ids import TargetState, TaskId
from headgate.records import (
    Record,
    encode_commit,
    encode_connector,
    encode_connector_tombstone,
    encode_target_state,
    encode_target_state_tombstone,
    encode_task,
    encode_task_count,
)
from headgate.state import ConfigState, ConnectorEntry

PrivilegedCall: TypeAlias = (
    CreateConnector | PutConnectorConfig | DeleteConnector | SetTargetState | PutTaskConfigs
)


@dataclass(frozen=True, slots=True)
class RecordCount:
    """The last step of a fencing round: the count of the connector's tasks, if its commit is still
    the one that the round was about."""

    connector: str
    commit_offset: int | None


@dataclass(frozen=True, slots=True)
class Write:
    """Append these, then answer so."""

    records: tuple[Record, ...]
    answer: Success


Decision: TypeAlias = Write | Success | Failure

STALE_CONFIG = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a "
    "concurrent config change)"
)
OVERTAKEN = "Fencing failed because new task configurations were generated for the connector {}"


def connector_of(call: PrivilegedCall | RecordCount) -> str:
    match call:
        case CreateConnector() | PutConnectorConfig() | DeleteConnector() | SetTargetState():
            return call.name
        case PutTaskConfigs() | RecordCount():
            return call.connector
        case _:
            assert_never(call)


def decide(
    state: ConfigState, call: PrivilegedCall | RecordCount, settings: HerderSettings
) -> Decision:
    match call:
        case CreateConnector():
            return _create(state, call, settings)
        case PutConnectorConfig():
            return _put(state, call, settings)
        case DeleteConnector():
            return _delete(state, call)
        case SetTargetState():
            return _stop(state, call)
        case PutTaskConfigs():
            return _put_task_configs(state, call)
        case RecordCount():
            return _record_count(state, call)
        case _:
            assert_never(call)


def task_configs_changed(entry: ConnectorEntry, configs: Sequence[Config]) -> bool:
    """Whether these are to be written: another count, another task config, or a connector config
    that is newer than the last complete commit (KAFKA-15575), or nothing complete to compare with.
    Source: `AbstractHerder.taskConfigsChanged`."""
    if entry.inconsistent or entry.task_count != len(configs) or entry.applied != entry.config:
        return True
    return any(entry.tasks.get(n) != config for n, config in enumerate(configs))


def connector_info(
    state: ConfigState, name: str, config: Config, settings: HerderSettings, *, created: bool
) -> dict[str, Any]:
    """Body of the answer to create and put: tasks are those before the change. Source:
    ConnectorInfo."""
    tasks = [{"connector": task.connector, "task": task.task} for task in state.tasks(name)]
    return {
        "name": name,
        "config": dict(config),
        "tasks": tasks,
        "type": settings.kind(config).value,
        "created": created,
    }


def _create(state: ConfigState, call: CreateConnector, settings: HerderSettings) -> Decision:
    if state.entry(call.name) is not None:
        return Failure(ErrorKind.ALREADY_EXISTS, f"Connector {call.name} already exists")
    records: list[Record] = []
    orphan = state.entries.get(call.name)
    if call.initial_state is not None:
        records.append(encode_target_state(call.name, call.initial_state))
    elif orphan is not None and orphan.target_state not in (None, TargetState.STARTED):
        # A target state that was written for a connector nobody made, or after its deletion, would
        # decide how this one is born.
        records.append(encode_target_state_tombstone(call.name))
    records.append(encode_connector(call.name, call.config))
    info = connector_info(state, call.name, call.config, settings, created=True)
    return Write(tuple(records), Success(info))


def _put(state: ConfigState, call: PutConnectorConfig, settings: HerderSettings) -> Decision:
    entry = state.entry(call.name)
    if entry is None:
        return _create(state, CreateConnector(call.name, call.config), settings)
    answer = Success(connector_info(state, call.name, call.config, settings, created=False))
    if entry.config == call.config:
        return answer
    return Write((encode_connector(call.name, call.config),), answer)


def _delete(state: ConfigState, call: DeleteConnector) -> Decision:
    if state.entry(call.name) is None:
        return Failure(ErrorKind.NOT_FOUND, f"Connector {call.name} not found")
    tombstones = encode_connector_tombstone(call.name), encode_target_state_tombstone(call.name)
    return Write(tombstones, Success())


def _stop(state: ConfigState, call: SetTargetState) -> Decision:
    entry = state.entry(call.name)
    if entry is None:
        return Failure(ErrorKind.NOT_FOUND, f"Unknown connector {call.name}")
    empty = entry.task_count in (None, 0) and not entry.inconsistent
    if empty and state.target_state(call.name) is TargetState.STOPPED:
        return Success()
    records = [] if empty else [encode_commit(call.name, 0)]
    records.append(encode_target_state(call.name, TargetState.STOPPED))
    return Write(tuple(records), Success())


def _put_task_configs(state: ConfigState, call: PutTaskConfigs) -> Decision:
    name = call.connector
    entry = state.entry(name)
    if entry is None or entry.config is None:
        return Failure(ErrorKind.NOT_FOUND, f"Connector {name} not found")
    if call.configs and state.target_state(name) is TargetState.STOPPED:
        text = f"Cannot submit non-empty set of task configs for stopped connector {name}"
        return Failure(ErrorKind.BAD_REQUEST, text)
    if call.made_of is not None and call.made_of != entry.config:
        return Failure(ErrorKind.CONFLICT, STALE_CONFIG)
    if not task_configs_changed(entry, call.configs):
        return Success()
    records = [encode_connector(name, entry.config)]
    records += [encode_task(TaskId(name, n), config) for n, config in enumerate(call.configs)]
    records.append(encode_commit(name, len(call.configs)))
    return Write(tuple(records), Success())


def _record_count(state: ConfigState, call: RecordCount) -> Decision:
    entry = state.entry(call.connector)
    if entry is None or entry.task_count is None or entry.commit_offset != call.commit_offset:
        return Failure(ErrorKind.CONFLICT, OVERTAKEN.format(call.connector))
    if not entry.fencing_pending:
        return Success()
    return Write((encode_task_count(call.connector, max(entry.task_count, 0)),), Success())
