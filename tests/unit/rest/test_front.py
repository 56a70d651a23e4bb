"""The process that accepts connections answers `/health` while its worker is busy. Everything else
it passes to the worker as the client sent it."""

import asyncio
import logging
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest
from support.rest.http import answer_of, connected, head, is_closed
from support.rest.world import LOCAL, service, serving, wait_until

from headgate.herder.messages import Call, Result, Success
from headgate.ports import IncomingCall
from headgate_rest import RestService
from headgate_rest.front import Front, Health
from headgate_rest.front_process import HEALTH, OTHER, PARTIAL, date, kind_of
from headgate_rest.limits import SeldomLog
from headgate_rest.settings import FRONT_PROCESS

FRONT = {**LOCAL, FRONT_PROCESS: "true"}
QUICK = {**FRONT, "headgate.rest.read.timeout.ms": "400"}
TESTS = Path(__file__).resolve().parents[2]
ASKED = head("GET /health")
DATE = re.compile(rb"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT")


def ok(call: Call, incoming: IncomingCall) -> Result:
    return Success({"name": "a", "config": {}, "tasks": [], "type": "source"})


@pytest.fixture
def made() -> Iterator[RestService]:
    with serving(ok, FRONT) as service_:
        yield service_


def front_of(made: RestService) -> Front:
    front = made._server._front
    assert front is not None
    return front


@contextmanager
def busy_loop(made: RestService) -> Iterator[None]:
    """The server's loop does nothing else until the end."""
    over, begun = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        over.wait(60)

    loop = loop_of(made)
    loop.call_soon_threadsafe(hold)
    begun.wait()
    try:
        yield
    finally:
        over.set()


def loop_of(made: RestService) -> asyncio.AbstractEventLoop:
    loop = made._server._servers[0].servers[0].get_loop()
    assert isinstance(loop, asyncio.AbstractEventLoop)
    return loop


def all_of(made: RestService, sent: bytes) -> bytes:
    """The whole answer to these bytes, with its head; empty: the connection was closed."""
    with connected(made) as raw:
        raw.sendall(sent)
        found = one_answer(raw)
        if b"close" in sent:
            assert is_closed(raw)
    return found


def one_answer(raw: socket.socket) -> bytes:
    found = b""
    while len(found) < length_of(found):
        part = raw.recv(length_of(found) - len(found))
        if not part:
            break
        found += part
    return found


def length_of(answer: bytes) -> int:
    """Return the length of the whole answer, which is more than has come while its head is
    incomplete."""
    top, end, _ = answer.partition(b"\r\n\r\n")
    if not end:
        return len(answer) + 1
    [length] = re.findall(rb"content-length: (\d+)", top)
    return len(top) + len(end) + int(length)


# -- what is health --


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (ASKED, HEALTH),
        (head("GET /health", "Connection: close", "X-A: b", "Accept: */*"), HEALTH),
        (ASKED + b"GET / HTTP/1.1\r\n", HEALTH),
        (ASKED[:-1], PARTIAL),
        (b"G", PARTIAL),
        (b"\x16\x03\x01", OTHER),
        (b" GET /health HTTP/1.1\r\n", OTHER),
        (b"\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n", OTHER),
        (head("GET /"), OTHER),
        (head("GET /health/"), OTHER),
        (head("GET /health?a=b"), OTHER),
        (head("HEAD /health"), OTHER),
        (b"GET /health HTTP/1.0\r\nHost: x\r\n\r\n", OTHER),
        (b"GET /health HTTP/1.1\r\n\r\n", OTHER),
        (b"GET /health HTTP/1.1\nHost: x\n\n", OTHER),
        (b"GET /health HTTP/1.1\r\nHost: x\n\r\n", OTHER),
        (head("GET /health", "Host: y"), OTHER),
        (head("GET /health", " folded"), OTHER),
        (head("GET /health", "X : a"), OTHER),
        (head("GET /health", "X: \x00"), OTHER),
        (head("GET /health", "Content-Length: 1"), OTHER),
        (head("GET /health", "Transfer-Encoding: chunked"), OTHER),
        (head("GET /health", "Origin: http://a"), OTHER),
        (head("GET /health", "Connection: upgrade"), OTHER),
        (head("GET /health", "Connection: close", "Connection: close"), OTHER),
        (head("GET /health", *["X: a"] * 9), HEALTH),
        (head("GET /health", *["X: a"] * 10), OTHER),
        (head("GET /health", "X: " + "a" * 1_000), OTHER),
        (b"a" * 1_001, OTHER),
    ],
)
def test_what_is_unusual_in_the_least_is_left_to_the_worker(sent: bytes, kind: str) -> None:
    found, length, closes = kind_of(sent, 1_000, 10)
    assert found == kind
    if kind == HEALTH:
        assert length == sent.index(b"\r\n\r\n") + 4
        assert closes is (b"close" in sent)


def test_a_header_of_spaces_costs_in_proportion() -> None:
    """A pattern that tries each way to cut it would take minutes."""
    begun = time.perf_counter()
    assert kind_of(head("GET /health", "X:" + " " * 60_000 + "\x01"), 100_000, 10)[0] == OTHER
    assert time.perf_counter() - begun < 1


def test_dates_are_those_of_http() -> None:
    assert date(1_000_000_000) == "Sun, 09 Sep 2001 01:46:40 GMT"


# -- what is answered --


@pytest.mark.parametrize(
    "rules",
    ["", "set X-Frame-Options: DENY, add A: b, addDate Expires: 86400000, set Content-Type: a/b"],
)
@pytest.mark.parametrize("closes", [False, True])
def test_the_answer_is_that_of_the_worker_itself(rules: str, closes: bool) -> None:
    given = {"response.http.headers.config": rules}
    lines = ["Connection: close"] if closes else []
    with serving(ok, {**LOCAL, **given}) as alone, serving(ok, {**FRONT, **given}) as behind:
        own, other = (all_of(each, head("GET /health", *lines)) for each in (alone, behind))
    assert DATE.sub(b"", own) == DATE.sub(b"", other)
    assert own.startswith(b"HTTP/1.1 200 OK\r\n")
    for each in DATE.findall(other)[1:]:
        told = parsedate_to_datetime(each.decode()).timestamp()
        assert abs(told - time.time() - 86_400) < 60


def test_before_readiness_the_worker_is_starting() -> None:
    made = service(FRONT)
    made.start()
    try:
        told = all_of(made, ASKED)
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: " in told and b'"status":"starting"' in told
    finally:
        made.close()


def test_a_worker_that_has_become_unhealthy_is_not_healthy_for_long() -> None:
    text = ""
    with serving(ok, FRONT, error_text=lambda: text) as made:
        assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
        text = "it gives up"
        wait_until(lambda: b"it gives up" in all_of(made, ASKED), 5)
        text = ""
        assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")


def test_requests_that_follow_each_other_on_one_connection(made: RestService) -> None:
    with connected(made) as raw:
        raw.sendall(ASKED + ASKED + head("GET /") + ASKED)
        answers = [one_answer(raw) for _ in range(4)]
    assert [b'"status":"healthy"' in each for each in answers] == [True, True, False, True]
    assert b'"version":"test"' in answers[2]


def test_a_head_that_comes_byte_by_byte(made: RestService) -> None:
    for sent in (ASKED, head("GET /")):
        with connected(made) as raw:
            for byte in sent:
                raw.sendall(bytes([byte]))
            assert answer_of(raw)[0] == 200


def test_on_the_listeners_of_administrators_there_is_no_health() -> None:
    with serving(ok, {**FRONT, "admin.listeners": "http://127.0.0.1:0"}) as made:
        port = made._server._bound[1][2].getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 10) as raw:
            raw.sendall(ASKED)
            assert answer_of(raw)[0] == 404


# -- a busy worker --


def test_health_is_answered_while_the_loop_is_busy(made: RestService) -> None:
    with busy_loop(made), connected(made) as other:
        other.sendall(head("GET /"))
        for _ in range(5):
            begun = time.monotonic()
            assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
            assert time.monotonic() - begun < 5
        other.settimeout(0.2)
        with pytest.raises(TimeoutError):
            other.recv(1)
    # The other one was only late.
    with connected(made) as other:
        other.sendall(head("GET /"))
        assert answer_of(other)[0] == 200


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], RestService]]:
    """A worker that says nothing more after its first answer."""
    with ExitStack() as stack:

        def make() -> RestService:
            answered = threading.Event()

            def once(call: Call, incoming: IncomingCall) -> Result | None:
                first = not answered.is_set()
                answered.set()
                return ok(call, incoming) if first else None

            def quick(ask: object, hung: object) -> Health:
                return Health(ask, hung, 0.5, 1.0)  # type: ignore[arg-type]

            monkeypatch.setattr("headgate_rest.service.Health", quick)
            monkeypatch.setattr("headgate_rest.service.HEALTH_TIMEOUT_MS", 3_000)
            return stack.enter_context(serving(once, FRONT))

        yield make


def test_a_worker_that_hangs_is_healthy_for_a_while_and_then_not(
    hung: Callable[[], RestService],
) -> None:
    made = hung()
    assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
    time.sleep(0.6)
    begun = time.monotonic()
    told = all_of(made, ASKED)
    assert told.startswith(b"HTTP/1.1 500 ") and b"has not answered within" in told
    assert 0.9 < time.monotonic() - begun < 2.9


# -- connections --


def test_who_says_nothing_or_half_a_request_never_reaches_the_worker() -> None:
    with serving(ok, QUICK) as made, ExitStack() as stack:
        silent = stack.enter_context(connected(made))
        half = stack.enter_context(connected(made))
        half.sendall(ASKED[:-1])
        with busy_loop(made):
            status, body = answer_of(half)
            assert status == 408
            assert "not complete within 400 ms (headgate.rest.read.timeout.ms)" in body["message"]
            assert silent.recv(1) == b""
            assert is_closed(half)


def test_at_the_limit_the_one_that_waits_longest_makes_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for each in logging.getLogger("headgate_rest.front").filters:
        if isinstance(each, SeldomLog):
            each._kinds.clear()
    with serving(ok, {**FRONT, "headgate.rest.connections.max": "10"}) as made:
        with ExitStack() as stack:
            kept = stack.enter_context(connected(made))
            kept.sendall(ASKED)
            assert answer_of(kept)[0] == 200
            silent = [stack.enter_context(connected(made)) for _ in range(60)]
            assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
            assert is_closed(silent[0])
            kept.sendall(ASKED)
            assert answer_of(kept)[0] == 200, "those that never asked go first"
        wait_until(lambda: "its limit" in caplog.text)
    told = [r.getMessage() for r in caplog.records if "connections, its limit" in r.getMessage()]
    assert len(told) == 1
    assert "has 10 connections, its limit (headgate.rest.connections.max" in told[0]


def filled(made: RestService, stack: ExitStack) -> list[socket.socket]:
    """Connections with requests that a busy worker does not take; the last one was refused. The
    channel to it takes some hundred, and as many as may be connected wait for it."""
    all_: list[socket.socket] = []
    for _ in range(2_000):
        raw = stack.enter_context(connected(made))
        all_.append(raw)
        raw.sendall(head("GET /"))
        assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
        raw.setblocking(False)
        if has_answer(raw):
            raw.setblocking(True)
            return all_
    pytest.fail("all of 2,000 were kept")


FEW = {**FRONT, "headgate.rest.connections.max": "20"}


def test_more_requests_than_a_busy_worker_takes_are_refused() -> None:
    with serving(ok, FEW) as made, busy_loop(made), ExitStack() as stack:
        status, body = answer_of(filled(made, stack)[-1])
    assert status == 503
    assert "(headgate.rest.connections.max); ask again" in body["message"]


def test_who_hangs_up_while_the_worker_is_busy_keeps_nobody_else_waiting() -> None:
    with serving(ok, FEW) as made, ExitStack() as stack:
        with busy_loop(made):
            for raw in filled(made, stack)[-25:]:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raw.close()  # by a reset
            assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
        assert all_of(made, head("GET /")).startswith(b"HTTP/1.1 200 ")


def test_what_was_passed_on_does_not_wake_the_process_again(made: RestService) -> None:
    """The worker's copy of a socket would keep it among those that are watched."""
    with connected(made) as raw:
        raw.sendall(head("GET /"))
        assert answer_of(raw)[0] == 200
        before = wakes_of(made)
        for _ in range(50):
            raw.sendall(head("GET /"))
            assert answer_of(raw)[0] == 200
    assert wakes_of(made) - before < 25


def wakes_of(made: RestService) -> int:
    status = Path(f"/proc/{front_of(made)._process.pid}/status").read_text()
    return int(re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[0])


def has_answer(raw: socket.socket) -> bool:
    try:
        return bool(raw.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


# -- the process --


def test_a_process_that_ends_is_started_again(
    made: RestService, caplog: pytest.LogCaptureFixture
) -> None:
    front = front_of(made)
    first = front._process
    assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
    first.kill()
    wait_until(lambda: front._process is not first)
    assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
    assert all_of(made, head("GET /", "Connection: close")).startswith(b"HTTP/1.1 200 ")
    assert "accepts REST connections ended with code -9" in caplog.text


def test_it_ends_with_its_service() -> None:
    with serving(ok, FRONT) as made:
        process = front_of(made)._process
        assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
        process.send_signal(signal.SIGTERM)  # as a supervisor does to all processes of a worker
        assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
    assert process.poll() == -signal.SIGKILL


PROGRAM = """
import sys
from support.rest.world import LOCAL, service
made = service({**LOCAL, "headgate.rest.front.process": "true"})
made.start()
print(made._server._front._process.pid, made.worker_id, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_its_worker_however_that_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=TESTS, stdin=-1, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        pid, address = worker.stdout.readline().split()
        worker.kill()
    wait_until(lambda: not is_running(int(pid)), 10)
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", int(address.rpartition(":")[2])))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("why", ["No such file or directory", "this system has no epoll"])
def test_where_no_process_can_be_started_the_worker_accepts(
    why: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if "epoll" in why:
        monkeypatch.setattr("headgate_rest.front.select", object())
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with serving(ok, FRONT) as made:
        assert all_of(made, ASKED).startswith(b"HTTP/1.1 200 ")
    assert "no process can be started that accepts REST connections" in caplog.text
    assert why in caplog.text
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
