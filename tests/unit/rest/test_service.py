"""A real server on real sockets: readiness, and answers that come late or never."""

import http.client
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest
from support.rest.asking import ask, called, never, ok
from support.rest.world import NoPlugins, service, serving, wait_until

from headgate.herder.messages import (
    Call,
    DeleteConnector,
    DescribeWorker,
    ErrorKind,
    Failure,
    Result,
    Success,
)
from headgate.ports import IncomingCall
from headgate_rest import RestService
from headgate_rest.open_calls import OPEN_MAX
from headgate_rest.side_requests import PluginsHangError

# -- readiness --


def test_before_readiness_every_request_is_told_so_in_json(new: RestService) -> None:
    for line in ("GET /", "GET /connectors", "DELETE /connectors/a", "GET /connector-plugins"):
        status, body, headers = ask(new, line)
        assert (status, body["error_code"]) == (503, 503)
        assert "still starting up" in body["message"]
        assert headers["retry-after"] == "1"
    status, body, _ = ask(new, "GET /health")
    assert (status, body["status"]) == (503, "starting")
    # A path that nobody has is not one that is there later.
    assert ask(new, "GET /nope")[0] == 404
    # Levels can be set while it starts: that is when one wants to know more.
    assert ask(new, "PUT /admin/loggers/x", {"level": "debug"})[:2] == (200, ["x"])
    # A worker that asks is told to ask again.
    result = called(new, DeleteConnector("a"))
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.NOT_READY


def test_health_is_that_the_herder_answers() -> None:
    with serving(lambda call, _: Success({}) if call == DescribeWorker() else None) as made:
        assert ask(made, "GET /health")[:2] == (
            200,
            {
                "status": "healthy",
                "message": "Worker has completed startup and is ready to handle requests.",
            },
        )


def test_metrics_are_made_of_what_the_worker_says_of_itself() -> None:
    def answer(call: Call, _: IncomingCall) -> Result | None:
        return Success({"rebalances": 3}) if call == DescribeWorker() else None

    def text(view: Mapping[str, Any]) -> bytes:
        return f"rebalances {view['rebalances']}".encode()

    with serving(answer, metrics=text) as made:
        found = httpx.get(f"{made.url}metrics", trust_env=False)
    assert (found.status_code, found.text) == (200, "rebalances 3")
    assert found.headers.get_list("content-type") == ["text/plain; version=0.0.4; charset=utf-8"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("deflate, GZIP;q=0.5", "gzip"),
        ("*", "gzip"),
        ("identity", None),
        ("", None),
        ("gzip;q=0, *", None),
        ("gzip; q=0.000", None),
        ("gzip;q=0.001", "gzip"),
    ],
)
def test_metrics_are_compressed_for_clients_that_take_it(
    accepted: str, encoding: str | None
) -> None:
    with serving(ok, metrics=lambda _: b"text " * 1_000) as made:
        headers = {"Accept-Encoding": accepted}
        found = httpx.get(f"{made.url}metrics", headers=headers, trust_env=False)
    assert found.headers.get("content-encoding") == encoding
    assert found.headers["vary"] == "Accept-Encoding"
    assert (int(found.headers["content-length"]) < 500) is (encoding is not None)
    assert found.text == "text " * 1_000


def test_without_its_library_metrics_say_what_to_install() -> None:
    with serving(ok) as made:
        status, body, _ = ask(made, "GET /metrics")
    assert status == 404 and "headgate[rest]" in body["message"]


def test_unhealthy_is_a_worker_that_gives_up_and_it_says_why() -> None:
    error_text = ["no right"]
    made = service(error_text=lambda: error_text[0])
    try:
        made.start()
        status, body, _ = ask(made, "GET /health")
        assert (status, body["status"]) == (500, "unhealthy")
        assert body["message"].endswith("no right")
        error_text[0] = ""
        assert ask(made, "GET /health")[0] == 503
    finally:
        made.close()


def test_unhealthy_is_a_herder_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate_rest.service.HEALTH_TIMEOUT_MS", 20)
    monkeypatch.setattr("headgate_rest.service.GRACE_MS", 20)
    with serving(never) as made:
        status, body, _ = ask(made, "GET /health")
    assert (status, body["status"]) == (500, "unhealthy")
    assert "unable to handle this request" in body["message"]


def test_no_content_has_no_length_either() -> None:
    """RFC 9110, 8.6; an answer that is empty otherwise has one, of 0."""
    with serving(ok) as made:
        status, _, headers = ask(made, "DELETE /connectors/a")
        assert (status, "content-length" in headers) == (204, False)
        status, _, headers = ask(made, "PUT /connectors/a/pause")
        assert (status, headers["content-length"]) == (202, "0")


def test_root(new: RestService) -> None:
    new.ready()
    expected = {"version": "test", "commit": "c", "kafka_cluster_id": "k"}
    assert ask(new, "GET /")[:2] == (200, expected)


def test_closing_answers_what_is_open() -> None:
    made = service()
    made.start()
    made.ready()
    answers: list[tuple[int, Any, Mapping[str, str]]] = []
    thread = threading.Thread(target=lambda: answers.append(ask(made, "GET /connectors/a")))
    thread.start()
    wait_until(lambda: len(made.incoming()) == 1)
    made.close()
    thread.join()
    [(status, body, _)] = answers
    assert (status, body["message"]) == (503, "The worker is shutting down; ask another one")


def test_what_comes_while_it_closes_is_not_begun(new: RestService) -> None:
    new.ready()
    new._closing = True  # as `close` sets it before it ends the server
    status, body, _ = ask(new, "DELETE /connectors/a")
    assert (status, body["message"]) == (503, "The worker is shutting down; ask another one")
    assert list(new.incoming()) == []


# -- answers, late or never --


def test_a_call_that_is_taken_and_not_answered_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate_rest.service.GRACE_MS", 50)
    with serving(never) as made:
        status, body, _ = ask(made, "GET /connectors/a", headgate_timeout_ms="500")
    assert status == 500
    assert body["message"] == "Request timed out. The worker has not answered within 500 ms."


@pytest.mark.parametrize("text", ["9" * 6_000, "0" * 6_000 + "90000"])
def test_a_timeout_of_thousands_of_digits_is_the_longest(text: str) -> None:
    """Python refuses to read them: it was 500."""
    with serving(ok) as made:
        status, _, _ = ask(made, "GET /connectors/a", headgate_timeout_ms=text)
    assert status == 200


def test_threads_take_short_turns_while_requests_are_served() -> None:
    """A few validations that compute kept /health waiting for seconds: the loop waits for its turn
    after each call of a socket."""
    sys.setswitchinterval(0.005)
    with serving(ok):
        assert sys.getswitchinterval() < 0.001


def test_a_call_that_nobody_takes_times_out(
    new: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_rest.service.GRACE_MS", 50)
    new.ready()
    status, body, _ = ask(new, "GET /connectors/a", headgate_timeout_ms="50")
    assert status == 500
    assert "has not begun with it within 50 ms" in body["message"]


def test_plugins_that_hang_time_out_and_keep_nothing_else_waiting(
    new: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    new.ready()
    gate, begun = threading.Event(), threading.Semaphore(0)

    def hangs(*_given: object) -> Mapping[str, Any]:
        begun.release()
        gate.wait(60)
        return {"error_count": 0}

    monkeypatch.setattr(NoPlugins, "validate", hangs)
    path = "PUT /connector-plugins/x/config/validate"
    said: list[str] = []

    def validate() -> None:
        status, body, _ = ask(new, path, {}, headgate_timeout_ms="1000")
        said.append(f"{status} {body['message']}")

    # More than the default executor of a loop has threads.
    asking = [threading.Thread(target=validate) for _ in range(40)]
    try:
        for thread in asking:
            thread.start()
        for _ in asking:
            assert begun.acquire(timeout=10)
        for line in ("GET /", "GET /admin/loggers", "GET /connector-plugins"):
            assert ask(new, line)[0] == 200
        for thread in asking:
            thread.join()
        late = "500 Request timed out. The plugin has not answered within 1000 ms."
        assert said == [late] * 40
    finally:
        gate.set()
    assert ask(new, path, {})[:2] == (200, {"error_count": 0})


def test_a_call_of_a_plugin_that_has_no_thread_is_not_made_once_nobody_waits(
    new: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    new.ready()
    waiting: list[Callable[[], None]] = []
    calls: list[object] = []
    monkeypatch.setattr(NoPlugins, "submit", lambda _self, _plugin, work: waiting.append(work))
    monkeypatch.setattr(NoPlugins, "validate", lambda *given: calls.append(given))
    path = "PUT /connector-plugins/x/config/validate"
    status, body, _ = ask(new, path, {}, headgate_timeout_ms="100")
    assert status == 500
    assert "The worker has not begun with it within 100 ms" in body["message"]
    waiting[0]()
    assert calls == []


def test_plugins_that_are_asked_nothing_more_are_told_at_once(
    new: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    new.ready()

    def submit(_self: NoPlugins, plugin: str, _work: object) -> None:
        raise PluginsHangError(f"200 calls of {plugin} have not ended")

    monkeypatch.setattr(NoPlugins, "submit", submit)
    given = {"connector.class": "a.x"}
    status, body, _ = ask(new, "PUT /connector-plugins/x/config/validate", given)
    assert (status, body["message"]) == (500, "200 calls of a.x have not ended")
    status, body, _ = ask(new, "GET /connector-plugins/y/config")
    assert (status, body["message"]) == (500, "200 calls of y have not ended")


def test_a_plugin_that_exits_does_not_end_the_server(
    new: RestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exits(*_given: object) -> Mapping[str, Any]:
        raise SystemExit("no licence")

    monkeypatch.setattr(NoPlugins, "validate", exits)
    new.ready()
    status, body, _ = ask(new, "PUT /connector-plugins/x/config/validate", {})
    assert (status, body["message"]) == (500, "RuntimeError: SystemExit: no licence")
    assert ask(new, "GET /")[0] == 200


def test_the_herder_has_the_last_word_on_why_it_is_late() -> None:
    """The herder answers at the deadline, and the server waits a little longer."""

    def late(call: Call, incoming: IncomingCall) -> Result:
        time.sleep(incoming.deadline_ms_left / 1000 + 0.02)
        return Failure(ErrorKind.TIMEOUT, "Request timed out. The worker is currently restarting.")

    with serving(late) as made:
        status, body, _ = ask(made, "GET /connectors/a", headgate_timeout_ms="500")
    assert (status, body["message"]) == (
        500,
        "Request timed out. The worker is currently restarting.",
    )


def test_a_client_that_has_gone_is_not_served(new: RestService) -> None:
    new.ready()
    with socket.create_connection(("127.0.0.1", int(new.worker_id.split(":")[1]))) as raw:
        raw.sendall(b"DELETE /connectors/a HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: len(new._open._calls) == 1)
    wait_until(lambda: not new._open._calls)
    assert list(new.incoming()) == []


def test_more_calls_than_can_be_kept_are_refused(new: RestService) -> None:
    new.ready()
    new._open._calls = {f"x{n}": None for n in range(OPEN_MAX)}  # type: ignore[misc]
    status, body, headers = ask(new, "GET /connectors/a")
    new._open._calls = {}
    assert status == 503
    assert "1000 requests wait for this worker already" in body["message"]
    assert headers["retry-after"] == "1"


def test_a_thousand_reads_cost_little_each() -> None:
    """Without TCP_NODELAY, each answer waits 40 ms for the client's acknowledgement."""
    with serving(ok) as made:
        connection = http.client.HTTPConnection("127.0.0.1", int(made.worker_id.split(":")[1]))
        times: list[float] = []
        for _ in range(1_000):
            begun = time.perf_counter()
            connection.request("GET", "/connectors/a")
            assert connection.getresponse().read()
            times.append(time.perf_counter() - begun)
        connection.close()
    assert sorted(times)[500] < 0.005
