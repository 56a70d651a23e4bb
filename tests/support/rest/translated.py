"""Calls as HTTP carries them from worker to worker, and back."""

from headgate.herder import messages as m
from headgate_rest.client_calls import question, result_of
from headgate_rest.http import HttpRequest, HttpResponse
from headgate_rest.translate import HerderRequest, SideRequest, respond, understand


def understood(call: m.Call, hops: int) -> HerderRequest | SideRequest:
    """What the callee makes of the request that the caller sends."""
    asks = question(call, hops)
    path, _, query = asks.path.partition("?")
    headers = {name.lower(): text for name, text in asks.headers.items()}
    return understand(HttpRequest(asks.method, path, query, asks.body or b"", headers))


def asked_and_answered(call: m.Call, result: m.Result) -> m.Result:
    """What the caller makes of the response that the callee gives."""
    answer = respond(HerderRequest(call), result, "http://h:1")
    headers = {name.lower(): text for name, text in answer.headers.items()}
    return result_of(call, HttpResponse(answer.status, answer.body, headers))
