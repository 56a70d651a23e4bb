"""Translation of a `Call` into a REST request to another worker, Java or Headgate, and of its
answer into a `Result`. Pure. `headgate_rest.translate` does the reverse.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never, cast
from urllib.parse import quote

from headgate.herder import messages as m
from headgate.ids import TargetState
from headgate.task.messages import TaskKind
from headgate_rest.http import HttpResponse, json_bytes
from headgate_rest.signature import INVALID, MISSING
from headgate_rest.translate import (
    CONFIG_OFFSET_HEADER,
    ETAG_HEADER,
    IF_MATCH_PATH,
    INSTEAD_OF_HEADER,
    KIND_HEADER,
    MADE_OF_HEADER,
    MOMENTARY,
    STATUSES,
)

WITHOUT_ETAGS: Final = (
    "The worker that would make the change knows no etags: it is a Java worker, or of an older "
    "Headgate. Nothing was changed; ask without an etag, or when such workers have left the group"
)
WITHOUT_LEFT: Final = (
    "The worker that would do it knows no offsets of deleted connectors: it is Java, or of "
    "an older Headgate. Nothing was changed; ask when such workers have left the group"
)
NOTHING: Final = object()
"""Stands for an answer without a JSON body. None would be the body null."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request to another worker. `path` is appended to its URL."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    internal: bool = False
    """Whether the request is signed, if the group signs."""


def question(call: m.Call, hops: int) -> Question:
    """Return the request that makes `call`.

    Args:
        hops: how often the call was forwarded, this time included: 1 or 2.

    Raises:
        ValueError: the call is a dry run, which Connect would execute.
    """
    if getattr(call, "dry_run", False):
        raise ValueError(f"{call} would be carried out: Connect has no dry runs")
    asked = _question(call, hops)
    etag = etag_of(call)
    return asked if etag is None else replace(asked, path=f"{IF_MATCH_PATH}{etag}{asked.path}")


def etag_of(call: m.Call) -> int | None:
    """Return the etag that a change requires. None: it requires none."""
    etag: int | None = getattr(call, "etag", None)
    return etag


def _question(call: m.Call, hops: int) -> Question:
    match call:
        case (
            m.DescribeWorker()
            | m.ListConnectors()
            | m.DescribeConnector()
            | m.DescribeTasks()
            | m.DescribeStatus()
            | m.DescribeTaskStatus()
            | m.DescribeTopics()
            | m.ReadOffsets()
            | m.ReadDeletedOffsets()
        ):
            return Question("GET", _path_of_read(call))
        case m.PutTaskConfigs(name, configs, made_of, instead_of):
            headers = {} if made_of is None else {MADE_OF_HEADER: made_of}
            if instead_of is not None:
                headers[INSTEAD_OF_HEADER] = str(instead_of)
            body = json_bytes([dict(config) for config in configs])
            # ``forward=false`` keeps a Java worker that is not the leader from forwarding it
            # unsigned.
            path = _connector(name, "/tasks?forward=false")
            return Question("POST", path, body, headers, internal=True)
        case m.FenceConnector(name):
            return Question("PUT", _connector(name, "/fence?forward=false"), internal=True)
        case m.ForeseeMoves(task_counts):
            forward = "true" if hops <= 1 else "false"
            body = json_bytes({"task_counts": dict(task_counts)})
            return Question("POST", f"/headgate/moves?forward={forward}", body)
        case m.DescribeGroup():
            return Question("GET", f"/headgate/group?forward={'true' if hops <= 1 else 'false'}")
        case m.SetLoggerLevel(logger, level):
            path = f"/admin/loggers/{quote(logger, safe='')}?scope=cluster"
            return Question("PUT", path, json_bytes({"level": level}))
        case m.ResetTopics(name):
            return Question("PUT", _connector(name, "/topics/reset"))
        case m.SetTargetState(name, TargetState.PAUSED):
            return Question("PUT", _connector(name, f"/pause{_forward(call, hops)}"))
        case m.SetTargetState(name, TargetState.STARTED):
            return Question("PUT", _connector(name, f"/resume{_forward(call, hops)}"))
        case _:
            return _forwarded(call, hops)


def _forward(call: m.SetTargetState, hops: int) -> str:
    """Return the query of pause and resume, which are only forwarded with an etag."""
    return "" if call.etag is None else f"?forward={'true' if hops <= 1 else 'false'}"


def _forwarded(call: Any, hops: int) -> Question:
    """Return the request of a call that Connect's workers forward to each other."""
    forward = f"?forward={'true' if hops <= 1 else 'false'}"
    match call:
        case m.CreateConnector(name, config, state):
            body: dict[str, Any] = {"name": name, "config": dict(config)}
            if state is not None:
                body["initial_state"] = "RUNNING" if state is TargetState.STARTED else state.value
            return Question("POST", f"/connectors{forward}", json_bytes(body))
        case m.PutConnectorConfig(name, config):
            return Question("PUT", _connector(name, f"/config{forward}"), json_bytes(dict(config)))
        case m.PatchConnectorConfig(name, changes):
            path = _connector(name, f"/config{forward}")
            return Question("PATCH", path, json_bytes(dict(changes)))
        case m.DeleteConnector(name):
            return Question("DELETE", _connector(name, forward))
        case m.SetTargetState(name):
            return Question("PUT", _connector(name, f"/stop{forward}"))
        case m.RestartConnector(name, include_tasks, only_failed):
            flags = f"&includeTasks={_java(include_tasks)}&onlyFailed={_java(only_failed)}"
            path = _connector(name, f"/restart{forward}{flags if call.by_record else ''}")
            return Question("POST", path)
        case m.RestartTask(task):
            return Question(
                "POST", _connector(task.connector, f"/tasks/{task.task}/restart{forward}")
            )
        case m.AlterOffsets(name, offsets):
            items = [{"partition": partition, "offset": offset} for partition, offset in offsets]
            path = _connector(name, f"/offsets{forward}")
            return Question("PATCH", path, json_bytes({"offsets": items}))
        case m.ResetOffsets(name):
            return Question("DELETE", _connector(name, f"/offsets{forward}"))
        case m.ResetDeletedOffsets(name, kind):
            return Question("DELETE", f"{_left(name, kind)}{forward}")
        case _:
            assert_never(call)


def _path_of_read(
    call: m.DescribeWorker
    | m.ListConnectors
    | m.DescribeConnector
    | m.DescribeTasks
    | m.DescribeStatus
    | m.DescribeTaskStatus
    | m.DescribeTopics
    | m.ReadOffsets
    | m.ReadDeletedOffsets,
) -> str:
    match call:
        case m.DescribeWorker():
            return "/headgate/worker"
        case m.ListConnectors(expand):
            query = "&".join(f"expand={quote(each, safe='')}" for each in expand)
            return f"/connectors{'?' if query else ''}{query}"
        case m.DescribeConnector(name):
            return _connector(name)
        case m.DescribeTasks(name):
            return _connector(name, "/tasks")
        case m.DescribeStatus(name):
            return _connector(name, "/status")
        case m.DescribeTaskStatus(task):
            return _connector(task.connector, f"/tasks/{task.task}/status")
        case m.DescribeTopics(name):
            return _connector(name, "/topics")
        case m.ReadOffsets(name):
            return _connector(name, "/offsets")
        case m.ReadDeletedOffsets(name, kind):
            return _left(name, kind)
        case _:
            assert_never(call)


def _connector(name: str, rest: str = "") -> str:
    return f"/connectors/{quote(name, safe='')}{rest}"


def _left(name: str, kind: TaskKind) -> str:
    return f"/offsets/{kind.value}/{quote(name, safe='')}"


def _java(flag: bool) -> str:
    return "true" if flag else "false"


# -- answers --


def result_of(call: m.Call, answer: HttpResponse) -> m.Result:
    """Return the result in another worker's answer to `call`.

    Args:
        answer: the answer, with the names of its headers in lower case.
    """
    body = _json(answer.body)
    if not 200 <= answer.status < 300:
        return _failure(call, answer, body)
    told = {
        "config_offset": _number(answer, CONFIG_OFFSET_HEADER),
        "etag": _number(answer, ETAG_HEADER),
    }
    if body is NOTHING:
        if answer.body.strip():
            text = f"answered {answer.status} with what is not JSON: {answer.body[:80]!r}"
            return m.Failure(m.ErrorKind.INTERNAL, text)
        return m.Success(None, **told)
    if isinstance(call, m.CreateConnector | m.PutConnectorConfig | m.PatchConnectorConfig):
        if not isinstance(body, dict):
            return m.Failure(
                m.ErrorKind.INTERNAL, f"answered {answer.body[:80]!r}, no ConnectorInfo"
            )
        info = {**cast(dict[str, Any], body), "created": answer.status == 201}
        return m.Success(info, **told)
    return m.Success(body, **told)


def _number(answer: HttpResponse, header: str) -> int | None:
    """Return the number in a header. None: it is missing, as from Java workers."""
    given = answer.headers.get(header.lower(), "").strip('"')
    return int(given) if given.isascii() and given.isdecimal() else None


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return NOTHING


def _failure(call: m.Call, answer: HttpResponse, body: Any) -> m.Failure:
    if (
        answer.status == 404
        and etag_of(call) is not None
        and KIND_HEADER.lower() not in (answer.headers)
    ):
        return m.Failure(m.ErrorKind.BAD_REQUEST, WITHOUT_ETAGS)
    if (
        answer.status == 404
        and isinstance(call, m.ReadDeletedOffsets | m.ResetDeletedOffsets)
        and KIND_HEADER.lower() not in answer.headers
    ):
        return m.Failure(m.ErrorKind.BAD_REQUEST, WITHOUT_LEFT)
    table = cast(dict[str, Any], body) if isinstance(body, dict) else {}
    message = table.get("message")
    if not isinstance(message, str):
        if answer.status == 404:
            # Until Connect has started, Jetty answers 404 to all paths.
            return m.Failure(m.ErrorKind.NOT_READY, "the worker has not completed its startup")
        message = f"answered {answer.status}: {answer.body[:80]!r}"
    return m.Failure(_kind(answer, message), message)


def _kind(answer: HttpResponse, message: str) -> m.ErrorKind:
    """Return the kind of a failure. It is NOT_READY if nothing was done, and the same call may
    succeed later or at another worker."""
    named = answer.headers.get(KIND_HEADER.lower())
    if named in set(m.ErrorKind):
        return m.ErrorKind(named)
    if answer.status in (409, 500) and message.startswith(MOMENTARY):
        return m.ErrorKind.NOT_READY
    if answer.status == 409:
        exists = message.startswith("Connector ") and message.endswith(" already exists")
        return m.ErrorKind.ALREADY_EXISTS if exists else m.ErrorKind.CONFLICT
    if (answer.status, message) in ((403, INVALID), (400, MISSING)):
        # One of the two workers has not read the newest session key yet, or does not know of the
        # newest round.
        return m.ErrorKind.NOT_READY
    if answer.status == 500:
        timed_out = message.startswith("Request timed out")
        return m.ErrorKind.TIMEOUT if timed_out else m.ErrorKind.INTERNAL
    return _KINDS.get(answer.status, m.ErrorKind.INTERNAL)


_KINDS: Final = {status: kind for kind, status in STATUSES.items() if status not in (409, 500)}
