"""A REST service, and requests to it from a client and from another worker."""

import json
from collections.abc import Mapping
from typing import Any

import httpx

from headgate.herder.messages import (
    Call,
    Result,
    Success,
)
from headgate.ports import IncomingCall
from headgate_rest import RestService

INFO = {"name": "a", "config": {}, "tasks": [], "type": "source"}


def ok(call: Call, incoming: IncomingCall) -> Result:
    return Success(INFO)


def never(call: Call, incoming: IncomingCall) -> None:
    return None


def ask(
    made: RestService, line: str, body: object = None, **headers: str
) -> tuple[int, Any, Mapping[str, str]]:
    method, path = line.split(" ", 1)
    answer = httpx.request(
        method,
        made.url.rstrip("/") + path,
        content=None if body is None else json.dumps(body),
        headers={name.replace("_", "-"): text for name, text in headers.items()},
        trust_env=False,
    )
    is_json = answer.headers.get("content-type") == "application/json"
    return answer.status_code, answer.json() if is_json else None, answer.headers


def called(
    made: RestService, call: Call, timeout_ms: int = 5_000, url: str | None = None
) -> Result:
    return made.call(made.url if url is None else url, call, 1, timeout_ms)
