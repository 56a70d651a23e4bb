"""Dry runs: what a change of offsets would do to the present ones. The connector's class is not
asked: its `alter_offsets` may change what it likes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from headgate.herder.calls import (
    AlterOffsets,
    ErrorKind,
    Failure,
    OffsetChange,
    ReadDeletedOffsets,
    ReadOffsets,
    ResetDeletedOffsets,
    ResetOffsets,
    Result,
    Success,
)
from headgate.herder.messages import ConnectorOffsetsRead
from headgate.herder.offset_input import sink_changes, source_changes
from headgate.herder.privileged import absent, etag_refusal
from headgate.herder.reads import not_found
from headgate.herder.settings import HerderSettings
from headgate.ids import TargetState
from headgate.task.messages import TaskKind
from headgate.topics.config_events import Config
from headgate.topics.config_state import ConfigState
from headgate.topics.offsets import Partition, partition_identity

ChangeCall: TypeAlias = AlterOffsets | ResetOffsets | ResetDeletedOffsets
OffsetCall: TypeAlias = ReadOffsets | ReadDeletedOffsets | ChangeCall

NOT_STOPPED: Final = (
    "Connectors must be in the STOPPED state before their offsets can be modified. This can be "
    "done for the specified connector by issuing a 'PUT' request to the "
    "'/connectors/{}/stop' endpoint"
)
STILL_THERE: Final = (
    "Connector {name} exists, so these are not the offsets of a deleted one. Use "
    "/connectors/{name}/offsets, or delete the connector first"
)
NOTHING_LEFT: Final = "No offsets of a deleted {kind} connector {name} were found"
NOTHING_WRITTEN: Final = (
    "Nothing was changed: this was a dry run, and the connector's class was not asked"
)


def change_refusal(state: ConfigState, call: ChangeCall) -> Failure | None:
    """Return why the connector's offsets cannot be changed; None: they can. The checks are in the
    order of modifyConnectorOffsetsChecks."""
    if isinstance(call, ResetDeletedOffsets):
        return exists(state, call.name)
    entry = state.entry(call.name)
    if entry is None:
        return absent(state, call.name, call.etag)
    stopped = state.target_state(call.name) is TargetState.STOPPED
    if not stopped or (entry.task_count or 0) > 0:
        return Failure(ErrorKind.BAD_REQUEST, NOT_STOPPED.format(call.name))
    return None if call.etag is None else etag_refusal(state, call.name, call.etag)


def exists(state: ConfigState, name: str) -> Failure | None:
    """Return why the offsets of `name` are not those of a deleted connector; None: they are."""
    if state.entry(name) is None:
        return None
    return Failure(ErrorKind.ALREADY_EXISTS, STILL_THERE.format(name=name))


def given_changes(call: ChangeCall, kind: TaskKind) -> tuple[OffsetChange, ...] | Failure | None:
    """Return the offsets to set, or why they are refused; None for a reset."""
    if isinstance(call, ResetOffsets | ResetDeletedOffsets):
        return None
    return source_changes(call.offsets) if kind is TaskKind.SOURCE else sink_changes(call.offsets)


@dataclass(frozen=True, slots=True)
class Place:
    """The config and kind that tell where a connector's offsets are."""

    config: Config
    kind: TaskKind
    changes: tuple[OffsetChange, ...] = ()
    """Offsets that a dry run would set or remove."""


def place_of_offsets(
    state: ConfigState, call: OffsetCall, settings: HerderSettings, *, log_read: bool
) -> Place | Failure | None:
    """Return where the offsets are that `call` is about, or why it is refused. None: the config
    topic must first be read to its end, to see what other workers have acknowledged."""
    entry = state.entry(call.name)
    if isinstance(call, ReadOffsets):
        if entry is None and not log_read:
            return None
        refusal = (
            None if entry else Failure(ErrorKind.NOT_FOUND, f"Connector {call.name} not found")
        )
    elif not log_read:
        return None
    elif isinstance(call, ReadDeletedOffsets | ResetDeletedOffsets):
        return exists(state, call.name) or Place({}, call.kind)
    else:
        refusal = change_refusal(state, call)
    if refusal is not None or entry is None or entry.config is None:
        return refusal or not_found(call.name)
    kind = settings.kind(entry.config)
    given = given_changes(call, kind) if isinstance(call, AlterOffsets) else None
    return given if isinstance(given, Failure) else Place(entry.config, kind, given or ())


def offsets_answer(
    call: OffsetCall,
    read: ConnectorOffsetsRead,
    state: ConfigState,
    settings: HerderSettings,
) -> Result:
    """Return the answer to `call` once the offsets were read: these, or what a change would do."""
    if read.failure is not None:
        return read.failure
    if isinstance(call, ReadDeletedOffsets | ResetDeletedOffsets) and not read.offsets:
        text = NOTHING_LEFT.format(kind=call.kind.value, name=call.name)
        return Failure(ErrorKind.NOT_FOUND, text)
    if isinstance(call, ReadOffsets | ReadDeletedOffsets):
        lines = [{"partition": part, "offset": offset} for part, offset in read.offsets]
        return Success({"offsets": lines})
    if isinstance(call, ResetDeletedOffsets):
        return preview(call, call.kind, read.offsets)
    entry = state.entry(call.name)
    if entry is None or entry.config is None:
        return not_found(call.name)
    return preview(call, settings.kind(entry.config), read.offsets)


def preview(call: ChangeCall, kind: TaskKind, offsets: Sequence[OffsetChange]) -> Result:
    """Return which offsets `call` would change: ``{"message", "changes": [{"partition", "before",
    "after"}]}``. `offsets`: the present ones."""
    given = given_changes(call, kind)
    if isinstance(given, Failure):
        return given
    before = {_identity(partition): (partition, offset) for partition, offset in offsets}
    after = dict.fromkeys(before) if given is None else {}
    named = {key: partition for key, (partition, _) in before.items()}
    wanted: dict[str, object] = dict(after)
    for partition, offset in given or ():
        wanted[_identity(partition)] = offset
        named.setdefault(_identity(partition), partition)
    changes: list[dict[str, Any]] = []
    for key, offset in wanted.items():
        was = before[key][1] if key in before else None
        if json.dumps(was, sort_keys=True) != json.dumps(offset, sort_keys=True):
            changes.append({"partition": named[key], "before": was, "after": offset})
    return Success({"message": NOTHING_WRITTEN, "changes": changes})


def _identity(partition: object) -> str:
    return partition_identity(cast(Partition | None, partition))
