"""Translation of a REST request into a `Call`, and of a `Result` into the answer. Pure.

Source: Connect's resources (`ConnectorsResource`, `InternalClusterResource`,
`ConnectorPluginsResource`, `LoggingResource`, `RootResource`), KIP-52, KIP-475, KIP-495, KIP-558,
KIP-745, KIP-769, KIP-875, KIP-980, KIP-976, KIP-1017. ``docs/run/rest.md`` lists the differences.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast
from urllib.parse import quote

from headgate.connector.framework import TASKS_MAX
from headgate.herder import messages as m
from headgate.herder.offset_input import DEPTH_MAX, is_nested_too_deep
from headgate.ids import TargetState, TaskId
from headgate.task.messages import TaskKind
from headgate_rest import http

MADE_OF_HEADER: Final = "Headgate-Made-Of"
"""Header with `PutTaskConfigs.made_of`, for which Connect's body has no field."""
INSTEAD_OF_HEADER: Final = "Headgate-Instead-Of"
"""Header with `PutTaskConfigs.instead_of`, in decimal digits."""
CONFIG_OFFSET_HEADER: Final = "Headgate-Config-Offset"
"""Header with `Success.config_offset`, in decimal digits."""
ETAG_HEADER: Final = "ETag"
IF_MATCH_HEADER: Final = "If-Match"
IF_MATCH_PATH: Final = "/headgate/if-match/"
"""Prefix of the path by which a worker forwards a change with an etag. After it come the etag and
the change's own path. A Java worker, or a Headgate that does not know etags, would ignore a header
and make the change. It refuses an unknown path."""
KIND_HEADER: Final = "Headgate-Error-Kind"
"""Header with `Failure.kind`, since several kinds share one status."""

USER_HOPS: Final = 0
LAST_HOPS: Final = 2
"""Hops of a call that is not forwarded any more."""

MOMENTARY: Final = (
    "Cannot complete request momentarily due to stale configuration",
    "Cannot complete request momentarily due to no known leader URL",
    "Cannot complete request because of a conflicting operation",
    "Request cannot be completed because a rebalance is expected",
)
"""Beginnings of Connect's messages if it has done nothing and the request may be repeated. Their
status is 409, and 500 for the last: Connect forgets to map that error where it only reads."""

LEVEL_EXPECTED: Final = 'an object like {"level": "DEBUG"}'


# -- what a request asks --


@dataclass(frozen=True, slots=True)
class HerderRequest:
    """A request that the herder answers."""

    call: m.Call
    hops: int = USER_HOPS
    part: str | None = None
    """Key of the part of the result's value that is the answer. None: all of it."""

    @property
    def internal(self) -> bool:
        """Whether only workers make the request, and sign it if the group signs. Source:
        KIP-507."""
        return isinstance(self.call, m.PutTaskConfigs | m.FenceConnector)


@dataclass(frozen=True, slots=True)
class ShowMethods:
    allowed: str


@dataclass(frozen=True, slots=True)
class ShowRoot:
    pass


@dataclass(frozen=True, slots=True)
class ShowHealth:
    pass


@dataclass(frozen=True, slots=True)
class ShowMetrics:
    pass


@dataclass(frozen=True, slots=True)
class ListPlugins:
    connectors_only: bool


@dataclass(frozen=True, slots=True)
class DescribePlugin:
    plugin: str


@dataclass(frozen=True, slots=True)
class ValidatePlugin:
    plugin: str
    config: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class ListLoggers:
    pass


@dataclass(frozen=True, slots=True)
class ShowLogger:
    logger: str


@dataclass(frozen=True, slots=True)
class SetWorkerLogger:
    """A new log level, on this worker only, or on all workers if `cluster`. The herder handles the
    latter, after the level was checked."""

    logger: str
    level: str
    cluster: bool


SideRequest: TypeAlias = (
    ShowMethods
    | ShowRoot
    | ShowHealth
    | ShowMetrics
    | ListPlugins
    | DescribePlugin
    | ValidatePlugin
    | ListLoggers
    | ShowLogger
    | SetWorkerLogger
)
"""Requests that are answered without the herder."""


def understand(request: http.HttpRequest) -> HerderRequest | SideRequest:
    """Return what `request` asks for.

    Raises:
        Refusal: Connect has no such request, or the request does not have its form.
    """
    request = _with_if_match(request)
    segments = http.path_segments(request.path)
    found = [
        (method, handler)
        for pattern, method, handler in _ROUTES.get(len(segments), ())
        if all(want is None or want == part for want, part in zip(pattern, segments, strict=True))
    ]
    if not found:
        raise http.Refusal(404, "HTTP 404 Not Found")
    allowed = ",".join([*(method for method, _ in found), "OPTIONS"])
    if request.method == "OPTIONS":
        return ShowMethods(allowed)
    method = "GET" if request.method == "HEAD" else request.method
    for candidate, handler in found:
        if candidate == method:
            _check_media_type(request)
            what = handler(_Route(request, segments))
            _check_if_match(request, what)
            return what
    raise http.Refusal(405, "HTTP 405 Method Not Allowed", {"Allow": allowed})


def _with_if_match(request: http.HttpRequest) -> http.HttpRequest:
    """Return a request with `IF_MATCH_PATH` as one with the header ``If-Match``."""
    if not request.path.startswith(IF_MATCH_PATH):
        return request
    etag, slash, rest = request.path.removeprefix(IF_MATCH_PATH).partition("/")
    if not slash or not rest.startswith("connectors/"):
        raise http.Refusal(404, "HTTP 404 Not Found")
    headers = {**request.headers, IF_MATCH_HEADER.lower(): f'"{etag}"'}
    return replace(request, path=f"/{rest}", headers=headers)


def _check_if_match(request: http.HttpRequest, what: "HerderRequest | SideRequest") -> None:
    """Check that a request with ``If-Match`` compares the etag.

    Raises:
        Refusal: 400, the change would be made whatever the connector's etag is.
    """
    if request.method in ("GET", "HEAD") or IF_MATCH_HEADER.lower() not in request.headers:
        return
    call = what.call if isinstance(what, HerderRequest) else None
    if getattr(call, "etag", None) is None:
        raise http.Refusal(
            400, f"{request.method} {request.path} has no {IF_MATCH_HEADER}; ask without"
        )


def _check_media_type(request: http.HttpRequest) -> None:
    """Check the media type as Connect does. This also keeps forms of foreign web pages out.

    Raises:
        Refusal: 415, it is not JSON.
    """
    given = request.headers.get("content-type")
    if request.method in ("GET", "HEAD") or given is None:
        return
    if given.partition(";")[0].strip().lower() != "application/json":
        raise http.Refusal(415, "HTTP 415 Unsupported Media Type")


class _Route:
    """A request whose path and method matched a route."""

    def __init__(self, request: http.HttpRequest, segments: tuple[str, ...]) -> None:
        self.body = request.body
        self.query = request.query
        self.headers = request.headers
        self.segments = segments

    @property
    def name(self) -> str:
        return self.segments[1]

    @property
    def task(self) -> TaskId:
        text = self.segments[3]
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text, re.ASCII) or abs(int(text)) >= 2**31:
            raise http.Refusal(404, "HTTP 404 Not Found")
        return TaskId(self.name, int(text))

    @property
    def etag(self) -> int | None:
        """The etag in ``If-Match``. None: there is none.

        Raises:
            Refusal: 400, it does not have the form of an etag.
        """
        given = self.headers.get(IF_MATCH_HEADER.lower())
        if given is None:
            return None
        found = re.fullmatch(r'[ \t]*"([0-9]+)"[ \t]*', given, re.ASCII)
        etag = None if found is None else _offset(found[1])
        if etag is None:
            text = f'{IF_MATCH_HEADER} is {given}; expected one ETag of an answer, like "17"'
            raise http.Refusal(400, text)
        return etag

    def flag(self, name: str) -> bool:
        return http.query_flag(self.query, name) or False

    def asked(self, call: m.Call, part: str | None = None) -> HerderRequest:
        return HerderRequest(call, part=part)

    def forwarded(self, call: m.Call) -> HerderRequest:
        """Return the request of a call that workers forward. The flag ``forward`` of the query
        tells how often it was forwarded."""
        forward = http.query_flag(self.query, "forward")
        return HerderRequest(call, USER_HOPS if forward is None else 1 if forward else LAST_HOPS)


_Handler: TypeAlias = Callable[[_Route], HerderRequest | SideRequest]


# -- bodies of calls --

_INITIAL_STATES: Final = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}
_JAVA_SPACES: Final = "".join(map(chr, range(0x21)))
"""Characters that Java's `trim` removes: all up to the space."""


def _create(route: _Route) -> HerderRequest:
    expected = 'an object like {"name": "orders", "config": {"connector.class": "..."}}'
    raw = http.read_texts(route.body, expected)
    fields = http.check_fields(raw, ("name", "config", "initial_state"), "the body", expected)
    if fields.get("config") is None:
        raise http.Refusal(400, f'The body has no "config"; expected {expected}')
    config = http.text_map(fields["config"], '"config"', "an object of texts")
    name = (http.text_or_null(fields.get("name"), '"name"') or "").strip(_JAVA_SPACES)
    state = http.text_or_null(fields.get("initial_state"), '"initial_state"')
    if state is not None and state.upper() not in _INITIAL_STATES:
        known = ", ".join(_INITIAL_STATES)
        raise http.Refusal(400, f'"initial_state" is {state}; expected one of {known}')
    target = None if state is None else _INITIAL_STATES[state.upper()]
    return route.forwarded(m.CreateConnector(name, config, target))


def _put_config(route: _Route) -> HerderRequest:
    config = http.read_text_map(route.body, "the connector's config, an object of texts")
    return route.forwarded(m.PutConnectorConfig(route.name, config, route.etag))


def _patch_config(route: _Route) -> HerderRequest:
    expected = "the keys to change, an object of texts and nulls"
    changes = http.read_text_map(route.body, expected)
    return route.forwarded(m.PatchConnectorConfig(route.name, changes, route.etag))


def _alter_offsets(route: _Route) -> HerderRequest:
    expected = 'an object like {"offsets": [{"partition": {...}, "offset": {...}}]}'
    fields = http.check_fields(
        http.read_json(route.body, expected), ("offsets",), "the body", expected
    )
    offsets: Any = fields.get("offsets")
    if offsets is not None and not isinstance(offsets, list):
        raise http.Refusal(400, f'"offsets" is {http.kind_of(offsets)}; expected {expected}')
    if not offsets:
        raise http.Refusal(
            400, "Partitions / offsets need to be provided for an alter offsets request"
        )
    changes: list[tuple[object, object]] = []
    for item in offsets:
        change = http.check_fields(item, ("partition", "offset"), 'an item of "offsets"', expected)
        partition, offset = change.get("partition"), change.get("offset")
        if partition is not None and not isinstance(partition, dict):
            what = http.kind_of(partition)
            raise http.Refusal(400, f'"partition" of an item is {what}; expected an object or null')
        if offset is not None and not isinstance(offset, dict):
            what = http.kind_of(offset)
            raise http.Refusal(400, f'"offset" of an item is {what}; expected an object or null')
        for what, value in change.items():
            if is_nested_too_deep(value):
                raise http.Refusal(
                    400, f'"{what}" of an item is nested deeper than {DEPTH_MAX} levels'
                )
        changes.append((cast(object, partition), cast(object, offset)))
    return route.forwarded(m.AlterOffsets(route.name, tuple(changes), route.etag))


def _foresee(route: _Route) -> HerderRequest:
    expected = 'an object like {"task_counts": {"orders": 4, "old": null}}'
    fields = http.check_fields(
        http.read_json(route.body, expected), ("task_counts",), "the body", expected
    )
    given: Any = fields.get("task_counts")
    if not isinstance(given, dict):
        raise http.Refusal(400, f'"task_counts" is {http.kind_of(given)}; expected {expected}')
    counts = cast(dict[str, Any], given)
    for name, count in counts.items():
        if count is not None and (type(count) is not int or not 0 <= count <= TASKS_MAX):
            text = f"The task count of {name} is {count!r}; expected null or 0 to {TASKS_MAX}"
            raise http.Refusal(400, text)
    return route.forwarded(m.ForeseeMoves(counts))


def _restart(route: _Route) -> HerderRequest:
    call = m.RestartConnector(route.name, route.flag("includeTasks"), route.flag("onlyFailed"))
    return route.forwarded(call)


def _offset(text: str) -> int | None:
    """Return a config offset, a signed number of at most 64 bits. None: the text is none."""
    if not re.fullmatch("[0-9]{1,19}", text):
        return None
    return found if (found := int(text)) < 2**63 else None


def _put_task_configs(route: _Route) -> HerderRequest:
    """Return the request of task configs. It always has the last hop, so a worker that is not the
    leader refuses it: a forwarded request would have lost its signature."""
    expected = "a list of task configs, objects of texts"
    raw = http.read_texts(route.body, expected)
    if not isinstance(raw, list):
        raise http.Refusal(400, f"The body is {http.kind_of(raw)}; expected {expected}")
    items = enumerate(raw)
    configs = tuple(http.text_map(item, f"task config {n}", expected) for n, item in items)
    made_of = route.headers.get(MADE_OF_HEADER.lower())
    replaced = route.headers.get(INSTEAD_OF_HEADER.lower())
    instead_of = None if replaced is None else _offset(replaced)
    if replaced is not None and instead_of is None:
        raise http.Refusal(400, f"{INSTEAD_OF_HEADER} is {replaced!r}; expected a config offset")
    return HerderRequest(m.PutTaskConfigs(route.name, configs, made_of, instead_of), LAST_HOPS)


def _list(route: _Route) -> HerderRequest:
    return route.asked(m.ListConnectors(http.query_values(route.query, "expand")))


def _list_plugins(route: _Route) -> SideRequest:
    return ListPlugins(http.query_flag(route.query, "connectorsOnly") is not False)


def _validate(route: _Route) -> SideRequest:
    config = http.read_text_map(route.body, "the connector's config, an object of texts")
    return ValidatePlugin(route.name, config)


def _set_level(route: _Route) -> SideRequest:
    level = http.read_text_map(route.body, LEVEL_EXPECTED).get("level")
    if level is None:
        raise http.Refusal(400, "Desired 'level' parameter was not specified in request.")
    scopes = http.query_values(route.query, "scope")
    cluster = bool(scopes) and scopes[0].lower() == "cluster"
    return SetWorkerLogger(route.segments[2], level, cluster)


def _read_left(kind: TaskKind) -> _Handler:
    return lambda r: r.asked(m.ReadDeletedOffsets(r.segments[2], kind))


def _reset_left(kind: TaskKind) -> _Handler:
    return lambda r: r.forwarded(m.ResetDeletedOffsets(r.segments[2], kind))


def _target(state: TargetState) -> _Handler:
    return lambda r: r.forwarded(m.SetTargetState(r.name, state, r.etag))


_TABLE: Final[tuple[tuple[str, str, _Handler], ...]] = (
    ("GET", "/", lambda r: ShowRoot()),
    ("GET", "/health", lambda r: ShowHealth()),
    ("GET", "/connectors", _list),
    ("POST", "/connectors", _create),
    ("GET", "/connectors/*", lambda r: r.asked(m.DescribeConnector(r.name))),
    ("DELETE", "/connectors/*", lambda r: r.forwarded(m.DeleteConnector(r.name, r.etag))),
    ("GET", "/connectors/*/config", lambda r: r.asked(m.DescribeConnector(r.name), "config")),
    ("PUT", "/connectors/*/config", _put_config),
    ("PATCH", "/connectors/*/config", _patch_config),
    ("GET", "/connectors/*/status", lambda r: r.asked(m.DescribeStatus(r.name))),
    ("POST", "/connectors/*/restart", _restart),
    ("PUT", "/connectors/*/pause", _target(TargetState.PAUSED)),
    ("PUT", "/connectors/*/resume", _target(TargetState.STARTED)),
    ("PUT", "/connectors/*/stop", _target(TargetState.STOPPED)),
    ("GET", "/connectors/*/tasks", lambda r: r.asked(m.DescribeTasks(r.name))),
    ("POST", "/connectors/*/tasks", _put_task_configs),
    ("PUT", "/connectors/*/fence", lambda r: HerderRequest(m.FenceConnector(r.name), LAST_HOPS)),
    ("GET", "/connectors/*/tasks/*/status", lambda r: r.asked(m.DescribeTaskStatus(r.task))),
    ("POST", "/connectors/*/tasks/*/restart", lambda r: r.forwarded(m.RestartTask(r.task))),
    ("GET", "/connectors/*/topics", lambda r: r.asked(m.DescribeTopics(r.name))),
    ("PUT", "/connectors/*/topics/reset", lambda r: r.asked(m.ResetTopics(r.name))),
    ("GET", "/connectors/*/offsets", lambda r: r.asked(m.ReadOffsets(r.name))),
    ("PATCH", "/connectors/*/offsets", _alter_offsets),
    ("DELETE", "/connectors/*/offsets", lambda r: r.forwarded(m.ResetOffsets(r.name, r.etag))),
    ("GET", "/offsets/source/*", _read_left(TaskKind.SOURCE)),
    ("GET", "/offsets/sink/*", _read_left(TaskKind.SINK)),
    ("DELETE", "/offsets/source/*", _reset_left(TaskKind.SOURCE)),
    ("DELETE", "/offsets/sink/*", _reset_left(TaskKind.SINK)),
    ("GET", "/connector-plugins", _list_plugins),
    ("GET", "/connector-plugins/*/config", lambda r: DescribePlugin(r.name)),
    ("PUT", "/connector-plugins/*/config/validate", _validate),
    ("GET", "/admin/loggers", lambda r: ListLoggers()),
    ("GET", "/admin/loggers/*", lambda r: ShowLogger(r.segments[2])),
    ("PUT", "/admin/loggers/*", _set_level),
    ("GET", "/metrics", lambda r: ShowMetrics()),
    ("POST", "/headgate/moves", _foresee),
    ("GET", "/headgate/group", lambda r: r.forwarded(m.DescribeGroup())),
    ("GET", "/headgate/worker", lambda r: r.asked(m.DescribeWorker())),
)


def _routes() -> dict[int, list[tuple[tuple[str | None, ...], str, _Handler]]]:
    """Return the routes by their number of segments."""
    routes: dict[int, list[tuple[tuple[str | None, ...], str, _Handler]]] = {}
    for method, path, handler in _TABLE:
        parts = path.strip("/").split("/") if path != "/" else []
        pattern = tuple(None if part == "*" else part for part in parts)
        routes.setdefault(len(pattern), []).append((pattern, method, handler))
    return routes


_ROUTES: Final = _routes()


# -- results --

STATUSES: Final[Mapping[m.ErrorKind, int]] = {
    m.ErrorKind.BAD_REQUEST: 400,
    m.ErrorKind.FORBIDDEN: 403,
    m.ErrorKind.NOT_FOUND: 404,
    m.ErrorKind.ALREADY_EXISTS: 409,
    m.ErrorKind.CONFLICT: 409,
    m.ErrorKind.PRECONDITION: 412,
    m.ErrorKind.INTERNAL: 500,
    m.ErrorKind.TIMEOUT: 500,
    m.ErrorKind.UNREACHABLE: 503,
    m.ErrorKind.NOT_READY: 503,
}
RETRY_LATER: Final = {"Retry-After": "1"}


def respond(asked: HerderRequest, result: m.Result, base_url: str) -> http.HttpResponse:
    """Return the answer to the client.

    Args:
        base_url: URL that the client uses for this worker, ``http://host:port``. If it is empty,
            `Location` is a path, which the client resolves against the URL it asked.
    """
    if isinstance(result, m.Failure):
        return _failure(result)
    answer = _success(asked, result.value, base_url)
    told: dict[str, str] = {}
    if result.config_offset is not None:
        told[CONFIG_OFFSET_HEADER] = str(result.config_offset)
    if result.etag is not None:
        told[ETAG_HEADER] = f'"{result.etag}"'
    return replace(answer, headers={**answer.headers, **told}) if told else answer


def _success(asked: HerderRequest, value: object, base_url: str) -> http.HttpResponse:
    call = asked.call
    match call:
        case m.CreateConnector() | m.PutConnectorConfig():
            created, info = split_created(value)
            if not created:
                return http.json_response(200, info)
            location = f"{base_url}/connectors/{quote(call.name, safe='')}"
            return http.json_response(201, info, {"Location": location})
        case m.PatchConnectorConfig():
            return http.json_response(200, split_created(value)[1])
        case m.SetTargetState(target_state=TargetState.STOPPED):
            return http.HttpResponse(204)
        case m.SetTargetState() | m.ResetTopics():
            return http.HttpResponse(202)
        case m.RestartConnector() if call.by_record:
            return http.json_response(202, value)
        case (
            m.DeleteConnector()
            | m.RestartConnector()
            | m.RestartTask()
            | m.PutTaskConfigs()
            | m.FenceConnector()
            | m.SetLoggerLevel()
        ):
            return http.HttpResponse(204)
        case _:
            if asked.part is not None:
                value = cast(dict[str, Any], value)[asked.part]
            return http.json_response(200, value)


def split_created(value: object) -> tuple[bool, dict[str, Any]]:
    """Return whether the connector is new, and its ConnectorInfo, which has no field for that."""
    info = dict(cast(dict[str, Any], value))
    return bool(info.pop("created", False)), info


def _failure(failure: m.Failure) -> http.HttpResponse:
    status = STATUSES[failure.kind]
    headers: Mapping[str, str] = {KIND_HEADER: failure.kind.value}
    if failure.kind is m.ErrorKind.NOT_READY and failure.message.startswith(MOMENTARY):
        status = 409  # as Connect has it
    if failure.kind in (m.ErrorKind.NOT_READY, m.ErrorKind.UNREACHABLE, m.ErrorKind.CONFLICT):
        headers = {**headers, **RETRY_LATER}
    return http.error_response(status, failure.message, headers)
