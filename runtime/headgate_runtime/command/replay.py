"""``headgate replay FILE``: the state in which a dumped config topic ends.

Input: one JSON object per line with ``offset``, ``key`` and ``value`` (strings; value null for a
tombstone), in log order. Other fields are ignored, offsets may have gaps, and blank lines are
skipped. Output: one object, described at `describe`.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from headgate.java.json import Parse
from headgate.topics.config_events import ConfigEvent
from headgate.topics.config_records import decode
from headgate.topics.config_reducer import REPLAY_BATCH, fold
from headgate.topics.config_state import ConfigState, ConnectorEntry


class ReplayInputError(Exception):
    """A line of the dump cannot be read as a record. The message names the line and what was
    expected."""


def replay(lines: Iterable[str], parse: Parse | None = None) -> dict[str, Any]:
    """Return `describe` of the state after all records in `lines`.

    Args:
        parse: a faster JSON parser for values, as in `headgate.topics.config_records.decode`.

    Raises:
        ReplayInputError: a line is no record, or offsets do not rise.
    """
    state = ConfigState()
    events = _events(lines, parse)
    while batch := list(islice(events, REPLAY_BATCH)):
        state = fold(state, batch)
    return describe(state)


def describe(state: ConfigState) -> dict[str, Any]:
    """Return `state` as plain data.

    - ``offset``: config offset; -1 for an empty log.
    - ``connectors``: connectors with a config, by name. Each has ``config``, ``target_state``,
      ``task_count`` (of the last commit, null before one), ``tasks`` (number to config of the
      committed set; empty while inconsistent), ``inconsistent``, ``fencing``.
    - ``fencing``: each name with a task count record or pending fencing, deleted connectors
      included. Each has ``pending``, and ``count`` of the last record, null without one.
    - ``session_key``: whether there is one.
    - ``rejected``: the last 100 records that could not be used; ``rejected_count``: their number.
    """
    return {
        "offset": state.offset,
        "connectors": {
            name: _connector(state, name, state.entries[name])
            for name in sorted(state.connector_names())
        },
        "fencing": {
            name: _fencing(entry)
            for name, entry in sorted(state.entries.items())
            if entry.fencing_pending or entry.fencing_count is not None
        },
        "session_key": state.session_key is not None,
        "rejected": [
            {"offset": event.offset, "key": event.key, "reason": event.reason}
            for event in state.rejected
        ],
        "rejected_count": state.rejected_count,
    }


def _connector(state: ConfigState, name: str, entry: ConnectorEntry) -> dict[str, Any]:
    return {
        "config": entry.config,
        "target_state": state.target_state(name).value,
        "task_count": entry.task_count,
        "tasks": {str(task.task): state.task_config(task) for task in state.tasks(name)},
        "inconsistent": entry.inconsistent,
        "fencing": _fencing(entry),
    }


def _fencing(entry: ConnectorEntry) -> dict[str, Any]:
    return {"pending": entry.fencing_pending, "count": entry.fencing_count}


def _events(lines: Iterable[str], parse: Parse | None) -> Iterator[ConfigEvent]:
    last = -1
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        offset, key, value = _record(number, line)
        if offset <= last:
            raise ReplayInputError(
                f"line {number}: offset {offset} after {last}; lines must be in log order, each "
                "record once"
            )
        last = offset
        yield decode(offset, key, value, parse)


def _record(number: int, line: str) -> tuple[int, bytes | None, bytes | None]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ReplayInputError(f"line {number}: not JSON ({error}): {line.strip()[:80]}") from None
    if not isinstance(found, dict):
        raise ReplayInputError(
            f"line {number}: {line.strip()[:80]}, expected an object with offset, key and value"
        )
    fields = cast(dict[str, Any], found)
    offset = fields.get("offset")
    if type(offset) is not int or offset < 0:
        raise ReplayInputError(
            f"line {number}: 'offset' is {offset!r}, expected a number from 0 on"
        )
    return offset, _bytes(number, fields, "key"), _bytes(number, fields, "value")


def _bytes(number: int, fields: dict[str, Any], name: str) -> bytes | None:
    if name not in fields:
        raise ReplayInputError(f"line {number}: no {name!r}; write null for a tombstone's value")
    text = fields[name]
    if text is None:
        return None
    if not isinstance(text, str):
        raise ReplayInputError(f"line {number}: {name!r} is {text!r}, expected a string or null")
    return text.encode("utf-8", "surrogatepass")
