"""Translation of the herder's plain data into protobuf messages, and of requests into the herder's
terms.

Texts from the log may contain lone surrogates, which protobuf cannot carry. Each becomes "?", as in
the REST API. A protobuf map cannot have null as a value, so keys with null travel in a list beside
the map.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headgate.connector.config import HIDDEN
from headgate.connector.secret_keys import looks_secret as looks_secret
from headgate.connector.secret_keys import without_login as without_login
from headgate.connector.secret_keys import without_secrets as without_secrets
from headgate.herder.messages import Success
from headgate.herder.offset_input import DEPTH_MAX, is_nested_too_deep
from headgate.ids import TargetState
from headgate_grpc.errors import bad_request
from headgate_grpc.v1 import cluster_service_pb2 as cluster_pb2
from headgate_grpc.v1 import connector_pb2
from headgate_grpc.v1 import connector_service_pb2 as pb

ETAG_LENGTH_MAX: Final = 18
INT32_MAX: Final = 2**31 - 1
KEY_BYTES_MAX: Final = 50_000
"""Longest name of a JSON field that Java's reader accepts. A record with a longer one is lost."""
SET_ASIDE_MAX: Final = 20
"""Most inputs of a task that are listed as set aside."""
JAVA_SPACES: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's `trim` removes from the name of a new connector."""
STATES: Final[Mapping[str, connector_pb2.State.ValueType]] = {
    name.removeprefix("STATE_"): number for name, number in connector_pb2.State.items() if number
}
STATE_NAMES: Final = {number: name for name, number in STATES.items()}
TYPES: Final[Mapping[str, connector_pb2.ConnectorType.ValueType]] = {
    "source": connector_pb2.CONNECTOR_TYPE_SOURCE,
    "sink": connector_pb2.CONNECTOR_TYPE_SINK,
}
TARGETS: Final[Mapping[str, connector_pb2.TargetState.ValueType]] = {
    state.value: connector_pb2.TargetState.Value(f"TARGET_STATE_{state.value}")
    for state in TargetState
}
TARGET_STATES: Final = {number: TargetState(name) for name, number in TARGETS.items()}


def text(value: object) -> str:
    """Return `value` as text that UTF-8 can carry. None becomes the empty text."""
    if value is None:
        return ""
    found = value if isinstance(value, str) else str(value)
    if found.isascii():
        return found
    return found.encode("utf-8", "replace").decode()


# -- connectors --


def connector(row: Mapping[str, Any]) -> connector_pb2.Connector:
    """Return the message of a row (`headgate.herder.rows`)."""
    made = connector_pb2.Connector()
    fill_connector(made, row)
    return made


def fill_connector(made: connector_pb2.Connector, row: Mapping[str, Any]) -> None:
    """As `connector`, but fill a given message, so that it need not be copied."""
    fill_names(made, row)
    made.type = TYPES.get(row["type"], connector_pb2.CONNECTOR_TYPE_UNSPECIFIED)
    made.target_state = TARGETS[row["target_state"]]
    made.task_count = row["task_count"]
    made.settled = row["settled"]
    if config := row.get("config"):
        _fill(made.config, made.config_null_keys, config)
    if topics := row.get("topics"):
        made.topics.extend(map(text, topics))
    configs: Sequence[Mapping[str, str | None]] = row.get("task_configs") or ()
    statuses = _fill_status(made, row["status"])
    numbers: Sequence[int] = range(row["task_count"])
    if len(statuses) != len(numbers) or not all(number in statuses for number in numbers):
        numbers = sorted({*numbers, *statuses})
    for number in numbers:
        task = made.tasks.add()
        task.number = number
        if number in statuses:
            _fill_one(task.status, statuses[number])
        if number < len(configs):
            _fill(task.config, task.config_null_keys, configs[number])


def fill_names(made: connector_pb2.Connector, row: Mapping[str, Any]) -> None:
    """Fill the name and the etag, the only fields in which similar rows differ."""
    made.name = text(row["name"])
    made.etag = str(row["etag"])


def connector_of_info(info: Mapping[str, Any]) -> connector_pb2.Connector:
    """Return the message of a ConnectorInfo, Connect's answer to a create or a change."""
    made = connector_pb2.Connector(
        name=text(info["name"]),
        type=TYPES.get(info.get("type") or "", connector_pb2.CONNECTOR_TYPE_UNSPECIFIED),
        task_count=len(info.get("tasks") or ()),
    )
    _fill(made.config, made.config_null_keys, info.get("config") or {})
    return made


def changed_connector(done: Success) -> connector_pb2.Connector:
    """Return the connector in the herder's answer to a create or a change, with its etag."""
    info: Any = done.value
    made = connector_of_info(info)
    made.etag = text(done.etag)
    return made


def plan(body: Mapping[str, Any]) -> connector_pb2.Connector:
    """Return the message of a restart plan, which has the form of a status."""
    kind = TYPES.get(body["type"], connector_pb2.CONNECTOR_TYPE_UNSPECIFIED)
    made = connector_pb2.Connector(name=text(body["name"]), type=kind)
    for number, raw in sorted(_fill_status(made, body).items()):
        _fill_one(made.tasks.add(number=number).status, raw)
    return made


def without_config(whole: connector_pb2.Connector) -> connector_pb2.Connector:
    """Return a copy without config, for CONNECTOR_VIEW_STATUS."""
    made = connector_pb2.Connector()
    made.CopyFrom(whole)
    made.ClearField("config")
    made.ClearField("config_null_keys")
    return made


def _fill_status(
    made: connector_pb2.Connector, body: Mapping[str, Any] | None
) -> dict[int, Mapping[str, Any]]:
    """Fill the connector's own status. Return the statuses of its tasks by number."""
    if body is None:
        return {}
    _fill_one(made.status, body["connector"])
    return {task["id"]: task for task in body["tasks"] if 0 <= task["id"] <= INT32_MAX}


def _fill_one(status: connector_pb2.Status, raw: Mapping[str, Any]) -> None:
    """Fill a status. Empty texts are left out, since each field that is set costs time."""
    status.state = STATES.get(raw["state"], connector_pb2.STATE_UNSPECIFIED)
    status.worker_id = text(raw["worker_id"])
    if trace := raw.get("trace"):
        status.trace = text(trace)
    if version := raw.get("version"):
        status.version = text(version)


def _fill(target: Any, nulls: Any, config: Mapping[str, str | None]) -> None:
    for key, value in config.items():
        if value is None:
            nulls.append(text(key))
        else:
            target[text(key)] = text(value)


# -- offsets --


def offsets(body: Mapping[str, Any]) -> Iterable[connector_pb2.ConnectorOffset]:
    """Yield the offsets in Connect's body, ``{"offsets": [{"partition", "offset"}]}``."""
    for item in body["offsets"]:
        yield connector_pb2.ConnectorOffset(
            partition_json=json.dumps(item["partition"]), offset_json=json.dumps(item["offset"])
        )


def offset_differences(body: Mapping[str, Any]) -> Iterable[pb.OffsetDifference]:
    """Yield the differences that a dry run has found. Without a dry run there are none."""
    for item in body.get("changes", ()):
        before, after = item["before"], item["after"]
        yield pb.OffsetDifference(
            partition_json=json.dumps(item["partition"]),
            before_json="" if before is None else json.dumps(before),
            after_json="" if after is None else json.dumps(after),
        )


def offset_changes(
    items: Iterable[connector_pb2.ConnectorOffset],
) -> tuple[tuple[object, object], ...]:
    """Return partition and offset of each change, as plain data.

    Raises:
        RefusedError: there are no changes, or one is not a JSON object. The message names it.
    """
    found = []
    for at, item in enumerate(items):
        partition = _json(item.partition_json, f"offsets[{at}].partition_json")
        offset = None
        if item.offset_json:
            offset = _json(item.offset_json, f"offsets[{at}].offset_json")
        found.append((partition, offset))
    if not found:
        raise bad_request("offsets is empty; name the partitions to change")
    return tuple(found)


def _json(given: str, where: str) -> object:
    try:
        value = json.loads(given, parse_constant=_constant, parse_float=_float)
        # Lone surrogates, which \\u can spell, cannot be stored.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "nested too deeply"
        raise bad_request(f"{where} is not JSON: {reason}; expected an object") from None
    if value is not None and not isinstance(value, dict):
        raise bad_request(f"{where} is {given[:80]}; expected a JSON object")
    if is_nested_too_deep(value):
        raise bad_request(f"{where} is nested more than {DEPTH_MAX} levels deep")
    return value


def _constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{digits} is too large a number")
    return value


# -- requests --


def name_of(request: Any) -> str:
    """Return the connector's name in a request.

    Raises:
        RefusedError: the request has no name.
    """
    name: str = request.name
    if not name:
        raise bad_request("name is empty; give the name of a connector")
    return name


def etag_of(request: Any) -> int | None:
    """Return the etag in a request. None: it has none.

    Raises:
        RefusedError: the etag does not have the form of an etag.
    """
    given: str = request.etag
    if not given:
        return None
    if not (given.isascii() and given.isdecimal() and len(given) <= ETAG_LENGTH_MAX):
        raise bad_request(f"etag is {given[:80]!r}; expected the etag of a connector that was read")
    return int(given)


def min_config_offset_of(request: Any) -> int:
    """Return the least config offset in a request.

    Raises:
        RefusedError: it is below 0.
    """
    given: int = request.min_config_offset
    if given < 0:
        raise bad_request(f"min_config_offset is {given}; expected a config_offset of an answer")
    return given


def config_of(
    values: Mapping[str, str], null_keys: Iterable[str], field: str = "config"
) -> dict[str, str | None]:
    """Return the config in a map and its list of keys with null.

    Raises:
        RefusedError: a key has a value and is listed as null, or is too long to be read from the
            config topic.
    """
    config: dict[str, str | None] = dict(values)
    for key in null_keys:
        if config.get(key) is not None:
            raise bad_request(f"the key {key} has a value in {field} and is listed as null, too")
        config[key] = None
    for key in config:
        if len(key.encode()) > KEY_BYTES_MAX:
            raise bad_request(
                f"a key in {field} that begins with {key[:40]} has {len(key.encode())} bytes; "
                f"readers of the config topic take at most {KEY_BYTES_MAX}"
            )
    return config


def check_class(config: Mapping[str, str | None]) -> None:
    """Check that a config names a class. Connect's own message for a missing class has the whole
    config, passwords included.

    Raises:
        RefusedError: the config names no class.
    """
    if not config.get("connector.class"):
        raise bad_request("connector.class is missing in the config, or empty")


def states_of(numbers: Iterable[int]) -> tuple[str, ...]:
    """Return the names of states.

    Raises:
        RefusedError: a number is no state.
    """
    found = []
    for number in numbers:
        if number not in STATE_NAMES:
            raise bad_request(f"{number} is no State; known are {', '.join(STATES)}")
        found.append(STATE_NAMES[connector_pb2.State.ValueType(number)])
    return tuple(found)


# -- the cluster --


_BATCH: Final = ("number", "records", "files", "took_ms", "next_ms")


def cluster(raw: Mapping[str, Any]) -> cluster_pb2.Cluster:
    made = cluster_pb2.Cluster(
        version=text(raw["version"]),
        commit=text(raw["commit"]),
        kafka_cluster_id=text(raw["kafka_cluster_id"]),
        group_id=text(raw["group_id"]),
    )
    made.others_unknown = text(raw.get("others_unknown", ""))
    for each in raw["workers"]:
        made.workers.append(_worker(each))
    return made


def _worker(raw: Mapping[str, Any]) -> cluster_pb2.Worker:
    view: Mapping[str, Any] | None = raw["view"]
    made = cluster_pb2.Worker(worker_id=text(raw["worker_id"]), url=text(raw["url"]))
    made.member = raw.get("member", False)
    if view is None:
        made.unknown = text(raw.get("unknown", ""))
        made.leader = raw.get("leader", False)
        made.generation = raw.get("generation", -1)
        made.connector_count, made.task_count = raw.get("counts", (0, 0))
        return made
    made.answers = True
    made.leader = bool(view["leader"]) and view["leader"] == view["member_id"]
    made.generation = view["generation"]
    made.config_offset = view["config_offset"]
    made.settled = view["settled"]
    made.pending.extend(map(text, view["pending"]))
    made.connectors.extend(sorted(map(text, view["connectors"])))
    made.tasks.extend(sorted(_task_name(task) for task in view["tasks"]))
    made.connector_count, made.task_count = len(made.connectors), len(made.tasks)
    made.set_aside.extend(
        sorted(map(_set_aside, filter(_quarantined, view["tasks"])), key=lambda each: each.task)
    )
    for task in view["tasks"]:
        if (batch := task.get("batch")) is not None:
            numbers = {name: batch[name] for name in _BATCH}
            made.batches.add(task=_task_name(task), **numbers)
    for call in long_calls(view):
        name = "" if call.task is None else f"{call.connector}-{call.task}"
        made.long_calls.add(
            task=name, connector=call.connector, method=call.method, took_ms=call.took_ms
        )
    return made


class HangingCall(NamedTuple):
    """A call of a connector's method that has not returned for long. Without a task it is a call of
    the connector instance."""

    connector: str
    task: int | None
    method: str
    took_ms: int


def long_calls(view: Mapping[str, Any]) -> Iterator[HangingCall]:
    """Yield the calls that one worker waits for, from its `WorkerView` as plain data."""
    for task in view["tasks"]:
        if (since := task.get("call_since_ms")) is not None:
            connector_name, number = _task_of(task)
            took_ms = max(view["now_ms"] - since, 0)
            yield HangingCall(text(connector_name), number, text(task["call"]), took_ms)
    for call in view.get("connector_calls", ()):
        yield HangingCall(text(call["connector"]), None, text(call["method"]), call["took_ms"])


def _quarantined(task: Mapping[str, Any]) -> Sequence[str]:
    """Return the inputs that a task has set aside. Workers of an older version do not list them."""
    found: Sequence[str] = task.get("quarantined", ())
    return found


def _set_aside(task: Mapping[str, Any]) -> cluster_pb2.SetAside:
    inputs = _quarantined(task)
    return cluster_pb2.SetAside(
        task=_task_name(task),
        inputs=map(text, inputs[:SET_ASIDE_MAX]),
        more=max(0, len(inputs) - SET_ASIDE_MAX),
    )


def _task_name(view: Mapping[str, Any]) -> str:
    connector_name, number = _task_of(view)
    return text(f"{connector_name}-{number}")


def _task_of(view: Mapping[str, Any]) -> tuple[str, int]:
    task = view["task"]
    if isinstance(task, Mapping):
        return task["connector"], task["task"]
    connector_name, number = task
    return connector_name, number


def config_key(raw: Mapping[str, Any]) -> cluster_pb2.ConfigKey:
    made = cluster_pb2.ConfigKey(
        name=text(raw["name"]),
        type=text(raw["type"]),
        required=raw["required"],
        importance=text(raw["importance"]),
        documentation=text(raw["documentation"]),
        group=text(raw["group"]),
        display_name=text(raw["display_name"]),
        dependents=[text(each) for each in raw["dependents"]],
    )
    if raw["default_value"] is not None:
        made.default_value = text(raw["default_value"])
    return made


def validated(
    infos: Mapping[str, Any], config: Mapping[str, str | None]
) -> cluster_pb2.ValidateConfigResponse:
    """Return the message of Connect's ConfigInfos on `config`.

    Values of passwords, and of unknown keys that look like secrets, are left out, also from errors.
    An unknown key has only its name.
    """
    made = cluster_pb2.ValidateConfigResponse(error_count=infos["error_count"])
    for each in infos["configs"]:
        definition, name = each["definition"], each["value"]["name"]
        given = each["value"]["value"]
        secret = looks_secret(name) if definition is None else definition["type"] == "PASSWORD"
        key = made.keys.add(
            key=cluster_pb2.ConfigKey(name=text(name))
            if definition is None
            else config_key(definition)
        )
        if given is not None and not secret:
            key.value = text(without_login(given))
        for error in each["value"]["errors"]:
            shown = without_secrets(text(error), config)
            key.errors.append(shown.replace(text(given), HIDDEN) if secret and given else shown)
    return made


def logger(name: str, raw: Mapping[str, Any]) -> cluster_pb2.Logger:
    made = cluster_pb2.Logger(name=text(name), level=text(raw["level"]))
    if raw["last_modified"] is not None:
        made.last_modified_ms = raw["last_modified"]
    return made
