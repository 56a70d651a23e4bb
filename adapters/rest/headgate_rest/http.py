"""HTTP requests and answers as plain data, and a reader of JSON bodies that follows Connect.

Differs: if a body cannot be used, Connect answers 500. Here the answer is 400 and says what was
expected.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import parse_qsl, unquote

from headgate_rest.patient_json import has_many_values, load_patiently

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_WEIGHT: Final = re.compile(r"q\s*=\s*0(\.0*)?")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    """The path as it was sent, percent-encoded."""
    query: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    """Headers by name in lower case."""
    client: str = ""
    """Address of the client's socket. Behind a proxy it is the proxy's."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    body: bytes = b""
    """JSON, the text of metrics, or nothing."""
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)


def takes_gzip(request: HttpRequest) -> bool:
    """Return whether the request's Accept-Encoding allows gzip (RFC 9110, 12.5.3)."""
    weights: dict[str, bool] = {}
    for each in request.headers.get("accept-encoding", "").lower().split(","):
        name, *parameters = (part.strip() for part in each.split(";"))
        weights[name] = not any(_NO_WEIGHT.fullmatch(part) for part in parameters)
    return weights.get("gzip", weights.get("*", False))


class Refusal(Exception):
    """A request is answered with an error, without calling the worker."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] = NO_HEADERS) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers

    def response(self) -> HttpResponse:
        return error_response(self.status, self.message, self.headers)


PIECE: Final = 100
"""Number of list members that are written at once. Python lets no other thread run meanwhile, and a
report on thousands of keys takes a second on a busy machine."""


def json_bytes(value: object) -> bytes:
    """Return `value` as JSON without whitespace, as in Connect. A lone surrogate becomes "?", as in
    Java."""
    return "".join(_pieces(value)).encode(errors="replace")


def _pieces(value: object) -> Iterator[str]:
    """Yield the JSON text of `value`. A long list, which may also be a member of `value`, comes in
    several parts."""
    if isinstance(value, list) and len(items := cast(list[object], value)) > PIECE:
        for begin in range(0, len(items), PIECE):
            yield "[" if begin == 0 else ","
            yield _dumped(items[begin : begin + PIECE])[1:-1]
        yield "]"
    elif isinstance(value, dict) and any(
        isinstance(each, list) and len(cast(list[object], each)) > PIECE
        for each in cast(dict[object, object], value).values()
    ):
        for n, (name, each) in enumerate(cast(dict[str, object], value).items()):
            yield "{" if n == 0 else ","
            yield _dumped({name: 0})[1:-2]
            yield from _pieces(each)
        yield "}"
    else:
        yield _dumped(value)


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def json_response(
    status: int, value: object, headers: Mapping[str, str] = NO_HEADERS
) -> HttpResponse:
    return HttpResponse(status, json_bytes(value), headers)


def error_response(
    status: int, message: str, headers: Mapping[str, str] = NO_HEADERS
) -> HttpResponse:
    """Return an error answer, with Connect's ErrorMessage as its body."""
    return json_response(status, {"error_code": status, "message": message}, headers)


# -- paths and queries --


def path_segments(path: str) -> tuple[str, ...]:
    """Return the decoded segments of an encoded path. A slash within a segment is written ``%2F``.
    A slash at the end is ignored.

    Raises:
        Refusal: the decoded path is not UTF-8.
    """
    try:
        parts = [unquote(part, errors="strict") for part in path.split("/")[1:]]
    except UnicodeDecodeError:
        raise Refusal(400, f"The path {path} is not UTF-8, percent-encoded") from None
    if parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def query_values(query: str, name: str) -> tuple[str, ...]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise Refusal(400, f"The query {query} is not UTF-8, percent-encoded") from None
    return tuple(value for key, value in pairs if key == name)


def query_flag(query: str, name: str) -> bool | None:
    """Return a flag of the query. As with Java's Boolean, any value but "true" is False. None: the
    flag is not given."""
    values = query_values(query, name)
    return values[0].lower() == "true" if values else None


# -- bodies --


_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape that may be half of a surrogate pair."""


class Number(str):
    """A number in a config, as it was written. Connect takes it as text."""

    __slots__ = ()


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large a number")
    return value


def read_json(body: bytes, expected: str) -> Any:
    """Return the body as plain data.

    Args:
        expected: what the body should have been, for error messages.

    Raises:
        Refusal: 400, the body is not JSON, or is null or empty.
    """
    return _read(body, expected, None, _float)


def read_text_map(body: bytes, expected: str) -> dict[str, str | None]:
    """Return a body that is an object of texts. As in Connect, numbers and booleans become texts as
    they were written.

    Raises:
        Refusal: 400, the body is no such object.
    """
    raw = _read(body, expected, Number, Number)
    return text_map(raw, "the body", expected)


def read_texts(body: bytes, expected: str) -> Any:
    """Return the body as plain data, with numbers as `Number`, for `text_map`."""
    return _read(body, expected, Number, Number)


def _read(
    body: bytes,
    expected: str,
    parse_int: Callable[[str], Any] | None,
    parse_float: Callable[[str], Any],
) -> Any:
    if not body.strip():
        raise Refusal(400, f"The request has no body; expected {expected}")
    try:
        load = load_patiently if has_many_values(body) else json.loads
        value = load(body, parse_int=parse_int, parse_float=parse_float, parse_constant=_constant)
        if _SURROGATE.search(body):
            json_text = json.dumps(value, ensure_ascii=False)
            json_text.encode()  # raises for lone surrogates, which cannot be stored
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "too deeply nested"
        raise Refusal(400, f"The body is not JSON: {reason}; expected {expected}") from None
    if value is None:
        raise Refusal(400, f"The body is null; expected {expected}")
    return value


def text_map(raw: Any, where: str, expected: str) -> dict[str, str | None]:
    if not isinstance(raw, dict):
        raise Refusal(400, f"{where} is {kind_of(raw)}; expected {expected}")
    found = cast(dict[str, Any], raw)
    return {key: text_or_null(value, f'"{key}" in {where}') for key, value in found.items()}


def text_or_null(raw: Any, where: str) -> str | None:
    if raw is None:
        return None
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str):
        return str(raw)
    raise Refusal(400, f"{where} is {kind_of(raw)}; expected text")


def check_fields(raw: Any, known: tuple[str, ...], where: str, expected: str) -> dict[str, Any]:
    """Return `raw`, after checking that it is an object with no other fields than `known`.

    Raises:
        Refusal: 400, it is not.
    """
    if not isinstance(raw, dict):
        raise Refusal(400, f"{where} is {kind_of(raw)}; expected {expected}")
    found = cast(dict[str, Any], raw)
    for name in found:
        if name not in known:
            names = ", ".join(f'"{each}"' for each in known)
            raise Refusal(400, f'Unrecognized field "{name}" in {where}; known are {names}')
    return found


def kind_of(raw: Any) -> str:
    if raw is None:
        return "null"
    if isinstance(raw, bool):
        return "a boolean"
    if isinstance(raw, int | float | Number):
        return "a number"
    if isinstance(raw, str):
        return "text"
    return "a list" if isinstance(raw, list) else "an object"
