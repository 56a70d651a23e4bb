"""Conditional changes by HTTP: `If-Match`, etags, and how workers pass them on."""

from dataclasses import replace

import pytest
from support.rest.translated import asked_and_answered, understood

from headgate.herder import messages as m
from headgate.ids import TargetState
from headgate_rest.client_calls import question, result_of
from headgate_rest.http import HttpRequest, HttpResponse, Refusal
from headgate_rest.translate import HerderRequest, understand

CONDITIONAL: list[m.Call] = [
    m.PutConnectorConfig("a/b", {"k": "v"}, 17),
    m.PatchConnectorConfig("a", {"k": None}, 17),
    m.DeleteConnector("a", 17),
    *(m.SetTargetState("a", state, 17) for state in TargetState),
    m.ResetOffsets("a", 17),
    m.AlterOffsets("a", (({"p": 1}, None),), 17),
]


@pytest.mark.parametrize("call", CONDITIONAL, ids=str)
@pytest.mark.parametrize("hops", [1, 2])
def test_a_change_with_an_etag_is_passed_on_by_a_path_of_its_own(call: m.Call, hops: int) -> None:
    assert question(call, hops).path.startswith("/headgate/if-match/17/connectors/a")
    assert understood(call, hops) == HerderRequest(call, hops)


@pytest.mark.parametrize("call", CONDITIONAL, ids=str)
def test_who_does_not_know_that_path_has_changed_nothing(call: m.Call) -> None:
    body = b'{"error_code": 404, "message": "HTTP 404 Not Found"}'
    found = result_of(call, HttpResponse(404, body))
    assert isinstance(found, m.Failure) and found.kind is m.ErrorKind.BAD_REQUEST
    assert "knows no etags" in found.message
    named = HttpResponse(404, body, {"headgate-error-kind": "not found"})
    found = result_of(call, named)
    assert isinstance(found, m.Failure) and found.kind is m.ErrorKind.NOT_FOUND


@pytest.mark.parametrize("call", [m.ResetOffsets("a"), m.AlterOffsets("a", (({"p": 1}, None),))])
def test_a_dry_run_is_never_asked_by_a_request_that_would_carry_it_out(
    call: m.ResetOffsets | m.AlterOffsets,
) -> None:
    """REST has no dry runs: the worker that is asked answers them itself."""
    assert question(call, 1).method
    with pytest.raises(ValueError, match="would be carried out"):
        question(replace(call, dry_run=True), 1)


@pytest.mark.parametrize(
    "path",
    ["/headgate/if-match/17/admin/loggers/a", "/headgate/if-match/17", "/headgate/if-match/"],
)
def test_nothing_but_connectors_is_behind_that_path(path: str) -> None:
    with pytest.raises(Refusal) as refused:
        understand(HttpRequest("PUT", path, body=b'{"level": "DEBUG"}'))
    assert refused.value.status == 404


@pytest.mark.parametrize(
    "text",
    ["17", '"x"', 'W/"17"', '"1", "2"', "*", '"-1"', '"\u0661"', "", f'"{2**63}"', f'"{"1" * 20}"'],
)
def test_an_if_match_that_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        understand(HttpRequest("DELETE", "/connectors/a", headers={"if-match": text}))
    assert refused.value.status == 400


def test_an_if_match_may_be_any_offset_of_64_bits() -> None:
    etag = f'"{2**63 - 1}"'
    found = understand(HttpRequest("DELETE", "/connectors/a", headers={"if-match": etag}))
    assert isinstance(found, HerderRequest)
    assert found.call == m.DeleteConnector("a", 2**63 - 1)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/connectors", b'{"name": "a", "config": {}}'),
        ("POST", "/connectors/a/restart", b""),
        ("PUT", "/connectors/a/topics/reset", b""),
        ("PUT", "/admin/loggers/a", b'{"level": "DEBUG"}'),
    ],
)
def test_a_condition_that_nobody_would_look_at_is_refused(
    method: str, path: str, body: bytes
) -> None:
    with pytest.raises(Refusal, match="has no If-Match"):
        understand(HttpRequest(method, path, body=body, headers={"if-match": '"17"'}))


@pytest.mark.parametrize("offset", [None, 18])
@pytest.mark.parametrize("etag", [None, 17])
def test_offset_and_etag_of_an_answer_go_with_it(etag: int | None, offset: int | None) -> None:
    told = m.Success(None, offset, etag)
    found = asked_and_answered(m.SetTargetState("a", TargetState.STOPPED), told)
    assert isinstance(found, m.Success)
    assert (found.config_offset, found.etag) == (offset, etag)
