"""Calls and results, translated to HTTP and back as between two workers."""

from headgate.herder import messages as m
from headgate_rest.client_calls import question, result_of
from headgate_rest.http import HttpRequest, HttpResponse
from headgate_rest.translate import HerderRequest, SideRequest, respond, understand


def understood(call: m.Call, hops: int) -> HerderRequest | SideRequest:
    """Return what the callee understands of the request that the caller sends."""
    asks = question(call, hops)
    path, _, query = asks.path.partition("?")
    headers = {name.lower(): text for name, text in asks.headers.items()}
    return understand(HttpRequest(asks.method, path, query, asks.body or b"", headers))


def asked_and_answered(call: m.Call, result: m.Result) -> m.Result:
    """Return the result that the caller reads from the response that the callee sends."""
    answer = respond(HerderRequest(call), result, "http://h:1")
    headers = {name.lower(): text for name, text in answer.headers.items()}
    return result_of(call, HttpResponse(answer.status, answer.body, headers))
