"""A cluster over Connect's REST API: Java's workers and ours.

REST has no watches and waits, so `watch` and `wait` ask again and again. It does not show target
states.
"""

import base64
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

import httpcore

from headgate.herder import messages as m
from headgate.herder.offset_previews import preview
from headgate.ids import TargetState, TaskId
from headgate.task.messages import TaskKind
from headgate_rest.client_calls import Question, question, result_of
from headgate_rest.http import HttpResponse
from headgate_rest.warning import WARNING, notes_of_header
from headgate_runtime.api.members import member
from headgate_runtime.command.errors import EXIT_USAGE
from headgate_runtime.remote.listener import unreached
from headgate_runtime.remote.looks import WORKER, Looks
from headgate_runtime.remote.remote import (
    Config,
    ConnectorRow,
    Difference,
    LateError,
    Plan,
    PlannedRow,
    RefusedError,
    RemoteError,
    TaskRow,
    Work,
    refused,
)

CALL_S: Final = 95.0
"""Limit for a call, in seconds. Connect itself gives up after 90 s."""
CONNECT_S: Final = 5.0
LOOK_S: Final = 1.0
VALIDATE: Final = "/config/validate"
_HEADERS: Final = (("User-Agent", "headgate"), ("Accept", "application/json"))
_NOT_SENT: Final = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.UnsupportedProtocol)
_CODES: Final = {
    m.ErrorKind.BAD_REQUEST: "INVALID_ARGUMENT",
    m.ErrorKind.FORBIDDEN: "PERMISSION_DENIED",
    m.ErrorKind.NOT_FOUND: "NOT_FOUND",
    m.ErrorKind.ALREADY_EXISTS: "ALREADY_EXISTS",
    m.ErrorKind.CONFLICT: "ABORTED",
    m.ErrorKind.PRECONDITION: "ABORTED",
    m.ErrorKind.INTERNAL: "INTERNAL",
    m.ErrorKind.TIMEOUT: "DEADLINE_EXCEEDED",
    m.ErrorKind.NOT_READY: "UNAVAILABLE",
    m.ErrorKind.UNREACHABLE: "UNAVAILABLE",
}


_Texts: TypeAlias = tuple[tuple[str, str], ...]
"""Pairs of a key and a text."""


class RestRemote:
    def __init__(self, url: str, variables: Mapping[str, str] | None = None) -> None:
        """Take files of certificates and the login from `variables`, or from the environment if it
        is None."""
        given = os.environ if variables is None else variables
        self.where = url.rstrip("/")
        trusted = _trusted(given)
        self._pool = httpcore.ConnectionPool(ssl_context=trusted)
        self._user = given.get("HEADGATE_USERNAME", "")
        self._login = _login(self._user, given.get("HEADGATE_PASSWORD", ""))
        self._looks = Looks(self.where, trusted, _HEADERS, self._login)

    def close(self) -> None:
        self._looks.close()
        self._pool.close()

    def cluster(self) -> Mapping[str, Any]:
        root = self._json(Question("GET", "/"))
        found = self._ask(m.DescribeGroup())
        workers, unknown = [], ""
        if isinstance(found, m.Success):
            group: Any = found.value
            workers = [_member(each, group) for each in group["members"]]
        elif found.kind is m.ErrorKind.NOT_FOUND:
            unknown = "a Java worker, or its leader, does not tell over REST who is in the group"
        else:
            unknown = found.message
        return {
            "version": root.get("version", ""),
            "kafka_cluster_id": root.get("kafka_cluster_id", ""),
            "group_id": "",
            "workers": workers,
            "others_unknown": unknown,
        }

    def work(
        self, cluster: Mapping[str, Any], rows: Sequence[ConnectorRow], *, of_rows: bool = False
    ) -> Work:
        urls = {worker["worker_id"]: worker["url"] for worker in cluster["workers"]}
        owners = {row.worker for row in rows} | {task.worker for row in rows for task in row.tasks}
        owners.discard("")  # no worker has reported its status
        if not of_rows or any(not row.worker for row in rows):
            owners |= urls.keys()
        # A Java leader shows no addresses. Its workers are then assumed to use this one's scheme.
        scheme = self.where.partition("://")[0]
        asked = {owner: urls.get(owner) or f"{scheme}://{owner}" for owner in sorted(owners)}
        views = self._looks.views(asked.values())
        batches: list[Mapping[str, Any]] = []
        calls: list[Mapping[str, Any]] = []
        unknown: dict[str, str] = {}
        for owner, url in asked.items():
            view = views[url]
            if isinstance(view, str):
                unknown[owner] = view
                continue
            for own in view.connector_calls:
                told = {"task": "", "connector": own.connector, "method": own.method}
                calls.append({**told, "took_ms": own.took_ms})
            for task in view.tasks:
                if task.batch is not None:
                    batches.append({"task": str(task.task), **asdict(task.batch)})
                if (took_ms := view.call_ms(task)) is not None:
                    told = {"task": str(task.task), "connector": task.task.connector}
                    calls.append({**told, "method": task.call, "took_ms": took_ms})
        return Work(batches, calls, unknown)

    def rows(self, prefix: str = "", states: Sequence[str] = ()) -> Sequence[ConnectorRow]:
        found: Mapping[str, Any] = self._value(m.ListConnectors(("status", "info")))
        rows = [_row(each) for each in found.values()]
        # A connector without a status is not listed with its status, but only by name.
        named = self._value(m.ListConnectors())
        unlisted = [each for each in named if each.startswith(prefix) and each not in found]
        rows += [row for row in map(self._row_if_there, unlisted) if row is not None]
        rows.sort(key=lambda row: row.name)
        return [
            row
            for row in rows
            if row.name.startswith(prefix) and (not states or _states_of(row) & set(states))
        ]

    def _row_if_there(self, name: str) -> ConnectorRow | None:
        try:
            return self.row(name)
        except RemoteError:
            if name in self._value(m.ListConnectors()):
                raise
            return None  # deleted since it was named

    def row(self, name: str) -> ConnectorRow:
        found = self._success(m.DescribeConnector(name), name)
        info = cast(Mapping[str, Any], found.value)
        status = self._ask(m.DescribeStatus(name))
        tasks = self._value(m.DescribeTasks(name), name)
        parts = {"info": info, "status": status.value if isinstance(status, m.Success) else None}
        row = _row(parts, tuple(each["config"] or {} for each in tasks))
        return replace(row, etag="" if found.etag is None else str(found.etag))

    def create(self, name: str, config: Config, state: TargetState | None) -> None:
        self._value(m.CreateConnector(name, config, state), name)

    def put_config(self, name: str, config: Config, etag: str = "") -> bool:
        call = m.PutConnectorConfig(name, config, int(etag) if etag else None)
        return bool(self._value(call, name)["created"])

    def patch_config(self, name: str, changes: Config) -> None:
        self._value(m.PatchConnectorConfig(name, changes), name)

    def plan(self, wanted: Mapping[str, Config], prune: str | None) -> Plan:
        """Return the plan. REST does not say what would move."""
        known = {row.name: row.config for row in self.rows()}
        rows = []
        for name in sorted(wanted):
            config = {**wanted[name], "name": name}
            action = "none" if known.get(name) == config else "change config"
            found = PlannedRow(
                name,
                action if name in known else "create",
                _differences(known.get(name, {}), config),
                *self._faults_and_notes(config),
            )
            if found.action != "none" or found.faults:
                rows.append(found)
        gone = [] if prune is None else [each for each in known if each.startswith(prune)]
        rows += [PlannedRow(name, "delete") for name in gone if name not in wanted]
        rows.sort(key=lambda row: row.name)
        return Plan(tuple(rows), moves_unknown="the REST API does not tell what would move")

    def _faults_and_notes(self, config: Config) -> tuple[_Texts, _Texts]:
        plugin = config.get("connector.class")
        if not plugin:
            return (("connector.class", "is missing"),), ()
        path = f"/connector-plugins/{quote(plugin, safe='')}{VALIDATE}"
        try:
            answer = self._answer(Question("PUT", path, json.dumps(dict(config)).encode()))
            infos = self._value_of(answer)
        except RefusedError as error:
            return (("connector.class", str(error).partition("\n")[0]),), ()
        faults = tuple(
            (each["value"]["name"], error)
            for each in infos["configs"]
            for error in each["value"]["errors"]
        )
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return faults, tuple(notes_of_header(headers.get(WARNING.lower(), "")))

    def notes(self, wanted: Mapping[str, Config]) -> Sequence[tuple[str, str, str]]:
        # A Java worker has no notes, and would load each plugin to validate a config.
        if self._answer(Question("GET", WORKER)).status == 404:
            return []
        found = []
        for name in sorted(wanted):
            _, notes = self._faults_and_notes({**wanted[name], "name": name})
            found += [(name, key, text) for key, text in notes]
        return found

    def delete(self, name: str) -> None:
        self._value(m.DeleteConnector(name), name)

    def set_target_state(self, name: str, state: TargetState) -> None:
        self._value(m.SetTargetState(name, state), name)

    def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> None:
        self._value(m.RestartConnector(name, include_tasks, only_failed), name)

    def restart_task(self, name: str, task: int) -> None:
        self._value(m.RestartTask(TaskId(name, task)), name)

    def offsets(self, name: str) -> Sequence[Mapping[str, Any]]:
        return cast(Sequence[Mapping[str, Any]], self._value(m.ReadOffsets(name), name)["offsets"])

    def alter_offsets(self, name: str, changes: Sequence[tuple[object, object]]) -> str:
        return str(self._value(m.AlterOffsets(name, tuple(changes)), name)["message"])

    def reset_offsets(self, name: str) -> str:
        return str(self._value(m.ResetOffsets(name), name)["message"])

    def offset_differences(
        self, name: str, changes: Sequence[tuple[object, object]] | None
    ) -> Sequence[Mapping[str, Any]]:
        """Return the differences, compared here: Connect has no dry runs."""
        status = self._value(m.DescribeStatus(name), name)
        if status["connector"]["state"] != "STOPPED":
            text = f"Connector {name} is not STOPPED, so its offsets cannot be modified"
            raise refused("INVALID_ARGUMENT", text, name)
        lines = [(each["partition"], each["offset"]) for each in self.offsets(name)]
        kind = TaskKind.SINK if status["type"] == "sink" else TaskKind.SOURCE
        call = m.ResetOffsets(name) if changes is None else m.AlterOffsets(name, tuple(changes))
        found = preview(call, kind, lines)
        if isinstance(found, m.Failure):
            raise refused("INVALID_ARGUMENT", found.message, name)
        return cast(Sequence[Mapping[str, Any]], cast(Any, found.value)["changes"])

    def deleted_offsets(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        found = self._value(m.ReadDeletedOffsets(name, kind), name)
        return cast(Sequence[Mapping[str, Any]], found["offsets"])

    def reset_deleted_offsets(self, name: str, kind: TaskKind) -> str:
        return str(self._value(m.ResetDeletedOffsets(name, kind), name)["message"])

    def deleted_offset_differences(self, name: str, kind: TaskKind) -> Sequence[Mapping[str, Any]]:
        return [
            {"partition": each["partition"], "before": each["offset"], "after": None}
            for each in self.deleted_offsets(name, kind)
        ]

    def plugins(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self._json(
            Question("GET", "/connector-plugins?connectorsOnly=false")
        )
        return found

    def plugin(self, name: str) -> Sequence[Mapping[str, Any]]:
        path = f"/connector-plugins/{quote(name, safe='')}/config"
        found: Sequence[Mapping[str, Any]] = self._json(Question("GET", path))
        return found

    def loggers(self) -> Mapping[str, str]:
        found = self._json(Question("GET", "/admin/loggers"))
        return {name: each["level"] for name, each in found.items()}

    def set_level(self, logger: str, level: str, *, cluster: bool) -> Sequence[str]:
        scope = "?scope=cluster" if cluster else ""
        body = json.dumps({"level": level}).encode()
        path = f"/admin/loggers/{quote(logger, safe='')}{scope}"
        found = self._json(Question("PUT", path, body))
        return [] if found is None else list(found)

    def watch(self, prefix: str, names: Sequence[str]) -> Iterator[tuple[str, ConnectorRow | None]]:
        known: dict[str, ConnectorRow] = {}
        while True:
            now = {
                row.name: row for row in self.rows(prefix) if not names or row.name in set(names)
            }
            for name, row in now.items():
                if known.get(name) != row:
                    yield name, row
            for name in known.keys() - now.keys():
                yield name, None
            known = now
            time.sleep(LOOK_S)

    def wait(self, name: str, condition: str, timeout_s: float) -> ConnectorRow | None:
        until = time.monotonic() + timeout_s
        while True:
            try:
                row = self.row(name)
            except RemoteError:
                if condition == "deleted":
                    return None
                raise
            if _holds(row, condition):
                return row
            if row.failed and condition != "FAILED":
                again = f"headgate connectors restart {name} --tasks --only-failed"
                raise RefusedError(
                    f"{name} has failed\n  next: headgate connectors show {name} has the trace; "
                    f"then {again}"
                )
            if time.monotonic() >= until:
                raise LateError(
                    f"{name} is not {condition} after {timeout_s:g} s\n"
                    f"  next: headgate connectors show {name}"
                )
            time.sleep(LOOK_S)

    # -- asking --

    def _success(self, call: m.Call, name: str = "") -> m.Success:
        result = self._ask(call)
        if isinstance(result, m.Failure):
            mismatch = result.kind is m.ErrorKind.PRECONDITION
            reason = "ETAG_MISMATCH" if mismatch else ""
            raise refused(_CODES[result.kind], result.message, name, reason)
        return result

    def _value(self, call: m.Call, name: str = "") -> Any:
        return self._success(call, name).value

    def _ask(self, call: m.Call) -> m.Result:
        return result_of(call, self._answer(question(call, 0)))

    def _json(self, asked: Question) -> Any:
        return self._value_of(self._answer(asked))

    def _value_of(self, answer: HttpResponse) -> Any:
        result = result_of(m.DescribeWorker(), answer)
        if isinstance(result, m.Failure):
            raise refused(_CODES[result.kind], result.message, where=self.where)
        return result.value

    def _answer(self, asked: Question) -> HttpResponse:
        # A request from here was not forwarded by a worker.
        path = asked.path.replace("?forward=true&", "?").replace("?forward=true", "")
        headers = [*_HEADERS, *self._login, *asked.headers.items()]
        if asked.body is not None:
            headers.append(("Content-Type", "application/json"))
        timeout = {"connect": CONNECT_S, "read": CALL_S, "write": CALL_S, "pool": CONNECT_S}
        try:
            answer = self._pool.request(
                asked.method,
                f"{self.where}{path}",
                headers=headers,
                content=asked.body,
                extensions={"timeout": timeout},
            )
        except (
            httpcore.ConnectError,
            httpcore.ConnectTimeout,
            httpcore.UnsupportedProtocol,
        ) as error:
            raise unreached(self.where, str(error) or type(error).__name__) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            text = str(error) or type(error).__name__
            if asked.method == "GET" or asked.path.endswith(VALIDATE):
                raise unreached(self.where, text) from None
            raise RemoteError(
                f"{self.where} has not answered: {text}\n"
                "  next: it may have been done: look with headgate status before you ask again"
            ) from None
        if answer.status == 401:
            raise _not_let_in(self.where, self._user)
        found = {name.decode().lower(): value.decode() for name, value in answer.headers}
        return HttpResponse(answer.status, answer.content, found)


def _login(user: str, password: str) -> list[tuple[str, str]]:
    """Return the header of basic authentication, or none without a user.

    Raises:
        RemoteError: a server would take a part of the user for the password (RFC 7617).
    """
    if not user:
        return []
    if ":" in user:
        raise RemoteError(
            f"the user {user!r} has a colon, which basic authentication forbids\n"
            "  next: HEADGATE_USERNAME is the user alone, HEADGATE_PASSWORD the password",
            EXIT_USAGE,
        )
    plain = f"{user}:{password}".encode()
    return [("Authorization", f"Basic {base64.b64encode(plain).decode()}")]


def _not_let_in(where: str, user: str) -> RefusedError:
    seen = f"does not let {user} in with this password" if user else "wants a user and a password"
    return RefusedError(
        f"{where} {seen}\n  next: headgate context set NAME --username USER keeps them, or set "
        "HEADGATE_USERNAME and HEADGATE_PASSWORD"
    )


def _trusted(given: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context that trusts this machine's authorities and those of HEADGATE_CA_FILE. It has
    the certificate of HEADGATE_CERTIFICATE_FILE, as for gRPC."""
    context = ssl.create_default_context()
    authorities, certificate, key = (
        given.get(f"HEADGATE_{name}_FILE") for name in ("CA", "CERTIFICATE", "KEY")
    )
    try:
        if authorities:
            context.load_verify_locations(authorities)
        if certificate:
            context.load_cert_chain(certificate, key or None)
    except OSError as error:
        text = "HEADGATE_CA_FILE, HEADGATE_CERTIFICATE_FILE and HEADGATE_KEY_FILE name PEM files"
        raise RemoteError(
            f"a file of certificates cannot be read: {error}\n  next: {text}", EXIT_USAGE
        ) from None
    return context


def _member(told: Mapping[str, Any], group: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a worker as the leader's last round reports it."""
    return {
        **member(told, group),
        "answers": False,
        "settled": False,
        "pending": [],
        "connectors": [],
        "tasks": [],
        "connector_count": told["connectors"],
        "task_count": told["tasks"],
        "set_aside": [],
        "batches": [],
    }


def _row(parts: Mapping[str, Any], task_configs: tuple[Config, ...] = ()) -> ConnectorRow:
    info, status = parts["info"], parts["status"]
    configured = {each["task"] for each in info["tasks"]}
    reported = {each["id"]: each for each in (status or {}).get("tasks", ())}
    connector = (status or {}).get("connector", {})
    tasks = []
    for number in sorted(configured | set(reported)):
        each = reported.get(number, {})
        tasks.append(
            TaskRow(
                number,
                each.get("state", ""),
                each.get("worker_id", ""),
                each.get("trace", ""),
            )
        )
    return ConnectorRow(
        name=info["name"],
        type=info.get("type") or "unknown",
        state=connector.get("state", ""),
        worker=connector.get("worker_id", ""),
        trace=connector.get("trace", ""),
        tasks=tuple(tasks),
        config=info["config"],
        task_configs=task_configs,
    )


def _differences(before: Config, after: Config) -> tuple[Difference, ...]:
    return tuple(
        Difference(
            key,
            before.get(key),
            after.get(key),
            is_before=key in before,
            is_after=key in after,
        )
        for key in sorted({*before, *after} - {"name"})
        if key not in before or key not in after or before[key] != after[key]
    )


def _states_of(row: ConnectorRow) -> set[str]:
    return {row.state, *(task.state for task in row.tasks)}


def _holds(row: ConnectorRow, condition: str) -> bool:
    """Return whether the condition holds. A connector without tasks does not count as RUNNING or
    PAUSED: REST does not show whether it has none or has not configured them yet."""
    if condition == "deleted" or (not row.tasks and row.state in ("RUNNING", "PAUSED")):
        return False
    if condition == "settled":
        return row.state in ("RUNNING", "PAUSED", "STOPPED") and _states_of(row) == {row.state}
    return _states_of(row) == {condition}
