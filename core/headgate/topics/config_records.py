"""Codec of the config topic: bytes to events and back. Source: `KafkaConfigBackingStore`.

Reading follows Java's rules, so that every worker of a group sees the same state; `decode` lists
where we differ. What is written equals Java's records to the byte: field order, no whitespace,
Jackson's escapes.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Any, Final, TypeAlias, cast

from headgate.ids import TargetState, TaskId
from headgate.java.json import (
    NAME_LENGTH_MAX,
    NotJsonError,
    Parse,
    dumps,
    java_int,
    parse,
    trusted,
)
from headgate.topics.config_events import (
    Config,
    ConfigEvent,
    ConnectorConfigured,
    ConnectorRemoved,
    LoggerLevelChanged,
    RecordRejected,
    RestartRequested,
    SessionKeyChanged,
    TargetStateChanged,
    TargetStateRemoved,
    TaskConfigured,
    TaskCountRecorded,
    TasksCommitted,
)
from headgate.topics.rejected import seen

Record: TypeAlias = tuple[str, bytes | None]
"""Key and value of a record to be appended; None is a tombstone."""

CONNECTOR_PREFIX: Final = "connector-"
TARGET_STATE_PREFIX: Final = "target-state-"
TASK_PREFIX: Final = "task-"
COMMIT_PREFIX: Final = "commit-"
TASK_COUNT_PREFIX: Final = "tasks-fencing-"
RESTART_PREFIX: Final = "restart-connector-"
LOGGER_PREFIX: Final = "logger-cluster-"
SESSION_KEY: Final = "session-key"

TASK_COUNT_MAX: Final = 1_000_000
"""Largest task count that a task count record may have; no cluster has so many tasks. The leader
fences the producers one by one by transactional id, so a wrong count would cost that many
requests."""
_INT_MAX: Final = 2**31 - 1
_HALF_PAIR: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")
_ONLY_TEXT: Final = frozenset({str})
_TEXT: Final = frozenset({str, NoneType})
_CHANGED: Final = b',"changed":'
_DIGITS_MAX: Final = 18
_PLAIN_LEAVES: Final = frozenset({str, int, bool, NoneType})


# -- bytes to events --


def decode(
    offset: int, key: bytes | str | None, value: bytes | None, parse: Parse | None = None
) -> ConfigEvent:
    """Return the event that the record at `offset` stands for.

    A record that cannot be used becomes `RecordRejected`, never an exception, and affects no record
    around it. (In Java a malformed commit record loses the rest of its batch, and a malformed
    session key ends the reader.)

    Args:
        offset: Offset of the record in the config topic.
        key: UTF-8 bytes, or a text as `encode_connector` and the other encoders return it. Bytes
            that are not UTF-8 become U+FFFD, as in Java. None is rejected.
        value: JSON as Java accepts it (`headgate.java.json`). None, empty bytes and ``null`` are
            tombstones.
        parse: A faster parser, such as `orjson.loads`. If it refuses a value, or might read it
            differently from Java, the core parses the value.

    Differs: a config value that is not a string becomes its JSON text; Java keeps it and fails
    where it is used. A session key that is not base64 is rejected; it ends Java's reader. A task
    count record above `TASK_COUNT_MAX` is rejected; Java's leader runs out of memory when it
    fences.
    """
    key_bytes = key.encode("utf-8", "replace") if isinstance(key, str) else key
    [event] = decode_all([(offset, key_bytes, value)], parse)
    return event


def decode_all(
    records: Iterable[tuple[int, bytes | None, bytes | None]], parse: Parse | None = None
) -> list[ConfigEvent]:
    """Return what `decode` gives for each (offset, key, value), in the same order."""
    events: list[ConfigEvent] = []
    for offset, key, value in records:
        event: ConfigEvent | None = None
        if parse is not None and key is not None and value is not None:
            event = _decode_config(offset, key, value, parse)
        events.append(_decode_any(offset, key, value, parse) if event is None else event)
    return events


def _decode_any(
    offset: int, key: bytes | None, value: bytes | None, parse: Parse | None
) -> ConfigEvent:
    content: Any = None
    if value is not None:
        try:
            content = read_value(value, parse)
        except NotJsonError as error:
            # Java converts the value before it looks at the key, and counts only what it converted.
            return RecordRejected(offset, _key_text(key), str(error), advances=False)
    if key is None:
        return RecordRejected(offset, "", "a record without a key")
    text = java_text(key)
    head, dash, rest = text.partition("-")
    decoder = _DECODERS.get(head)
    if decoder is None or not dash:
        return _unknown(offset, text)
    return decoder(offset, text, rest, content)


def _decode_config(
    offset: int, key: bytes, value: bytes, parse: Parse
) -> ConnectorConfigured | TaskConfigured | None:
    """Decode the common case fast: the config of a task or connector, as every worker writes it.
    Return None if the record may be anything else; the caller then uses the general decoder.

    Java and `parse` may disagree about numbers. A number can hide behind a repeated field name, of
    which the last one counts. Therefore all values must be strings, which takes two quotes for each
    name and two for each value: if the text has exactly that many quotes, it holds nothing else.
    """
    is_task = key[:5] == b"task-"
    if (
        not (is_task or key[:10] == b"connector-")
        or value[:14] != b'{"properties":'
        or value[-1:] != b"}"
        or len(value) > NAME_LENGTH_MAX
    ):
        return None
    changed: int | None = None
    if value[-2:-1] != b"}":
        value, _, digits = value.rpartition(_CHANGED)
        if not digits[:-1].isdigit() or digits[:1] == b"0" or len(digits) > _DIGITS_MAX:
            return None
        changed, value = int(digits[:-1]), value + b"}"
        if changed > offset:
            return None
    try:
        config = parse(value[14:-1])
        text = key.decode()
    except ValueError:
        return None
    # Compared by `__class__`, because `isinstance` would need a call of `cast` for the type
    # checkers, and that would cost a tenth of this function.
    if (
        config.__class__ is not dict
        or value.count(b'"') != 4 * len(config) + 2
        or not _ONLY_TEXT.issuperset(map(type, config.values()))
    ):
        return None
    if not is_task:
        return ConnectorConfigured(offset, text[10:], config, changed)
    task = task_of_key(text[5:])
    if task is None or changed is not None:
        return None
    return TaskConfigured(offset, task[0], task[1], config)


def read_value(value: bytes, fast: Parse | None) -> Any:
    """Return `value` parsed as Java parses it; `fast` is used where it is sure to agree with Java.

    Raises:
        NotJsonError: Java refuses the text.
    """
    if fast is None or not trusted(value):
        return parse(value)
    try:
        content = fast(value)
    except ValueError:
        return parse(value)
    return content if _agreed(content) else parse(value)


def _agreed(content: object) -> bool:
    """Return whether Java is sure to read the same: no floats (a fast parser may turn large
    integers into floats), no integer outside 64 bits, no nesting deeper than that of a config."""
    if type(content) is not dict:
        return False
    for item in cast(dict[str, object], content).values():
        kind = type(item)
        if kind is dict:
            if not _TEXT.issuperset(map(type, cast(dict[str, object], item).values())):
                return False
        elif kind is int:
            if not -0x8000000000000000 <= cast(int, item) <= 0x7FFFFFFFFFFFFFFF:
                return False
        elif kind not in _PLAIN_LEAVES:
            return False
    return True


def _key_text(key: bytes | None) -> str:
    return "" if key is None else java_text(key)


def java_text(data: bytes) -> str:
    """Return `data` as Java's `StringDeserializer` reads it: bytes that are not UTF-8 become
    U+FFFD. Half a surrogate pair becomes one U+FFFD, where Python alone would make three."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _HALF_PAIR.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def _unknown(offset: int, key: str) -> RecordRejected:
    return RecordRejected(offset, key, "a key of no known kind")


def _shape(offset: int, key: str, value: object, expected: str) -> RecordRejected:
    return RecordRejected(offset, key, f"the value is {seen(value)}, expected {expected}")


def _field(offset: int, key: str, name: str, value: object, expected: str) -> RecordRejected:
    return RecordRejected(offset, key, f"'{name}' is {seen(value)}, expected {expected}")


def _connector(offset: int, key: str, name: str, value: Any) -> ConfigEvent:
    if value is None:
        return ConnectorRemoved(offset, name)
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    config = cast(dict[str, Any], value).get("properties")
    if type(config) is not dict:
        return _field(offset, key, "properties", config, "an object")
    changed = cast(dict[str, Any], value).get("changed")
    if type(changed) is not int or not 0 < changed <= offset:
        changed = None
    return ConnectorConfigured(offset, name, _config(cast(dict[str, Any], config)), changed)


def _task(offset: int, key: str, rest: str, value: Any) -> ConfigEvent:
    task = task_of_key(rest)
    if task is None:
        return RecordRejected(offset, key, "the key names no task, expected task-<connector>-<n>")
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    config = cast(dict[str, Any], value).get("properties")
    if type(config) is not dict:
        return _field(offset, key, "properties", config, "an object")
    return TaskConfigured(offset, task[0], task[1], _config(cast(dict[str, Any], config)))


def _config(properties: dict[str, Any]) -> Config:
    if _TEXT.issuperset(map(type, properties.values())):
        return properties
    return {
        name: item
        if item is None or type(item) is str
        else json.dumps(item, separators=(",", ":"), ensure_ascii=False)
        for name, item in properties.items()
    }


def _commit(offset: int, key: str, name: str, value: Any) -> ConfigEvent:
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    count = cast(dict[str, Any], value).get("tasks")
    if type(count) is not int:
        return _field(offset, key, "tasks", count, "an integer")
    return TasksCommitted(offset, name, java_int(count))


def _target_state(offset: int, key: str, rest: str, value: Any) -> ConfigEvent:
    if not rest.startswith("state-"):
        return _unknown(offset, key)
    name = rest[6:]
    if value is None:
        return TargetStateRemoved(offset, name)
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    table = cast(dict[str, Any], value)
    # Workers before KIP-875 write and read 'state' alone, and there STOPPED appears as PAUSED.
    state = table.get("state.v2")
    field_name = "state.v2"
    if type(state) is not str:
        state = table.get("state")
        field_name = "state"
        if type(state) is not str:
            return _field(offset, key, "state", state, "a string")
    target = _TARGET_STATES.get(state)
    if target is None:
        return _field(offset, key, field_name, state, "STARTED, PAUSED or STOPPED")
    return TargetStateChanged(offset, name, target)


def _task_count(offset: int, key: str, rest: str, value: Any) -> ConfigEvent:
    if not rest.startswith("fencing-"):
        return _unknown(offset, key)
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    count = cast(dict[str, Any], value).get("task-count")
    if type(count) is not int:
        return _field(offset, key, "task-count", count, "an integer")
    count = java_int(count)
    if count > TASK_COUNT_MAX:
        return _field(offset, key, "task-count", count, f"{TASK_COUNT_MAX} at the most")
    return TaskCountRecorded(offset, rest[8:], count)


def _restart(offset: int, key: str, rest: str, value: Any) -> ConfigEvent:
    if not rest.startswith("connector-"):
        return _unknown(offset, key)
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    table = cast(dict[str, Any], value)
    return RestartRequested(
        offset,
        rest[10:],
        include_tasks=table.get("include-tasks") is True,
        only_failed=table.get("only-failed") is True,
    )


def _session_key(offset: int, key: str, rest: str, value: Any) -> ConfigEvent:
    if rest != "key":
        return _unknown(offset, key)
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    table = cast(dict[str, Any], value)
    encoded, algorithm = table.get("key"), table.get("algorithm")
    created_ms = table.get("creation-timestamp")
    # The value is a secret, so the message does not repeat it.
    if type(encoded) is not str or type(algorithm) is not str or type(created_ms) is not int:
        return RecordRejected(
            offset,
            key,
            "expected 'key' and 'algorithm' as strings, 'creation-timestamp' as integer",
        )
    secret = _base64(encoded)
    if not secret:
        return RecordRejected(offset, key, "'key' is not base64, or empty")
    return SessionKeyChanged(offset, secret, algorithm, created_ms)


def _logger(offset: int, key: str, rest: str, value: Any) -> ConfigEvent:
    if not rest.startswith("cluster-"):
        return _unknown(offset, key)
    if type(value) is not dict:
        return _shape(offset, key, value, "an object")
    level = cast(dict[str, Any], value).get("level")
    if type(level) is not str:
        return _field(offset, key, "level", level, "a string")
    return LoggerLevelChanged(offset, rest[8:], level)


_TARGET_STATES: Final = {state.value: state for state in TargetState}

_Decoder: TypeAlias = Callable[[int, str, str, Any], ConfigEvent]
_DECODERS: Final[Mapping[str, _Decoder]] = {
    # The decoder is chosen by the part of the key before the first dash; it checks the rest itself.
    "target": _target_state,
    "connector": _connector,
    "task": _task,
    "commit": _commit,
    "restart": _restart,
    "tasks": _task_count,
    "session": _session_key,
    "logger": _logger,
}


def task_of_key(rest: str) -> tuple[str, int] | None:
    """Return the connector and the task number in ``<connector>-<n>``, as Java's ``split("-")`` and
    `Integer.parseInt` find them; None if Java finds no task.

    Therefore trailing dashes are ignored, a plus sign and digits of other scripts are accepted, and
    the number must fit into 32 bits with its sign.
    """
    connector, dash, tail = rest.rpartition("-")
    if dash and tail.isascii() and tail.isdecimal() and len(tail) < 10:
        return connector, int(tail)
    parts = rest.rstrip("-").split("-")
    number = parse_java_int(parts[-1])
    if len(parts) < 2 or number is None:
        return None
    return "-".join(parts[:-1]), number


def parse_java_int(text: str) -> int | None:
    """Return what `Integer.parseInt` returns, or None where it throws. It accepts signs, and
    decimal digits of any script in the Basic Multilingual Plane."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or max(digits) > "\uffff":
        return None
    number = -int(digits) if text[0] == "-" else int(digits)
    return number if -_INT_MAX - 1 <= number <= _INT_MAX else None


def _base64(text: str) -> bytes | None:
    """Decode as `java.util.Base64.getDecoder` does: padding may be absent but not wrong. Return
    None for text that is not base64."""
    body = text.rstrip("=")
    padding = len(text) - len(body)
    if len(body) % 4 == 1 or padding not in (0, -len(body) % 4):
        return None
    try:
        return base64.b64decode(body + "=" * (-len(body) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


# -- what we write --


def encode_connector(name: str, config: Config, changed: int | None = None) -> Record:
    """Encode a connector config. `changed` is set on a record that repeats an older one; see
    `ConnectorConfigured.changed`."""
    content: dict[str, Any] = {"properties": config}
    if changed is not None:
        content["changed"] = changed
    return CONNECTOR_PREFIX + name, dumps(content)


def encode_connector_tombstone(name: str) -> Record:
    return CONNECTOR_PREFIX + name, None


def encode_task(task: TaskId, config: Config) -> Record:
    return f"{TASK_PREFIX}{task}", dumps({"properties": config})


def encode_commit(connector: str, task_count: int) -> Record:
    return COMMIT_PREFIX + connector, dumps({"tasks": task_count})


def encode_target_state(connector: str, target_state: TargetState) -> Record:
    """Encode a target state. Workers before KIP-875 read only ``state``, where STOPPED is written
    as PAUSED."""
    old = TargetState.PAUSED if target_state is TargetState.STOPPED else target_state
    return TARGET_STATE_PREFIX + connector, dumps(
        {"state": old.value, "state.v2": target_state.value}
    )


def encode_target_state_tombstone(connector: str) -> Record:
    return TARGET_STATE_PREFIX + connector, None


def encode_task_count(connector: str, task_count: int) -> Record:
    return TASK_COUNT_PREFIX + connector, dumps({"task-count": task_count})


def encode_session_key(key: bytes, algorithm: str, creation_timestamp_ms: int) -> Record:
    return SESSION_KEY, dumps(
        {
            "key": base64.b64encode(key).decode("ascii"),
            "algorithm": algorithm,
            "creation-timestamp": creation_timestamp_ms,
        }
    )


def encode_restart(connector: str, *, include_tasks: bool, only_failed: bool) -> Record:
    return RESTART_PREFIX + connector, dumps(
        {"include-tasks": include_tasks, "only-failed": only_failed}
    )


def encode_logger_level(logger: str, level: str) -> Record:
    return LOGGER_PREFIX + logger, dumps({"level": level})
