"""Tables of requests as calls and of results as answers. Every call goes there and back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rest.translated import asked_and_answered, understood

from headgate import wire
from headgate.herder import messages as m
from headgate.ids import TargetState, TaskId
from headgate.task.messages import TaskKind
from headgate_rest.client_calls import question, result_of
from headgate_rest.http import HttpRequest, HttpResponse, Refusal
from headgate_rest.translate import (
    DescribePlugin,
    HerderRequest,
    ListLoggers,
    ListPlugins,
    SetWorkerLogger,
    ShowHealth,
    ShowLogger,
    ShowMethods,
    ShowRoot,
    SideRequest,
    ValidatePlugin,
    respond,
    understand,
)

PAUSED, STARTED, STOPPED = TargetState.PAUSED, TargetState.STARTED, TargetState.STOPPED


def request(line: str, body: str | bytes = b"", **headers: str) -> HttpRequest:
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    raw = body.encode() if isinstance(body, str) else body
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return HttpRequest(method, path, query, raw, named)


def asked(call: m.Call, hops: int = 0, part: str | None = None) -> HerderRequest:
    return HerderRequest(call, hops, part)


UNDERSTOOD: list[tuple[str, str, HerderRequest | SideRequest]] = [
    ("GET /", "", ShowRoot()),
    ("GET /health", "", ShowHealth()),
    ("GET /connectors", "", asked(m.ListConnectors())),
    ("GET /connectors/", "", asked(m.ListConnectors())),
    ("HEAD /connectors", "", asked(m.ListConnectors())),
    (
        "GET /connectors?expand=info&expand=status&x=1",
        "",
        asked(m.ListConnectors(("info", "status"))),
    ),
    ("GET /connectors?expand=", "", asked(m.ListConnectors(("",)))),
    ("GET /connectors/a", "", asked(m.DescribeConnector("a"))),
    ("GET /connectors/a/", "", asked(m.DescribeConnector("a"))),
    ("GET /connectors/a%2Fb%20c-1", "", asked(m.DescribeConnector("a/b c-1"))),
    ("GET /connectors/a+b", "", asked(m.DescribeConnector("a+b"))),
    ("GET /connectors/%C3%A9", "", asked(m.DescribeConnector("é"))),
    ("GET /connectors/a/config", "", asked(m.DescribeConnector("a"), part="config")),
    ("GET /connectors/a/status", "", asked(m.DescribeStatus("a"))),
    ("GET /connectors/a/tasks", "", asked(m.DescribeTasks("a"))),
    ("GET /connectors/a/tasks/3/status", "", asked(m.DescribeTaskStatus(TaskId("a", 3)))),
    ("GET /connectors/a/tasks/-1/status", "", asked(m.DescribeTaskStatus(TaskId("a", -1)))),
    ("GET /connectors/a/topics", "", asked(m.DescribeTopics("a"))),
    ("PUT /connectors/a/topics/reset", "", asked(m.ResetTopics("a"))),
    ("DELETE /connectors/a", "", asked(m.DeleteConnector("a"))),
    ("DELETE /connectors/a?forward=true", "", asked(m.DeleteConnector("a"), 1)),
    ("DELETE /connectors/a?forward=false", "", asked(m.DeleteConnector("a"), 2)),
    ("PUT /connectors/a/pause", "", asked(m.SetTargetState("a", PAUSED))),
    ("PUT /connectors/a/resume", "", asked(m.SetTargetState("a", STARTED))),
    ("PUT /connectors/a/stop", "", asked(m.SetTargetState("a", STOPPED))),
    ("PUT /connectors/a/stop?forward=true", "", asked(m.SetTargetState("a", STOPPED), 1)),
    ("POST /connectors/a/restart", "", asked(m.RestartConnector("a"))),
    (
        "POST /connectors/a/restart?includeTasks=true&onlyFailed=false&forward=true",
        "",
        asked(m.RestartConnector("a", include_tasks=True), 1),
    ),
    (
        "POST /connectors/a/restart?includeTasks=yes&onlyFailed=TRUE",
        "",
        asked(m.RestartConnector("a", only_failed=True)),
    ),
    ("POST /connectors/a/tasks/0/restart", "", asked(m.RestartTask(TaskId("a", 0)))),
    ("GET /connectors/a/offsets", "", asked(m.ReadOffsets("a"))),
    ("DELETE /connectors/a/offsets", "", asked(m.ResetOffsets("a"))),
    ("GET /offsets/source/a%2Fb", "", asked(m.ReadDeletedOffsets("a/b", TaskKind.SOURCE))),
    (
        "DELETE /offsets/sink/a?forward=true",
        "",
        asked(m.ResetDeletedOffsets("a", TaskKind.SINK), 1),
    ),
    (
        "PATCH /connectors/a/offsets",
        '{"offsets":[{"partition":{"f":"x"},"offset":{"n":1,"d":1.5}},{"partition":{},"offset":null}'
        ',{"partition":{"p":2}}]}',
        asked(
            m.AlterOffsets("a", (({"f": "x"}, {"n": 1, "d": 1.5}), ({}, None), ({"p": 2}, None)))
        ),
    ),
    (  # of a source that has no partitions; of a sink the herder refuses it
        "PATCH /connectors/a/offsets",
        '{"offsets":[{"partition":null,"offset":{"n":1}},{"offset":null}]}',
        asked(m.AlterOffsets("a", ((None, {"n": 1}), (None, None)))),
    ),
    ("PUT /connectors/a/fence", "", asked(m.FenceConnector("a"), 2)),
    ("PUT /connectors/a/fence?forward=true", "", asked(m.FenceConnector("a"), 2)),
    (
        "POST /connectors/a/tasks",
        '[{"file":"x"},{"file":null}]',
        asked(m.PutTaskConfigs("a", ({"file": "x"}, {"file": None})), 2),
    ),
    ("POST /connectors/a/tasks", "[]", asked(m.PutTaskConfigs("a", ()), 2)),
    # Names are trimmed as Java does it, numbers and booleans become texts as they are written.
    (
        "POST /connectors",
        '{"name":" \\u0007a\\t","config":{"n":1e3,"i":7.0,"b":true,"t":"x","null":null}}',
        asked(
            m.CreateConnector("a", {"n": "1e3", "i": "7.0", "b": "true", "t": "x", "null": None})
        ),
    ),
    (
        "POST /connectors?forward=true",
        '{"name":"a","config":{},"initial_state":"running"}',
        asked(m.CreateConnector("a", {}, STARTED), 1),
    ),
    (
        "POST /connectors",
        '{"config":{},"initial_state":"Stopped"}',
        asked(m.CreateConnector("", {}, STOPPED)),
    ),
    ("POST /connectors", '{"name":7,"config":{}}', asked(m.CreateConnector("7", {}))),
    ("PUT /connectors/a/config", '{"b":"c"}', asked(m.PutConnectorConfig("a", {"b": "c"}))),
    (
        "PATCH /connectors/a/config?forward=false",
        '{"b":null}',
        asked(m.PatchConnectorConfig("a", {"b": None}), 2),
    ),
    ("GET /connector-plugins", "", ListPlugins(connectors_only=True)),
    ("GET /connector-plugins?connectorsOnly=false", "", ListPlugins(connectors_only=False)),
    ("GET /connector-plugins/p/config", "", DescribePlugin("p")),
    ("PUT /connector-plugins/p/config/validate", '{"a":1}', ValidatePlugin("p", {"a": "1"})),
    ("GET /admin/loggers", "", ListLoggers()),
    ("GET /admin/loggers/a.b", "", ShowLogger("a.b")),
    ("PUT /admin/loggers/a.b", '{"level":"x"}', SetWorkerLogger("a.b", "x", cluster=False)),
    (
        "PUT /admin/loggers/a.b?scope=CLUSTER",
        '{"level":"x"}',
        SetWorkerLogger("a.b", "x", cluster=True),
    ),
    (
        "PUT /admin/loggers/a.b?scope=bogus",
        '{"level":"x"}',
        SetWorkerLogger("a.b", "x", cluster=False),
    ),
    ("GET /headgate/group", "", asked(m.DescribeGroup())),
    ("GET /headgate/worker", "", asked(m.DescribeWorker())),
    ("OPTIONS /connectors", "", ShowMethods("GET,POST,OPTIONS")),
]


@pytest.mark.parametrize(("line", "body", "meant"), UNDERSTOOD)
def test_a_request_is_understood(line: str, body: str, meant: HerderRequest | SideRequest) -> None:
    assert understand(request(line, body)) == meant


def test_the_digest_of_the_config_comes_in_a_header() -> None:
    found = understand(request("POST /connectors/a/tasks", "[]", headgate_made_of="d1"))
    assert found == asked(m.PutTaskConfigs("a", (), "d1"), 2)


def test_the_commit_to_be_followed_comes_in_a_header() -> None:
    found = understand(request("POST /connectors/a/tasks", "[]", headgate_instead_of="17"))
    assert found == asked(m.PutTaskConfigs("a", (), None, 17), 2)
    with pytest.raises(Refusal, match="Headgate-Instead-Of is '-1'; expected a config offset"):
        understand(request("POST /connectors/a/tasks", "[]", headgate_instead_of="-1"))


def test_how_a_commit_to_be_followed_is_asked_for() -> None:
    sent = question(m.PutTaskConfigs("a", (), "d1", 17), 1)
    assert sent.headers == {"Headgate-Made-Of": "d1", "Headgate-Instead-Of": "17"}


REFUSED: list[tuple[str, str | bytes, int, str]] = [
    ("GET /nope", "", 404, "HTTP 404 Not Found"),
    ("GET /connectors/a/b/c/d/e", "", 404, "HTTP 404 Not Found"),
    ("GET /connectors/a/tasks-config", "", 404, "HTTP 404 Not Found"),
    ("GET /connectors/a/tasks/x/status", "", 404, "HTTP 404 Not Found"),
    ("POST /connectors/a/tasks/99999999999/restart", "", 404, "HTTP 404 Not Found"),
    ("POST /connectors/a/tasks/4294967296/restart", "", 404, "HTTP 404 Not Found"),
    ("POST /", "", 405, "HTTP 405 Method Not Allowed"),
    ("DELETE /connectors", "", 405, "HTTP 405 Method Not Allowed"),
    ("GET /connectors/%ff", "", 400, "not UTF-8"),
    ("GET /connectors?expand=%ff", "", 400, "not UTF-8"),
    ("POST /connectors", "", 400, "no body; expected an object like"),
    ("POST /connectors", "null", 400, "body is null; expected"),
    ("POST /connectors", "{", 400, "not JSON: Expecting property name"),
    ("POST /connectors", "{} x", 400, "not JSON: Extra data"),
    ("POST /connectors", b"\xff", 400, "not JSON"),
    ("POST /connectors", "[" * 100_000, 400, "not JSON"),
    ("POST /connectors", "[]", 400, "the body is a list; expected an object like"),
    ("POST /connectors", '"x"', 400, "the body is text; expected an object like"),
    ("POST /connectors", "{}", 400, 'no "config"'),
    ("POST /connectors", '{"config":null}', 400, 'no "config"'),
    ("POST /connectors", '{"config":[]}', 400, '"config" is a list; expected an object'),
    ("POST /connectors", '{"config":{"x":{}}}', 400, '"x" in "config" is an object; expected text'),
    ("POST /connectors", '{"name":{},"config":{}}', 400, '"name" is an object; expected text'),
    ("POST /connectors", '{"config":{},"bogus":1}', 400, 'Unrecognized field "bogus" in the body'),
    ("POST /connectors", '{"config":{},"initial_state":"on"}', 400, "one of RUNNING, PAUSED, STOP"),
    ("POST /connectors", '{"config":{},"initial_state":3}', 400, '"initial_state" is 3; expected'),
    ("POST /connectors", '{"name":"\\ud800","config":{}}', 400, "not JSON"),
    ("PUT /connectors/a/config", "", 400, "no body; expected the connector's config"),
    ("PUT /connectors/a/config", "{'a':1}", 400, "not JSON"),
    ("PATCH /connectors/a/config", "null", 400, "body is null; expected the keys to change"),
    ("PATCH /connectors/a/offsets", "{}", 400, "Partitions / offsets need to be provided"),
    ("PATCH /connectors/a/offsets", '{"offsets":[]}', 400, "Partitions / offsets need to be"),
    ("PATCH /connectors/a/offsets", "null", 400, "body is null"),
    ("PATCH /connectors/a/offsets", '{"offsets":{}}', 400, '"offsets" is an object; expected an'),
    ("PATCH /connectors/a/offsets", '{"offsets":[null]}', 400, 'an item of "offsets" is null'),
    ("PATCH /connectors/a/offsets", '{"offsets":[{"partition":{},"x":1}]}', 400, "Unrecognized"),
    (
        "PATCH /connectors/a/offsets",
        '{"offsets":[{"partition":[]}]}',
        400,
        '"partition" of an item is a list; expected an object or null',
    ),
    (
        "PATCH /connectors/a/offsets",
        '{"offsets":[{"partition":{},"offset":7}]}',
        400,
        '"offset" of an item is a number; expected an object or null',
    ),
    (
        "PATCH /connectors/a/offsets",
        '{"offsets":[{"partition":{},"offset":{"n":NaN}}]}',
        400,
        "NaN is no JSON",
    ),
    (
        "PATCH /connectors/a/offsets",
        '{"offsets":[{"partition":{},"offset":{"n":1e999}}]}',
        400,
        "1e999 is too large",
    ),
    ("POST /connectors/a/tasks", "{}", 400, "The body is an object; expected a list of task"),
    ("POST /connectors/a/tasks", "[1]", 400, "task config 0 is a number; expected a list of"),
    ("PUT /admin/loggers/x", "{}", 400, "Desired 'level' parameter was not specified in request."),
    ("PUT /admin/loggers/x", "", 400, 'no body; expected an object like {"level": "DEBUG"}'),
    ("PUT /connector-plugins/p/config/validate", "", 400, "no body; expected the connector's"),
]


@pytest.mark.parametrize(("line", "body", "status", "text"), REFUSED)
def test_a_request_is_refused(line: str, body: str | bytes, status: int, text: str) -> None:
    with pytest.raises(Refusal) as refused:
        understand(request(line, body))
    assert refused.value.status == status
    assert text in refused.value.message
    answer = refused.value.response()
    assert json.loads(answer.body) == {"error_code": status, "message": refused.value.message}


def test_a_method_that_is_not_allowed_is_told_which_are() -> None:
    with pytest.raises(Refusal) as refused:
        understand(request("DELETE /connectors"))
    assert refused.value.headers == {"Allow": "GET,POST,OPTIONS"}


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_another_media_type_is_refused_as_by_connect(media_type: str) -> None:
    with pytest.raises(Refusal) as refused:
        understand(request("PUT /connectors/a/pause", "", content_type=media_type))
    assert refused.value.status == 415


@pytest.mark.parametrize("media_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_is_taken_with_any_charset(media_type: str) -> None:
    asks = request("PUT /connectors/a/config", "{}", content_type=media_type)
    assert understand(asks) == asked(m.PutConnectorConfig("a", {}))


# -- answers --

INFO: dict[str, Any] = {"name": "a/b", "config": {}, "tasks": [], "type": "source"}

ANSWERED: list[tuple[m.Call, object, int, object]] = [
    (m.CreateConnector("a/b", {}), {**INFO, "created": True}, 201, INFO),
    (m.PutConnectorConfig("a/b", {}), {**INFO, "created": True}, 201, INFO),
    (m.PutConnectorConfig("a/b", {}), {**INFO, "created": False}, 200, INFO),
    (m.PatchConnectorConfig("a/b", {}), {**INFO, "created": False}, 200, INFO),
    (m.DeleteConnector("a"), None, 204, None),
    (m.SetTargetState("a", PAUSED), None, 202, None),
    (m.SetTargetState("a", STARTED), None, 202, None),
    (m.SetTargetState("a", STOPPED), None, 204, None),
    (m.RestartConnector("a"), None, 204, None),
    (m.RestartConnector("a", include_tasks=True), {"name": "a"}, 202, {"name": "a"}),
    (m.RestartConnector("a", only_failed=True), {"name": "a"}, 202, {"name": "a"}),
    (m.RestartTask(TaskId("a", 1)), None, 204, None),
    (m.PutTaskConfigs("a", ()), None, 204, None),
    (m.FenceConnector("a"), None, 204, None),
    (m.DescribeWorker(), {"url": "u"}, 200, {"url": "u"}),
    (m.DescribeGroup(), {"leader": "u"}, 200, {"leader": "u"}),
    (m.ListConnectors(), ["a"], 200, ["a"]),
    (m.ListConnectors(("info",)), {}, 200, {}),
    (m.DescribeConnector("a"), INFO, 200, INFO),
    (m.DescribeTasks("a"), [], 200, []),
    (m.DescribeStatus("a"), {"name": "é"}, 200, {"name": "é"}),
    (m.DescribeTaskStatus(TaskId("a", 0)), {"id": 0}, 200, {"id": 0}),
    (m.DescribeTopics("a"), {"a": {"topics": []}}, 200, {"a": {"topics": []}}),
    (m.ReadOffsets("a"), {"offsets": []}, 200, {"offsets": []}),
    (m.AlterOffsets("a", (({}, None),)), {"message": "m"}, 200, {"message": "m"}),
    (m.ResetOffsets("a"), {"message": "m"}, 200, {"message": "m"}),
    (m.ReadDeletedOffsets("a", TaskKind.SINK), {"offsets": []}, 200, {"offsets": []}),
    (m.ResetDeletedOffsets("a", TaskKind.SINK), {"message": "m"}, 200, {"message": "m"}),
    (m.ResetTopics("a"), None, 202, None),
    (m.SetLoggerLevel("a", "INFO"), None, 204, None),
]


@pytest.mark.parametrize(("call", "value", "status", "body"), ANSWERED)
def test_a_result_is_answered(call: m.Call, value: object, status: int, body: object) -> None:
    answer = respond(HerderRequest(call), m.Success(value), "http://h:1")
    assert answer.status == status
    assert (json.loads(answer.body) if answer.body else None) == body
    assert answer.headers.get("Location") == (
        "http://h:1/connectors/a%2Fb" if status == 201 else None
    )


@pytest.mark.parametrize(("call", "value", "status", "body"), ANSWERED)
def test_a_worker_that_asks_gets_the_result(
    call: m.Call, value: object, status: int, body: object
) -> None:
    assert asked_and_answered(call, m.Success(value)) == m.Success(value)


def test_the_config_alone_is_a_part_of_the_connector() -> None:
    answer = respond(
        HerderRequest(m.DescribeConnector("a"), part="config"),
        m.Success({"config": {"x": "y"}}),
        "",
    )
    assert json.loads(answer.body) == {"x": "y"}


NOT_NOW = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
AWAITED = "Request cannot be completed because a rebalance is expected"
FAILED: list[tuple[m.ErrorKind, str, int]] = [
    (m.ErrorKind.BAD_REQUEST, "bad", 400),
    (m.ErrorKind.FORBIDDEN, "Topic tracking is disabled.", 403),
    (m.ErrorKind.NOT_FOUND, "Connector a not found", 404),
    (m.ErrorKind.ALREADY_EXISTS, "Connector a already exists", 409),
    (m.ErrorKind.CONFLICT, "Fencing failed because new task configurations were generated", 409),
    (m.ErrorKind.PRECONDITION, "Connector a is not as the request expects it", 412),
    (m.ErrorKind.NOT_READY, NOT_NOW, 409),
    (m.ErrorKind.NOT_READY, AWAITED, 409),
    (m.ErrorKind.NOT_READY, "The worker is shutting down; ask another one", 503),
    (m.ErrorKind.UNREACHABLE, "The leader at http://w:1/ could not be reached: refused", 503),
    (m.ErrorKind.INTERNAL, "Failed to start task: x", 500),
    (m.ErrorKind.TIMEOUT, "Request timed out. The worker is currently restarting.", 500),
]


@pytest.mark.parametrize(("kind", "message", "status"), FAILED)
def test_a_failure_has_connects_status_and_comes_back_as_it_was(
    kind: m.ErrorKind, message: str, status: int
) -> None:
    failure = m.Failure(kind, message)
    answer = respond(HerderRequest(m.DeleteConnector("a")), failure, "")
    assert answer.status == status
    assert json.loads(answer.body) == {"error_code": status, "message": message}
    later = kind in (m.ErrorKind.CONFLICT, m.ErrorKind.NOT_READY, m.ErrorKind.UNREACHABLE)
    assert answer.headers.get("Retry-After") == ("1" if later else None)
    assert asked_and_answered(m.DeleteConnector("a"), failure) == failure


@pytest.mark.parametrize(("kind", "message", "status"), FAILED)
def test_what_java_says_is_of_the_same_kind(kind: m.ErrorKind, message: str, status: int) -> None:
    body = json.dumps({"error_code": status, "message": message}).encode()
    if kind is m.ErrorKind.UNREACHABLE:  # no kind of Java's: one to ask again
        kind = m.ErrorKind.NOT_READY
    assert result_of(m.DeleteConnector("a"), HttpResponse(status, body)) == m.Failure(kind, message)


def test_every_kind_of_failure_is_in_the_table() -> None:
    assert {kind for kind, _, _ in FAILED} == set(m.ErrorKind)


JAVA_SAYS: list[tuple[int, bytes, m.Result]] = [
    (202, b"", m.Success()),
    (204, b"", m.Success()),
    # Where Java only reads: GET of a connector, its config, its tasks.
    (
        500,
        json.dumps({"error_code": 500, "message": AWAITED}).encode(),
        m.Failure(m.ErrorKind.NOT_READY, AWAITED),
    ),
    # Jetty before Connect has started.
    (
        404,
        b"<html>...",
        m.Failure(m.ErrorKind.NOT_READY, "the worker has not completed its startup"),
    ),
    (404, b"", m.Failure(m.ErrorKind.NOT_READY, "the worker has not completed its startup")),
    (
        403,
        b'{"error_code":403,"message":"Internal request contained invalid signature."}',
        m.Failure(m.ErrorKind.NOT_READY, "Internal request contained invalid signature."),
    ),
    (  # it knows of a round since which calls are signed
        400,
        b'{"error_code":400,"message":"Internal request missing required signature"}',
        m.Failure(m.ErrorKind.NOT_READY, "Internal request missing required signature"),
    ),
    (
        200,
        b"<html>",
        m.Failure(m.ErrorKind.INTERNAL, "answered 200 with what is not JSON: b'<html>'"),
    ),
    (302, b"", m.Failure(m.ErrorKind.INTERNAL, "answered 302: b''")),
    (502, b"gateway", m.Failure(m.ErrorKind.INTERNAL, "answered 502: b'gateway'")),
    (400, b'["x"]', m.Failure(m.ErrorKind.BAD_REQUEST, "answered 400: b'[\"x\"]'")),
]


@pytest.mark.parametrize(("status", "body", "result"), JAVA_SAYS)
def test_odd_answers(status: int, body: bytes, result: m.Result) -> None:
    assert result_of(m.FenceConnector("a"), HttpResponse(status, body)) == result


def test_an_answer_without_connector_info_is_no_success() -> None:
    result = result_of(m.PutConnectorConfig("a", {}), HttpResponse(200, b"[]"))
    assert isinstance(result, m.Failure)


# -- there and back --

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
trimmed = names.filter(lambda name: name == name.strip("".join(map(chr, range(33)))))
configs = st.dictionaries(names, st.none() | names, max_size=3)
tasks = st.builds(TaskId, names, st.integers(0, 2**31 - 1))
plain = st.dictionaries(names, st.none() | st.integers() | st.booleans() | names, max_size=2)
forwarded = st.one_of(
    st.builds(m.CreateConnector, trimmed, configs, st.none() | st.sampled_from(TargetState)),
    st.builds(m.PutConnectorConfig, names, configs),
    st.builds(m.PatchConnectorConfig, names, configs),
    st.builds(m.DeleteConnector, names),
    st.builds(m.SetTargetState, names, st.just(STOPPED)),
    st.builds(m.RestartConnector, names, st.booleans(), st.booleans()),
    st.builds(m.RestartTask, tasks),
    st.builds(
        m.AlterOffsets,
        names,
        st.lists(st.tuples(plain, st.none() | plain), min_size=1, max_size=3).map(tuple),
    ),
    st.builds(m.ResetOffsets, names),
    st.builds(m.ResetDeletedOffsets, names, st.sampled_from(TaskKind)),
    st.just(m.DescribeGroup()),
)
internal = st.builds(m.FenceConnector, names) | st.builds(
    m.PutTaskConfigs,
    names,
    st.lists(configs, max_size=3).map(tuple),
    st.none() | st.just("0" * 64),
    st.none() | st.integers(0, 2**62),
)
anywhere = st.one_of(
    st.builds(m.ListConnectors, st.lists(names, max_size=2).map(tuple)),
    st.builds(m.SetTargetState, names, st.sampled_from([PAUSED, STARTED])),
    st.just(m.DescribeWorker()),
    *(
        st.builds(kind, names)
        for kind in (
            m.DescribeConnector,
            m.DescribeTasks,
            m.DescribeStatus,
            m.DescribeTopics,
            m.ReadOffsets,
            m.ResetTopics,
        )
    ),
    st.builds(m.DescribeTaskStatus, tasks),
)


@given(forwarded, st.sampled_from([1, 2]))
def test_a_call_that_is_passed_on_comes_as_it_was(call: m.Call, hops: int) -> None:
    assert understood(call, hops) == HerderRequest(call, hops)


@given(internal, st.sampled_from([1, 2]))
def test_an_internal_call_is_not_passed_on_any_more(call: m.Call, hops: int) -> None:
    assert understood(call, hops) == HerderRequest(call, 2)
    assert question(call, hops).internal


@given(anywhere)
def test_a_call_for_any_worker_comes_as_it_was(call: m.Call) -> None:
    assert understood(call, 1) == HerderRequest(call)


def test_a_logger_level_comes_as_it_was() -> None:
    assert understood(m.SetLoggerLevel("a.b/c", "iNfO"), 1) == SetWorkerLogger(
        "a.b/c", "iNfO", True
    )


@pytest.mark.parametrize("where", ["partition", "offset"])
def test_offsets_that_are_nested_too_deep_are_refused(where: str) -> None:
    """500 levels were a RecursionError, answered by 500."""

    def sent(depth: int) -> m.Call:
        value = "1"
        for _ in range(depth):
            value = f'{{"a":{value}}}'
        item = {"partition": "{}", "offset": "{}"} | {where: value}
        text = ",".join(f'"{key}":{json_text}' for key, json_text in item.items())
        body = f'{{"offsets":[{{{text}}}]}}'.encode()
        asked = understand(HttpRequest("PATCH", "/connectors/a/offsets", "", body))
        assert isinstance(asked, HerderRequest)
        return asked.call

    wire.dumps(sent(64))
    for depth in (65, 500, 900):
        with pytest.raises(Refusal, match="nested deeper than 64") as refused:
            sent(depth)
        assert refused.value.status == 400


_KEYS = st.sampled_from(
    [
        *("name", "config", "initial_state", "offsets", "partition", "offset", "level", "a"),
        *("connector.class", "kafka_topic", "kafka_partition", "kafka_offset", "\udfff"),
    ]
)
# What is in a body where Connect wants something, or is wrong there.
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(["", "a", "PAUSED", "1", "\ud800", "\x00", "name", "connector.class"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=8,
)
_LINES = st.sampled_from(
    sorted({line for line, _, _ in UNDERSTOOD} | {"PATCH /connectors/%ED%A0%80/config"})
)


_BODIES = (
    _VALUES
    | st.dictionaries(_KEYS, _VALUES, max_size=4)
    | st.fixed_dictionaries({"name": _VALUES, "config": st.dictionaries(_KEYS, _VALUES)})
    | st.lists(st.fixed_dictionaries({"partition": _VALUES, "offset": _VALUES}), max_size=3).map(
        lambda items: {"offsets": items}
    )
)


@given(_LINES, _BODIES)
def test_whatever_is_understood_is_a_call_that_can_travel(line: str, body: object) -> None:
    """Calls go to the herder as they are: nobody checks their types, or encodes them, again."""
    try:
        found = understand(request(line, json.dumps(body)))
    except Refusal:
        return
    if isinstance(found, HerderRequest):
        assert wire.loads(m.Call, wire.dumps(found.call)) == found.call


def test_a_worker_without_offsets_of_deleted_connectors_is_named() -> None:
    """Java's 404, or that of an older Headgate, is no word about the connector."""
    body = b'{"error_code":404,"message":"HTTP 404 Not Found"}'
    for call in (
        m.ReadDeletedOffsets("a", TaskKind.SINK),
        m.ResetDeletedOffsets("a", TaskKind.SOURCE),
    ):
        result = result_of(call, HttpResponse(404, body))
        assert isinstance(result, m.Failure) and result.kind is m.ErrorKind.BAD_REQUEST
        assert "knows no offsets of deleted connectors" in result.message
    ours = {"headgate-error-kind": "not found"}
    result = result_of(call, HttpResponse(404, body, ours))
    assert isinstance(result, m.Failure) and result.kind is m.ErrorKind.NOT_FOUND
