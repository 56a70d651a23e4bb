"""``PlanConnectors``: a plan of changes, which says what they would do. Nothing is written.

Faults are found as in `ValidateConfig`. Moves are computed by the leader, with its own policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from headgate.herder.messages import ErrorKind, Failure, ForeseeMoves, ShowConnectors
from headgate.herder.tasks_given import tasks_max
from headgate.ids import TargetState
from headgate_grpc import messages
from headgate_grpc.asked import Asked
from headgate_grpc.errors import RefusedError, bad_request
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb

Config = Mapping[str, str | None]

PLANNED_MAX: Final = 10_000
WITHOUT_MOVES: Final = (
    "the leader is a Java worker, or of an older Headgate: it cannot tell what would move"
)
OTHER_NAME: Final = "is {given}, and the connector's name is {name}; leave it out, or make it equal"


@dataclass(frozen=True, slots=True)
class _Wanted:
    name: str
    config: dict[str, str | None]
    target_state: TargetState | None


async def plan(request: pb.PlanConnectorsRequest, asked: Asked) -> pb.PlanConnectorsResponse:
    """Return the plan for a request.

    Raises:
        RefusedError: the request itself is wrong. Faults of configs are in the plan.
    """
    wanted = _wanted(request.connectors)
    least = messages.min_config_offset_of(request)
    parts = ("config",)
    found = await asked.value(ShowConnectors(parts=parts, min_config_offset=least))
    rows: dict[str, dict[str, Any]] = {row["name"]: row for row in found["rows"]}
    response = pb.PlanConnectorsResponse(config_offset=found["config_offset"])
    counts: dict[str, int | None] = {}
    for each in wanted:
        row = rows.get(each.name)
        change, secrets = await _change(each, row, asked)
        if change.action != pb.PLANNED_ACTION_NONE and not change.faults:
            counts[each.name] = _task_count(each, row)
        if change.action != pb.PLANNED_ACTION_NONE or change.faults:
            change.differences.extend(_differences(row, each.config, secrets))
            response.changes.append(change)
    if request.HasField("prune"):
        names = {each.name for each in wanted}
        for row in await _pruned(request.prune, asked):
            if row["name"] not in names:
                counts[row["name"]] = None
                response.changes.append(_deletion(row))
    response.changes.sort(key=lambda change: change.name)
    await _add_moves(response, counts, asked)
    return response


def _wanted(given: Iterable[pb.PlannedConnector]) -> list[_Wanted]:
    found: dict[str, _Wanted] = {}
    for each in given:
        name = messages.name_of(each)
        if name in found:
            raise bad_request(f"the connector {name} is planned twice")
        state = messages.TARGET_STATES.get(each.target_state)
        if state is None and each.target_state != 0:
            raise bad_request(f"target_state is {each.target_state}, which is no TargetState")
        found[name] = _Wanted(name, messages.config_of(each.config, each.config_null_keys), state)
    if len(found) > PLANNED_MAX:
        raise bad_request(f"{len(found)} connectors are planned; at most {PLANNED_MAX} at a time")
    return list(found.values())


async def _pruned(wanted: connector_pb2.ConnectorFilter, asked: Asked) -> list[dict[str, Any]]:
    call = ShowConnectors(tuple(wanted.names), wanted.prefix, messages.states_of(wanted.states))
    rows: list[dict[str, Any]] = (await asked.value(call))["rows"]
    return rows


# -- one connector --


async def _change(
    wanted: _Wanted, row: dict[str, Any] | None, asked: Asked
) -> tuple[pb.PlannedChange, set[str]]:
    """Return the change without its differences, and the keys whose values must not be shown."""
    given = wanted.config.get("name")
    change = pb.PlannedChange(name=messages.text(wanted.name), action=pb.PLANNED_ACTION_CREATE)
    if given is not None and given != wanted.name:
        text = OTHER_NAME.format(given=given, name=wanted.name)
        change.faults.add(key="name", message=messages.text(text))
    config = {**wanted.config, "name": wanted.name}
    secrets = await _validate(config, change, asked)
    after = wanted.target_state or TargetState.STARTED
    if row is not None:
        before = TargetState(row["target_state"])
        after = wanted.target_state or before
        change.action = pb.PLANNED_ACTION_NONE
        if row["config"] != config:
            change.action = pb.PLANNED_ACTION_CHANGE_CONFIG
            # The old config may have another class or other converters, and so other passwords.
            secrets |= await _validate(row["config"], None, asked)
        elif after is not before:
            change.action = pb.PLANNED_ACTION_CHANGE_STATE
        change.target_state_before = messages.TARGETS[before.value]
        change.etag = str(row["etag"])
    change.target_state_after = messages.TARGETS[after.value]
    return change, secrets


async def _validate(config: Config, change: pb.PlannedChange | None, asked: Asked) -> set[str]:
    """Validate a config and put its faults and notes into `change`. Return the keys of its
    passwords."""
    faults = pb.PlannedChange() if change is None else change
    named = config.get("connector.class")
    if not named:
        faults.faults.add(
            key="connector.class", message="connector.class is missing in the config, or empty"
        )
        return set()
    given = dict(config)  # a copy, because a connector's own code may change it
    try:
        infos = await asked.on_thread(lambda: asked.backend.plugins.validate(named, given))
        notes = await asked.on_thread(lambda: asked.backend.plugins.notes(dict(config)))
    except ValueError as error:
        text = messages.without_secrets(str(error), config)
        faults.faults.add(key="connector.class", message=messages.text(text))
        return set()
    for key in messages.validated(infos, config).keys:
        faults.faults.extend(
            pb.ConfigFault(key=key.key.name, message=error) for error in key.errors
        )
    faults.notes.extend(
        connector_pb2.ConfigNote(key=key, message=messages.text(each)) for key, each in notes
    )
    return {
        each["value"]["name"]
        for each in infos["configs"]
        if each["definition"] is not None and each["definition"]["type"] == "PASSWORD"
    }


def _differences(
    row: dict[str, Any] | None, wanted: Config, secrets: set[str]
) -> Iterable[pb.KeyDifference]:
    """Yield the keys that differ. The key "name" is left out, since a config always has it, whether
    it was given or not."""
    before: Config = {} if row is None else row["config"]
    for key in sorted({*before, *wanted} - {"name"}):
        if key in before and key in wanted and before[key] == wanted[key]:
            continue
        made = pb.KeyDifference(
            key=messages.text(key),
            hidden=key in secrets or messages.looks_secret(key),
            is_before=key in before,
            is_after=key in wanted,
        )
        if not made.hidden:
            old, new = before.get(key), wanted.get(key)
            if old is not None:
                made.before = messages.text(messages.without_login(old))
            if new is not None:
                made.after = messages.text(messages.without_login(new))
        yield made


def _deletion(row: dict[str, Any]) -> pb.PlannedChange:
    return pb.PlannedChange(
        name=messages.text(row["name"]),
        action=pb.PLANNED_ACTION_DELETE,
        target_state_before=messages.TARGETS[row["target_state"]],
        etag=str(row["etag"]),
    )


# -- moves --


def _task_count(wanted: _Wanted, row: dict[str, Any] | None) -> int:
    """Return how many tasks the connector would have, as far as is known before its class makes
    task configs."""
    before = "STARTED" if row is None else row["target_state"]
    state = before if wanted.target_state is None else wanted.target_state.value
    if state == "STOPPED":
        return 0
    most = tasks_max(wanted.config)
    if row is None or before == "STOPPED":
        return most
    return min(int(row["task_count"]), most)


async def _add_moves(
    response: pb.PlanConnectorsResponse, counts: Mapping[str, int | None], asked: Asked
) -> None:
    if not counts:
        return
    try:
        result = await asked.result(ForeseeMoves(counts))
    except RefusedError as refused:
        response.moves_unknown = refused.message
        return
    if isinstance(result, Failure):
        unknown = result.kind is ErrorKind.NOT_FOUND
        response.moves_unknown = WITHOUT_MOVES if unknown else messages.text(result.message)
        return
    found: Any = result.value
    response.move_count = found["count"]
    for move in found["moves"]:
        made = response.moves.add(
            connector=messages.text(move["connector"]),
            from_worker=messages.text(move["from"]),
            to_worker=messages.text(move["to"]),
        )
        if move["task"] is not None:
            made.task = move["task"]
