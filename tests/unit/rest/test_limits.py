"""Clients that send too much, too slowly, or nothing harm no other client."""

import asyncio
import json
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from support.rest.http import answer_of, asked, connected, head, is_closed, port_of
from support.rest.world import LOCAL, Keys, service, serving, wait_until

from headgate.herder.messages import Call, Result, Success
from headgate.herder.session_keys import KeyRing
from headgate.ports import IncomingCall
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest import RestService, RestSettings
from headgate_rest.heavy_thread import HeavyThread
from headgate_rest.http import HttpRequest
from headgate_rest.limits import KEYS, Limits, SeldomLog
from headgate_rest.signature import signature_headers
from headgate_rest.translate import HerderRequest, SideRequest, understand

QUICK = {"headgate.rest.read.timeout.ms": "400"}


def ok(call: Call, incoming: IncomingCall) -> Result:
    return Success({"name": "a", "config": {}, "tasks": [], "type": "source"})


@contextmanager
def limited(more: Mapping[str, str] | None = None) -> Iterator[RestService]:
    """A service that is ready, with these settings more."""
    made = service({**LOCAL, **(more or {})})
    made.start()
    made.ready()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def new_logs() -> None:
    """Reset the memory of messages that are logged seldom, as if nothing had been logged yet."""
    for name in ("connections", "http_protocol"):
        for each in logging.getLogger(f"headgate_rest.{name}").filters:
            if isinstance(each, SeldomLog):
                each._kinds.clear()


# -- settings --


def test_every_limit_is_a_setting() -> None:
    texts = {key: str(7 + n) for n, key in enumerate(KEYS.values())}
    found = RestSettings.of({**LOCAL, **texts}).limits
    assert [getattr(found, field) for field in KEYS] == [7 + n for n in range(len(KEYS))]
    assert RestSettings.of(LOCAL).limits == Limits()


@pytest.mark.parametrize("text", ["0", "-1", "many", "1_000", ""])
def test_a_limit_is_a_number_above_0(text: str) -> None:
    with pytest.raises(ValueError, match=r"headgate\.rest\.connections\.max: expected a number"):
        Limits.of({"headgate.rest.connections.max": text})


def test_connections_stay_well_below_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 4_096))
    assert Limits().connections_here() == 256
    assert Limits(connections=10).connections_here() == 10
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 4_096))
    assert Limits().connections_here() == 1_000


# -- headers --


def test_too_many_headers_are_refused_by_name() -> None:
    with limited() as made:
        fits = [f"X{n}: a" for n in range(99)]
        assert asked(made, head("GET /", *fits))[0] == 200
        status, body = asked(made, head("GET /", *fits, "Y: a"))
        assert (status, body["error_code"]) == (431, 431)
        assert "101 headers, more than 100 (headgate.rest.header.max.count)" in body["message"]


@pytest.mark.parametrize("length", [17_000, 60_000, 5_000_000])
def test_headers_that_are_too_long_are_refused_by_name(length: int) -> None:
    with limited() as made, connected(made) as raw:
        sending = threading.Thread(target=sent_as_far_as_it_goes, args=(raw, length))
        sending.start()
        status, body = answer_of(raw)
        sending.join()
    assert status == 431
    assert "longer than 16384 bytes (headgate.rest.header.max.bytes)" in body["message"]


def sent_as_far_as_it_goes(raw: socket.socket, length: int) -> None:
    with suppress(OSError):
        raw.sendall(head("GET /", "X: " + "a" * length))


def test_a_request_line_that_is_too_long_is_refused() -> None:
    with limited() as made:
        assert asked(made, head("GET /?" + "a" * 16_400))[0] == 431


def test_headers_cost_in_proportion_to_their_number() -> None:
    """Looked up one by one among all, ten times as many would cost a hundred times as much."""
    many = {
        "headgate.rest.header.max.count": "100000",
        "headgate.rest.header.max.bytes": "10000000",
    }

    def cost(made: RestService, count: int) -> float:
        text = head("GET /", *(f"X{n}: a" for n in range(count)))
        begun = time.thread_time()
        before = time.process_time()
        assert asked(made, text)[0] == 200
        return time.process_time() - before - (time.thread_time() - begun)

    with limited(many) as made:
        few = min(cost(made, 800) for _ in range(3))
        assert min(cost(made, 8_000) for _ in range(3)) < 40 * few


def test_of_two_headers_with_one_name_the_first_counts() -> None:
    with limited() as made:
        status, _ = asked(
            made,
            head("PUT /admin/loggers/x", "Content-Type: a/b", "Content-Type: application/json"),
        )
        assert status == 415


# -- time --


def test_who_says_nothing_is_hung_up_on() -> None:
    with limited(QUICK) as made, connected(made) as raw:
        assert raw.recv(1) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        head("POST /connectors", "Content-Length: 10") + b"{",
        head("POST /connectors", "Transfer-Encoding: chunked") + b"1\r\n{\r\n",
    ],
    ids=["half a line", "half a head", "half a body", "half of the chunks"],
)
@pytest.mark.parametrize("dripping", [False, True])
def test_half_a_request_is_told_and_hung_up_on(sent: bytes, dripping: bool) -> None:
    """That holds also if a byte comes now and then, since the time is for the whole request."""
    over = threading.Event()

    def drip(raw: socket.socket) -> None:
        byte = b"1" if sent.startswith(b"POST") else b"a"
        while not over.wait(0.05):
            try:
                raw.sendall(byte)
            except OSError:
                return

    with limited(QUICK) as made, connected(made) as raw, ExitStack() as stack:
        raw.sendall(sent)
        if dripping:
            thread = threading.Thread(target=drip, args=(raw,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(over.set)
        status, body = answer_of(raw)
        assert status in (400, 408) if dripping else status == 408
        if status == 408:
            assert "not complete within 400 ms (headgate.rest.read.timeout.ms)" in body["message"]
        assert is_closed(raw)
        wait_until(lambda: made._server._connections.held == 0)


def test_a_kept_connection_is_hung_up_on_in_its_turn() -> None:
    with limited(QUICK) as made, connected(made) as raw:
        for _ in range(3):
            raw.sendall(head("GET /"))
            assert answer_of(raw)[0] == 200
            time.sleep(0.2)
        assert raw.recv(1) == b""


def test_who_does_not_read_the_answer_is_hung_up_on() -> None:
    big = "x" * 30_000_000

    def answer(call: Call, incoming: IncomingCall) -> Result:
        return Success({"name": big, "config": {}, "tasks": [], "type": "source"})

    with serving(answer, {**LOCAL, **QUICK}) as made, connected(made) as raw:
        raw.sendall(head("GET /connectors/a"))
        connections = made._server._connections
        wait_until(lambda: len(connections) == 1)
        wait_until(lambda: len(connections) == 0)


def test_an_answer_that_is_late_is_waited_for() -> None:
    """The time-out is for requests that do not end; the worker has its own."""
    go = threading.Event()

    def late(call: Call, incoming: IncomingCall) -> Result:
        go.wait(30)
        return ok(call, incoming)

    with serving(late, {**LOCAL, **QUICK}) as made, connected(made) as raw:
        raw.sendall(head("GET /connectors/a"))
        time.sleep(1.5)
        go.set()
        assert answer_of(raw)[0] == 200


# -- connections --


def test_at_the_limit_the_one_that_waits_longest_makes_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with limited({"headgate.rest.connections.max": "10"}) as made, ExitStack() as stack:
        kept = stack.enter_context(connected(made))
        kept.sendall(head("GET /"))
        assert answer_of(kept)[0] == 200
        silent = [stack.enter_context(connected(made)) for _ in range(60)]
        assert asked(made, head("GET /"))[0] == 200
        assert len(made._server._connections) <= 10
        assert is_closed(silent[0])
        kept.sendall(head("GET /"))
        assert answer_of(kept)[0] == 200, "those that never asked go first"
    told = [r.getMessage() for r in caplog.records if "connections, its limit" in r.getMessage()]
    assert len(told) == 1
    assert "has 10 connections, its limit (headgate.rest.connections.max" in told[0]


def test_connections_whose_requests_are_answered_are_not_closed_for_others() -> None:
    go = threading.Event()

    def late(call: Call, incoming: IncomingCall) -> Result:
        go.wait(30)
        return ok(call, incoming)

    settings = {**LOCAL, "headgate.rest.connections.max": "3"}
    with serving(late, settings) as made, ExitStack() as stack:
        busy = [stack.enter_context(connected(made)) for _ in range(3)]
        for raw in busy:
            raw.sendall(head("GET /connectors/a"))
        connections = made._server._connections
        wait_until(lambda: len(connections) == 3 and not connections._new)
        with connected(made) as refused:
            assert refused.recv(1) == b""
        go.set()
        assert [answer_of(raw)[0] for raw in busy] == [200] * 3


def test_out_of_descriptors_is_told_once_and_passes(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio would say it for each try, some hundred times a second and more each time."""
    with limited() as made, ExitStack() as stack:
        assert asked(made, head("GET /"))[0] == 200
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        clients = [stack.enter_context(socket.socket()) for _ in range(20)]
        lowest = min(fd for fd in range(3, 4_096) if not is_open(fd))
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            for client in clients:
                client.settimeout(10)
                client.connect(("127.0.0.1", port_of(made)))
            assert all(is_closed(client) for client in clients)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        wait_until(lambda: answers(made))
    told = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 1, told
    assert "out of file descriptors (Too many open files)" in told[0]


def answers(made: RestService) -> bool:
    try:
        return asked(made, head("GET /"))[0] == 200
    except ConnectionError:
        return False


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_clients_that_speak_no_http_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with limited() as made:
        for _ in range(50):
            status, body = asked(made, b"\x16\x03\x01\r\n\r\n")
            assert (status, body["error_code"]) == (400, 400)
    assert len([r for r in caplog.records if "Invalid HTTP request" in r.msg]) == 1


def test_a_log_that_was_silent_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seldom, passed = SeldomLog(), list[str]()
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for now in (100.0, 101.0, 102.0, 161.0, 162.0):  # noqa: B007
        record = logging.LogRecord("x", logging.WARNING, "", 1, "seen %d", (7,), None)
        if seldom.filter(record):
            passed.append(record.getMessage())
    assert passed == ["seen 7", "seen 7 (2 more since it was last said)"]


# -- bodies --


def test_a_body_that_announces_too_much_is_refused_at_once() -> None:
    with limited() as made:
        lines = ("Content-Length: 500000000", "Expect: 100-continue")
        status, body = asked(made, head("POST /connectors", *lines))
        assert status == 413
        assert "has 500000000 bytes; at most 1048576 are read" in body["message"]
        assert "headgate.rest.body.max.bytes" in body["message"]


def test_a_client_that_sends_all_of_it_reads_why() -> None:
    with limited() as made:
        body = b"x" * 20_000_000
        lines = head("POST /connectors", f"Content-Length: {len(body)}")
        assert asked(made, lines, body)[0] == 413
        assert made._server._connections.held == 0


def test_who_goes_on_sending_what_was_refused_is_hung_up_on() -> None:
    with limited() as made, connected(made) as raw:
        raw.sendall(head("POST /connectors", "Content-Length: 500000000"))
        assert answer_of(raw)[0] == 413
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < begun + 20:
                raw.sendall(b"x" * 1_000)
                time.sleep(0.01)


def test_chunks_of_a_byte_are_refused() -> None:
    with limited() as made:
        lines = head("PUT /admin/loggers/x", "Transfer-Encoding: chunked")
        status, body = asked(made, lines, b"1\r\n \r\n" * 4_000)
        assert (status, body["message"]) == (
            400,
            "The chunks of the body are too small; send larger ones",
        )
        few = b"".join(b"1\r\n%c\r\n" % each for each in b'{"level": "debug"}')
        assert asked(made, lines, few + b"0\r\n\r\n")[0] == 200


def test_chunks_are_cut_at_the_limit() -> None:
    with limited({"headgate.rest.body.max.bytes": "1000"}) as made:
        lines = head("PUT /admin/loggers/x", "Transfer-Encoding: chunked")
        text = b'{"level": "debug"}'.ljust(1_000)
        fits = b"".join(b"64\r\n" + text[n : n + 100] + b"\r\n" for n in range(0, 1_000, 100))
        assert asked(made, lines, fits + b"0\r\n\r\n")[0] == 200
        status, body = asked(made, lines, fits + b"1\r\n \r\n")
        assert status == 413
        assert "has more; at most 1000 are read" in body["message"]


def test_bodies_that_do_not_end_make_room_for_those_that_do() -> None:
    settings = {**LOCAL, "headgate.rest.bodies.max.bytes": "3000000"}
    with serving(ok, settings) as made, ExitStack() as stack:
        unfinished = [stack.enter_context(connected(made)) for _ in range(8)]
        for raw in unfinished:
            raw.sendall(
                head("PUT /connectors/a/config", "Content-Length: 1000000") + b" " * 999_999
            )
        wait_until(lambda: made._server._connections.held >= 2_000_000)
        body = json.dumps({"a": "b" * 900_000}).encode()
        lines = head("PUT /connectors/a/config", f"Content-Length: {len(body)}")
        assert asked(made, lines, body)[0] in (200, 201)
        assert made._server._connections.held <= 3_000_000
        assert is_closed(unfinished[0])


def test_a_body_for_which_there_is_no_room_is_refused() -> None:
    with serving(ok, {**LOCAL, "headgate.rest.bodies.max.bytes": "1000"}) as made:
        status, body = asked(
            made, head("PUT /connectors/a/config", "Content-Length: 2000"), b" " * 2_000
        )
        assert status == 503
        assert "as many bytes of bodies as it may" in body["message"]


def test_a_thousand_of_the_smallest_chunks_do_not_hold_up_a_short_request() -> None:
    """Small chunks cost more to read than to send."""
    with limited() as made, ExitStack() as stack:
        lines = head("PUT /admin/loggers/x", "Transfer-Encoding: chunked")
        for _ in range(20):
            raw = stack.enter_context(connected(made))
            raw.sendall(lines)
            raw.setblocking(False)
            for _ in range(20):
                try:
                    raw.send(b"1\r\n \r\n" * 10_000)
                except BlockingIOError:
                    break
        begun = time.monotonic()
        assert asked(made, head("GET /"))[0] == 200
        assert time.monotonic() - begun < 1.0


def test_large_json_is_read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def understood(request: HttpRequest) -> HerderRequest | SideRequest:
        names.append(threading.current_thread().name)
        return understand(request)

    monkeypatch.setattr("headgate_rest.translate.understand", understood)
    with serving(ok) as made:
        for length in (10, 100_000):
            body = json.dumps({"a": "b" * length}).encode()
            lines = head("PUT /connectors/a/config", f"Content-Length: {len(body)}")
            assert asked(made, lines, body)[0] in (200, 201)
    assert names == ["rest", "rest-json_0"]


def test_the_thread_for_large_json_rests_longer_than_it_works() -> None:
    heavy = HeavyThread()

    async def thrice() -> None:
        for _ in range(3):
            await heavy.run(lambda: time.sleep(0.1))

    begun = time.monotonic()
    asyncio.run(thrice())
    assert time.monotonic() - begun >= 0.3 + 2 * 0.3
    heavy.close()


# -- task configs of other workers --


SECRET = b"s" * 32


@pytest.fixture
def signing() -> Iterator[Callable[..., RestService]]:
    """Makes a service of a group that signs or does not."""
    with ExitStack() as stack:

        def make(sessioned: bool) -> RestService:
            key = SessionKeyChanged(0, SECRET, "HmacSHA256", 1)
            keys = Keys(key, sessioned=sessioned)
            return stack.enter_context(serving(ok, LOCAL, keys))

        yield make


def test_signed_task_configs_may_be_longer_than_one_record(
    signing: Callable[..., RestService], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = signing(sessioned=True)
    body = json.dumps([{"a": "b" * 1_000}] * 2_000).encode()
    key = SessionKeyChanged(0, SECRET, "HmacSHA256", 1)
    signed = signature_headers(key, body, "HmacSHA256")
    lines = [f"{name}: {text}" for name, text in signed.items()]
    length = f"Content-Length: {len(body)}"
    assert asked(made, head("POST /connectors/a/tasks", length, *lines), body)[0] == 204
    assert KeyRing(key).current is key
    # Without a signature they are not even read as JSON.
    monkeypatch.setattr("headgate_rest.translate.understand", lambda _: 1 / 0)
    assert asked(made, head("POST /connectors/a/tasks", length), body)[0] == 400


def test_without_signatures_task_configs_are_bodies_like_others(
    signing: Callable[..., RestService],
) -> None:
    made = signing(sessioned=False)
    length = "Content-Length: 2000000"
    assert asked(made, head("POST /connectors/a/tasks", length))[0] == 413


def test_a_body_of_many_values_is_not_read() -> None:
    """Read, a MiB of lists takes fifty times that, and keeps the interpreter for seconds."""

    def put(made: RestService, body: bytes) -> tuple[int, Any]:
        head_bytes = head("PUT /connectors/a/config", f"Content-Length: {len(body)}")
        return asked(made, head_bytes, body)

    with serving(ok) as made:
        for body in (b"[" + b"[]," * 60_000 + b"0]", b"[" + b"0," * 60_000 + b"0]"):
            status, told = put(made, body)
            assert (status, told["error_code"]) == (413, 413)
            assert "at most 50000 are read (headgate.rest.body.max.values)" in told["message"]
        assert put(made, b'{"a": "' + b"[,{" * 60_000 + b'"}')[0] == 200
        assert put(made, b"{" + b",".join(b'"%d":1' % n for n in range(49_000)) + b"}")[0] == 200
    with limited({"headgate.rest.body.max.values": "3"}) as made:
        assert put(made, b'{"a":1,"b":2,"c":3,"d":4}')[0] == 413
