"""The worker refuses requests that a proxy in front of it may read in another way."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import h11
import pytest
from support.rest.asking import INFO
from support.rest.world import LOCAL, serving

from headgate.herder.messages import Call, Result, Success
from headgate.ports import IncomingCall
from headgate_rest import RestService
from headgate_rest.strict import StrictConnection

CHUNKED = b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n"


@pytest.fixture
def made() -> Iterator[tuple[RestService, list[Call]]]:
    """A service and the calls that came to its worker."""
    calls: list[Call] = []

    def answer(call: Call, _: IncomingCall) -> Result:
        calls.append(call)
        return Success({**INFO, "created": True})

    with serving(answer, {**LOCAL, "rest.advertised.host.name": "worker-1"}) as service:
        yield service, calls


class OneReader:
    """A socket whose answers are read from one buffer: `HTTPResponse` closes its own."""

    def __init__(self, raw: socket.socket) -> None:
        self._reader = raw.makefile("rb")
        self._reader.close = lambda: None  # type: ignore[method-assign]

    def makefile(self, _mode: str) -> Any:
        return self._reader


def sent(
    service: RestService, request: bytes, count: int = 0
) -> list[tuple[int, Any, dict[str, str]]]:
    """Status, body and headers of `count` answers to these bytes; 0: of all until the server
    closes the connection."""
    port = int(service.worker_id.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        raw.settimeout(10)
        raw.sendall(request)
        reader: Any = OneReader(raw)
        found: list[tuple[int, Any, dict[str, str]]] = []
        while not count or len(found) < count:
            answer = http.client.HTTPResponse(reader)
            try:
                answer.begin()
            except (http.client.BadStatusLine, ConnectionError):
                return found
            text = answer.read()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            found.append((answer.status, json.loads(text) if text else None, headers))
        return found


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        pytest.param(
            b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n" + CHUNKED + b"\r\n"
            b"0\r\n\r\nDELETE /connectors/a HTTP/1.1\r\nHost: x\r\n\r\n",
            "both Content-Length and Transfer-Encoding",
            id="two lengths",
        ),
        pytest.param(
            b"DELETE /connectors/a HTTP/1.1\nHost: x\r\n\r\n", "ends with LF", id="bare LF, first"
        ),
        pytest.param(
            b"DELETE /connectors/a HTTP/1.1\r\nHost: x\nX-A: b\r\n\r\n", "ends with LF", id="inside"
        ),
        pytest.param(
            b"DELETE /connectors/a HTTP/1.1\r\nHost: x\r\n\n", "ends with LF", id="bare LF, last"
        ),
        pytest.param(
            b"DELETE /connectors/a HTTP/1.1\r\nHost: x\r\nX-A: b\r\n c\r\n\r\n",
            "each header in one line",
            id="folded",
        ),
        pytest.param(
            b"DELETE /connectors/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n",
            "each header in one line",
            id="folded by a tab",
        ),
        *(
            pytest.param(
                b"POST /connectors HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n\r\n{}{}{}{}",
                reason,
                id=repr(lengths),
            )
            for lengths, reason in (
                (b"Content-Length: 2\r\nContent-Length: 2", "several Content-Length"),
                (b"Content-Length: 2\r\ncontent-length: 8", "several Content-Length"),
                (b"Content-Length: 2, 2", "several Content-Length"),
                (b"Content-Length: +2", "bad Content-Length"),
                (b"Content-Length: -2", "bad Content-Length"),
                (b"Content-Length: 0x2", "bad Content-Length"),
                (b"Content-Length: 1_0", "bad Content-Length"),
                (b"Content-Length: \xb2", "bad Content-Length"),
                (b"Content-Length : 2", "illegal header line"),
                (b"Content-Length: 2\x00", "control character 0x00"),
                (b"X-A: a\rContent-Length: 2", "control character 0x0d"),
                (b"Transfer-Encoding: \x0bchunked", "control character 0x0b"),
                (b"Transfer-Encoding : chunked", "illegal header line"),
                (b"Host: y", "multiple Host"),
            )
        ),
        pytest.param(
            b"POST /connectors HTTP/1.0\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
            "HTTP/1.0 has no Transfer-Encoding",
            id="chunks of 1.0",
        ),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(
    made: tuple[RestService, list[Call]], request_bytes: bytes, reason: str
) -> None:
    service, calls = made
    ((status, body, headers),) = sent(service, request_bytes)
    assert (status, body["error_code"]) == (400, 400)
    assert reason in body["message"]
    assert headers["connection"] == "close"
    assert calls == []


def test_a_request_is_not_hidden_in_trailers(made: tuple[RestService, list[Call]]) -> None:
    """h11 ends them at a bare LF, a proxy does not."""
    service, calls = made
    hidden = b"DELETE /connectors/a HTTP/1.1\r\nHost: x\r\n\r\n"
    first = b"PUT /connectors/b/config HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n"
    answers = sent(service, first + b"2\r\n{}\r\n0\r\nX: a\n\n" + hidden)
    assert [status for status, _, _ in answers] == [400]
    assert "trailers" in answers[0][1]["message"]
    assert calls == []


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /connectors HTTP/2.0\r\n", 505),
        (b"GET /connectors HTTP/0.9\r\n", 505),
        (b"POST /connectors HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n", 501),
        (b"POST /connectors HTTP/1.1\r\n" + CHUNKED + CHUNKED, 501),
    ],
)
def test_what_is_not_spoken_here_is_refused(
    made: tuple[RestService, list[Call]], head: bytes, status: int
) -> None:
    service, calls = made
    ((found, body, _),) = sent(service, head + b"Host: x\r\n\r\n0\r\n\r\n")
    assert (found, body["error_code"]) == (status, status)
    assert calls == []


@pytest.mark.parametrize(
    "line",
    [b"", b"0x2", b"+2", b"-2", b"2_", b" 2", b"2 ", b"2\t", b"2,2", b"2;a\rb", b"2;\x00", b"g"],
)
def test_a_chunk_behind_an_odd_line_is_refused(
    made: tuple[RestService, list[Call]], line: bytes
) -> None:
    """Proxies read such lines each in its own way."""
    service, calls = made
    first = b"PUT /connectors/b/config HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n"
    ((status, body, _),) = sent(service, first + line + b"\r\n{}\r\n0\r\n\r\n")
    assert status == 400
    assert "chunk" in body["message"]
    assert calls == []


def test_chunks_are_read_alike_wherever_their_packets_end() -> None:
    asked = b"PUT /a HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n"
    body = b'002;a="b c"\r\n{"\r\n01;x\r\n"\r\n1\r\n}\r\n0\r\n\r\n'
    for size in range(1, len(asked + body)):
        connection, read, found = StrictConnection(h11.SERVER), b"", []
        data = asked + body + asked
        for begin in range(0, len(data), size):
            connection.receive_data(data[begin : begin + size])
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                found.append(type(event))
                read += event.data if isinstance(event, h11.Data) else b""
        assert (size, read) == (size, b'{""}')
        assert (found[0], found[-1]) == (h11.Request, h11.EndOfMessage)
        assert connection.trailing_data[0] == asked


def test_heads_are_looked_at_behind_other_requests_too(
    made: tuple[RestService, list[Call]],
) -> None:
    """Two requests in one packet: the second is read when the first is answered."""
    service, calls = made
    good, bad = (
        b"GET /connectors/a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /x HTTP/1.1\nHost: x\r\n\r\n",
    )
    answers = sent(service, good + good + bad, 3)
    assert [status for status, _, _ in answers] == [200, 200, 400]
    assert len(calls) == 2


def test_chunked_bodies_in_their_plain_form_are_taken(
    made: tuple[RestService, list[Call]],
) -> None:
    service, calls = made
    first = b"PUT /connectors/b/config HTTP/1.1\r\nHost: x\r\n" + CHUNKED + b"\r\n"
    assert [answer[0] for answer in sent(service, first + b"2\r\n{}\r\n0\r\n\r\n", 1)] == [201]
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("target", "host", "location"),
    [
        ("/connectors", "localhost:9000", "http://localhost:9000/connectors/b"),
        ("/connectors", "127.0.0.1:9000", "http://127.0.0.1:9000/connectors/b"),
        ("/connectors", "WORKER-1:9000", "http://WORKER-1:9000/connectors/b"),
        ("/connectors", "evil.example", "/connectors/b"),
        ("/connectors", "localhost@evil.example", "/connectors/b"),
        ("/connectors", "localhost:9000/evil", "/connectors/b"),
        ("/connectors", "", "/connectors/b"),
        # RFC 9112, 3.2.2: the target says which host is meant.
        ("http://localhost:1/connectors", "evil.example", "http://localhost:1/connectors/b"),
        ("HTTP://evil.example/connectors", "localhost", "/connectors/b"),
        ("http://localhost/connectors?forward=true", "x", "http://localhost/connectors/b"),
    ],
)
def test_the_location_names_no_host_that_is_not_ours(
    made: tuple[RestService, list[Call]], target: str, host: str, location: str
) -> None:
    """The client's Host would send others there, by way of a cache."""
    service, _ = made
    body = json.dumps({"name": "b", "config": {"connector.class": "c"}}).encode()
    head = f"POST {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
    ((status, _, headers),) = sent(service, head.encode() + body, 1)
    assert (status, headers["location"]) == (201, location)


def test_a_target_in_absolute_form_is_its_path(made: tuple[RestService, list[Call]]) -> None:
    service, _ = made
    for target, status in (
        ("http://any.example/connectors/a", 200),
        ("http://any.example", 200),
        ("http://any.example/nope", 404),
        ("ftp://any.example/connectors/a", 404),
    ):
        ((found, _, _),) = sent(service, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), 1)
        assert (target, found) == (target, status)
