"""Headers of answers, including those of `response.http.headers.config`, and whole answers."""

import time
from collections.abc import Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import TypeAlias

from headgate_rest.http import HttpResponse
from headgate_rest.settings import HeaderRule

Headers: TypeAlias = list[tuple[bytes, bytes | int]]
"""Names and values. A number is a date, in milliseconds after the answer is sent."""


def answer_headers(answer: HttpResponse, rules: Sequence[HeaderRule]) -> Headers:
    """Return the headers of an answer, except those that the server adds to every answer."""
    headers: Headers = [
        (name.encode("latin-1"), text.encode("latin-1")) for name, text in answer.headers.items()
    ]
    if answer.body and "Content-Type" not in answer.headers:
        headers.append((b"content-type", b"application/json"))
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    for rule in rules:
        _apply(rule, headers)
    return headers


def dated(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers as they are sent now, with numbers as dates."""
    return [(name, value if isinstance(value, bytes) else _date(value)) for name, value in headers]


def status_line(status: int) -> str:
    """Return a status code and its phrase."""
    return f"{status} {HTTPStatus(status).phrase}"


def last_answer(answer: HttpResponse) -> bytes:
    """Return all bytes of an answer after which the connection is closed."""
    lines = [
        f"HTTP/1.1 {status_line(answer.status)}",
        *(f"{name}: {text}" for name, text in answer.headers.items()),
        "content-type: application/json",
        f"content-length: {len(answer.body)}",
        "connection: close",
        "",
        "",
    ]
    return "\r\n".join(lines).encode() + answer.body


def _apply(rule: HeaderRule, headers: Headers) -> None:
    """Apply a rule to headers. Source: Jetty's HeaderFilter."""
    name = rule.name.encode("latin-1")
    if rule.action.startswith("set"):
        headers[:] = [each for each in headers if each[0].lower() != name.lower()]
    is_date = rule.action.endswith("Date")
    headers.append((name, int(rule.value) if is_date else rule.value.encode("latin-1")))


def _date(milliseconds: int) -> bytes:
    return formatdate(time.time() + milliseconds / 1000, usegmt=True).encode("latin-1")
