"""Codec of protocol `headgate`: compact JSON.

Metadata:   {"v":1,"url":u,"offset":n,"connectors":[c],"tasks":[[c,[n]]],"delay":ms,"left":ms|null,
            "capacity":n,"plugins":[p]|null,"topic":t,"generation":n,"grpc":a}
Assignment: {"v":1,"error":n,"leader":id,"url":u,"offset":n,"delay":ms,"topic":t,"grpc":a,
            "assigned":{"connectors":[c],"tasks":[[c,[n]]]},"revoked":{...}}

Tasks are grouped in runs of one connector, so that their order is kept. Fields may be added later:
a reader ignores unknown fields, and a missing field has its default.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, cast

from headgate.assignment.model import MemberAssignment
from headgate.ids import TaskId, task_ids
from headgate.membership.codec_model import Assignment, AssignmentError, Metadata
from headgate.wire import WireError

VERSION: Final = 1
TASK_MAX: Final = 2**31 - 1


class HeadgateCodec:
    def encode_metadata(self, metadata: Metadata, /) -> bytes:
        plugins = metadata.plugins
        return _dump(
            {
                "v": VERSION,
                "url": metadata.url,
                "offset": metadata.config_offset,
                "connectors": list(metadata.connectors),
                "tasks": _runs(metadata.tasks),
                "delay": metadata.last_delay_ms,
                "left": metadata.delay_left_ms,
                "capacity": metadata.capacity,
                "plugins": None if plugins is None else sorted(plugins),
                "topic": metadata.config_topic,
                "generation": metadata.generation,
                **_given(metadata.grpc),
            }
        )

    def decode_metadata(self, data: bytes, /) -> Metadata:
        raw = _Fields(data)
        plugins = raw.get("plugins", None)
        left = raw.get("left", None)
        return Metadata(
            url=raw.text("url"),
            config_offset=raw.number("offset"),
            connectors=raw.names(raw.get("connectors", [])),
            tasks=raw.tasks(raw.get("tasks", [])),
            last_delay_ms=raw.number("delay", 0),
            delay_left_ms=None if left is None else raw.number("left"),
            capacity=raw.number("capacity", 1),
            plugins=None if plugins is None else frozenset(raw.names(plugins)),
            config_topic=raw.text("topic", ""),
            generation=raw.number("generation", -1),
            grpc=raw.text("grpc", ""),
        )

    def encode_assignment(self, assignment: Assignment, /) -> bytes:
        change = assignment.change
        return _dump(
            {
                "v": VERSION,
                "error": int(assignment.error),
                "leader": assignment.leader,
                "url": assignment.leader_url,
                "offset": assignment.config_offset,
                "delay": assignment.delay_ms,
                "topic": assignment.config_topic,
                "assigned": _work(change.assigned_connectors, change.assigned_tasks),
                "revoked": _work(change.revoked_connectors, change.revoked_tasks),
                **_given(assignment.leader_grpc),
            }
        )

    def decode_assignment(self, data: bytes, /) -> Assignment:
        raw = _Fields(data)
        error = raw.number("error")
        if error not in set(AssignmentError):
            raise WireError(f"assignment with error {error}, expected 0 or 1")
        assigned, revoked = raw.get("assigned", {}), raw.get("revoked", {})
        if not isinstance(assigned, dict) or not isinstance(revoked, dict):
            raise WireError(f"assigned and revoked are no objects: {data[:80]!r}")
        added, taken = cast(dict[str, Any], assigned), cast(dict[str, Any], revoked)
        return Assignment(
            error=AssignmentError(error),
            leader=raw.text("leader"),
            leader_url=raw.text("url"),
            config_offset=raw.number("offset"),
            change=MemberAssignment(
                assigned_connectors=raw.names(added.get("connectors", [])),
                assigned_tasks=raw.tasks(added.get("tasks", [])),
                revoked_connectors=raw.names(taken.get("connectors", [])),
                revoked_tasks=raw.tasks(taken.get("tasks", [])),
            ),
            delay_ms=raw.number("delay", 0),
            config_topic=raw.text("topic", ""),
            leader_grpc=raw.text("grpc", ""),
        )


def _given(grpc: str) -> dict[str, object]:
    return {"grpc": grpc} if grpc else {}


def _dump(raw: dict[str, object]) -> bytes:
    return json.dumps(raw, separators=(",", ":"), ensure_ascii=False).encode()


def _work(connectors: Iterable[str], tasks: Iterable[TaskId]) -> dict[str, object]:
    return {"connectors": list(connectors), "tasks": _runs(tasks)}


def _runs(tasks: Iterable[TaskId]) -> list[tuple[str, list[int]]]:
    runs: list[tuple[str, list[int]]] = []
    for task in tasks:
        if not runs or runs[-1][0] != task.connector:
            runs.append((task.connector, []))
        runs[-1][1].append(task.task)
    return runs


class _Fields:
    """A decoded message whose fields are checked as they are taken."""

    def __init__(self, data: bytes) -> None:
        try:
            raw = json.loads(data)
        except ValueError as error:
            raise WireError(f"not JSON: {data[:80]!r}") from error
        if not isinstance(raw, dict):
            raise WireError(f"expected a JSON object: {data[:80]!r}")
        self._raw = cast(dict[str, Any], raw)

    def get(self, name: str, default: object) -> object:
        return self._raw.get(name, default)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._raw.get(name, default)
        if not isinstance(value, str):
            raise WireError(f"{name} is {value!r}, expected a string")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        value = self._raw.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise WireError(f"{name} is {value!r}, expected an integer")
        return value

    def names(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise WireError(f"{value!r}, expected a list of names")
        names = cast(list[object], value)
        if not all(isinstance(name, str) for name in names):
            raise WireError(f"{value!r}, expected a list of names")
        return tuple(cast(list[str], names))

    def tasks(self, value: object) -> tuple[TaskId, ...]:
        if not isinstance(value, list):
            raise WireError(f"{value!r}, expected a list of [connector, [task, ...]]")
        found: list[TaskId] = []
        for run in cast(list[object], value):
            items = cast(list[object], run) if isinstance(run, list) else []
            if len(items) != 2 or not isinstance(items[0], str) or not isinstance(items[1], list):
                raise WireError(f"{run!r}, expected [connector, [task, ...]]")
            numbers = cast(list[object], items[1])
            for number in numbers:
                if type(number) is not int or not 0 <= number <= TASK_MAX:
                    raise WireError(f"{number!r} is no task number, expected 0 to {TASK_MAX}")
            found += task_ids(items[0], cast(list[int], numbers))
        return tuple(found)
