"""A real server on real sockets: readiness, timeouts, signatures, headers, admin listeners, TLS."""

import http.client
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.rest.world import LOCAL, NOBODY, Keys, NoPlugins, service, serving, wait_until

from headgate import wire
from headgate.herder.messages import (
    Call,
    DeleteConnector,
    DescribeConnector,
    DescribeWorker,
    ErrorKind,
    Failure,
    FenceConnector,
    PutTaskConfigs,
    Result,
    SetLoggerLevel,
    Success,
)
from headgate.ports import IncomingCall, TransportError
from headgate.topics.config_events import SessionKeyChanged
from headgate_rest import ListenError, RestService
from headgate_rest.open_calls import OPEN_MAX
from headgate_rest.side_requests import PluginsHangError

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
    result: Result = wire.loads(
        Success | Failure,
        made.call(made.url if url is None else url, wire.dumps(call), 1, timeout_ms),
    )
    return result


@pytest.fixture
def new() -> Iterator[RestService]:
    """A service whose worker has not completed its startup."""
    made = service()
    made.start()
    yield made
    made.close()


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
    """It answers at the deadline; the server waits that bit longer."""

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
    """Without TCP_NODELAY each waits 40 ms for the client's acknowledgement."""
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


# -- calls to other workers --


def test_a_worker_that_cannot_be_reached_was_asked_nothing(new: RestService) -> None:
    for url in (NOBODY, "NOTUSED", "", "http://name.invalid:1/", "http://w:x1/", "http://w\x00:1/"):
        result = called(new, DeleteConnector("a"), url=url)
        assert isinstance(result, Failure), url
        assert result.kind is ErrorKind.NOT_READY
        assert "could not be reached" in result.message


def test_a_connection_that_breaks_before_the_answer_leaves_it_open(new: RestService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            taken, _ = listening.accept()
            taken.recv(1_000)
            taken.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        with pytest.raises(TransportError, match="it may have acted all the same"):
            called(new, DeleteConnector("a"), url=url)
        thread.join()


def test_a_worker_that_came_back_on_its_port_is_asked_anew(new: RestService) -> None:
    """The connection that was kept to the old one is not used."""
    with serving(ok) as first:
        port = first.worker_id.split(":")[1]
        assert called(new, DescribeConnector("a"), url=first.url) == Success(INFO)
    with serving(ok, {"listeners": f"http://127.0.0.1:{port}"}) as second:
        assert called(new, DescribeConnector("a"), url=second.url) == Success(INFO)


def test_workers_are_not_called_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", NOBODY)
    with serving(ok) as made:
        assert called(made, DescribeConnector("a")) == Success(INFO)


def test_many_threads_ask_at_once(new: RestService) -> None:
    def echo(call: Call, incoming: IncomingCall) -> Result:
        assert isinstance(call, DescribeConnector)
        return Success({"name": call.name})

    wrong: list[Result] = []

    def ask_many(number: int) -> None:
        for turn in range(20):
            name = f"{number}-{turn}"
            result = called(new, DescribeConnector(name), url=made.url)
            if result != Success({"name": name}):
                wrong.append(result)

    with serving(echo) as made:
        threads = [threading.Thread(target=ask_many, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


# -- signatures --

KEY = SessionKeyChanged(0, b"k" * 32, "HmacSHA256", 1)


def test_internal_calls_are_signed_and_checked_in_a_group_that_signs() -> None:
    keys = Keys(KEY, sessioned=True)
    with serving(ok, keys=keys) as made:
        for call in (FenceConnector("a"), PutTaskConfigs("a", ({"x": "y"},), "d")):
            assert called(made, call) == Success()
        assert ask(made, "PUT /connectors/a/fence")[0] == 400
        assert ask(made, "POST /connectors/a/tasks", [])[0] == 400
        assert ask(made, "GET /connectors/a")[0] == 200  # what users ask is not signed
        keys.sessioned = False
        assert ask(made, "PUT /connectors/a/fence")[0] == 204


def test_a_worker_with_another_key_is_to_ask_again() -> None:
    other = Keys(SessionKeyChanged(0, b"o" * 32, "HmacSHA256", 1), sessioned=True)
    caller = service(keys=other)
    try:
        with serving(ok, keys=Keys(KEY, sessioned=True)) as made:
            result = called(caller, FenceConnector("a"), url=made.url)
            assert result == Failure(
                ErrorKind.NOT_READY, "Internal request contained invalid signature."
            )
            other.key = None
            result = called(caller, FenceConnector("a"), url=made.url)
            assert isinstance(result, Failure)
            assert result.kind is ErrorKind.NOT_READY
    finally:
        caller.close()


def test_a_key_that_is_not_the_current_one_is_taken_as_long_as_it_is_known() -> None:
    caller = service(keys=Keys(SessionKeyChanged(0, b"o" * 32, "HmacSHA256", 1), sessioned=True))
    keys = Keys(KEY, also=(b"x" * 32, b"o" * 32), sessioned=True)
    try:
        with serving(ok, keys=keys) as made:
            assert called(caller, FenceConnector("a"), url=made.url) == Success()
            keys.also = (b"x" * 32,)
            result = called(caller, FenceConnector("a"), url=made.url)
            assert isinstance(result, Failure)
            assert result.kind is ErrorKind.NOT_READY
    finally:
        caller.close()


# -- what the settings say --


def test_admin_listeners_serve_the_loggers_and_nothing_else() -> None:
    texts = {**LOCAL, "admin.listeners": "http://localhost:0"}
    with serving(ok, texts) as made:
        [admin] = [port for each, port in made._server.ports.items() if each.host == "localhost"]
        assert ask(made, "GET /admin/loggers")[0] == 404
        assert ask(made, "GET /connectors/a")[0] == 200
        base = f"http://localhost:{admin}"
        assert httpx.get(f"{base}/admin/loggers", trust_env=False).json()["root"]["level"] == "INFO"
        assert httpx.get(f"{base}/connectors/a", trust_env=False).status_code == 404


def test_empty_admin_listeners_turn_the_loggers_off() -> None:
    with serving(ok, {**LOCAL, "admin.listeners": ""}) as made:
        assert ask(made, "GET /admin/loggers")[0] == 404


def test_loggers() -> None:
    seen: list[Call] = []

    def take(call: Call, incoming: IncomingCall) -> Result:
        seen.append(call)
        return Success()

    with serving(take) as made:
        root = {"level": "INFO", "last_modified": None}
        assert ask(made, "GET /admin/loggers")[:2] == (200, {"root": root})
        assert ask(made, "GET /admin/loggers/root")[:2] == (200, root)
        assert ask(made, "GET /admin/loggers/no")[1]["message"] == "Logger no not found."
        assert ask(made, "PUT /admin/loggers/x", {"level": "debug"})[:2] == (200, ["x"])
        bogus = ask(made, "PUT /admin/loggers/x?scope=cluster", {"level": "bogus"})
        assert (bogus[0], bogus[1]["message"]) == (404, "invalid log level 'bogus'.")
        assert seen == []
        assert ask(made, "PUT /admin/loggers/x?scope=cluster", {"level": "Debug"})[0] == 204
    assert seen == [SetLoggerLevel("x", "Debug")]


def test_headers_and_origins() -> None:
    texts = {
        **LOCAL,
        "response.http.headers.config": 'set X-A: 1, "add X-B: 2, 3", setDate Expires: 60000',
        "access.control.allow.origin": "https://ui.example.org, http://*.example.com:8080",
        "access.control.allow.methods": "GET,PUT",
    }
    with serving(ok, texts) as made:
        _, _, headers = ask(made, "GET /connectors/a", origin="https://ui.example.org")
        assert (headers["x-a"], headers["x-b"]) == ("1", "2, 3")
        assert headers["expires"].endswith(" GMT")
        assert headers["access-control-allow-origin"] == "https://ui.example.org"
        _, _, headers = ask(made, "GET /connectors/a", origin="http://a.example.com:8080")
        assert headers["access-control-allow-origin"] == "http://a.example.com:8080"
        for origin in ("https://evil.example.org", "https://ui-example.org", "http://example.com"):
            _, _, headers = ask(made, "GET /connectors/a", origin=origin)
            assert "access-control-allow-origin" not in headers
        status, _, headers = ask(
            made,
            "OPTIONS /connectors/a",
            origin="https://ui.example.org",
            access_control_request_method="PUT",
        )
        assert (status, headers["access-control-allow-methods"]) == (200, "GET, PUT")
        assert ask(made, "OPTIONS /connectors/a")[2]["allow"] == "GET,DELETE,OPTIONS"


def test_a_header_that_is_set_replaces_one_that_is_added_does_not() -> None:
    rules = "set Content-Type: application/vnd.x+json, add X-A: 1, add X-A: 2"
    with serving(ok, {**LOCAL, "response.http.headers.config": rules}) as made:
        connection = http.client.HTTPConnection("127.0.0.1", int(made.worker_id.split(":")[1]))
        connection.request("GET", "/nope")
        named = [name.lower() for name, _ in connection.getresponse().getheaders()]
        connection.close()
    assert (named.count("content-type"), named.count("x-a")) == (1, 2)


def test_the_location_is_where_the_client_asked() -> None:
    def created(call: Call, incoming: IncomingCall) -> Result:
        return Success({**INFO, "created": True})

    with serving(created) as made:
        body = {"name": "a b", "config": {}}
        _, _, headers = ask(made, "POST /connectors", body, host="connect.example.org")
    assert headers["location"] == "http://connect.example.org/connectors/a%20b"


def test_a_port_that_is_taken_is_named(new: RestService) -> None:
    port = new.worker_id.split(":")[1]
    with pytest.raises(OSError, match=rf"cannot listen on http://127\.0\.0\.1:{port}: "):
        service({"listeners": f"http://127.0.0.1:{port}"})


@pytest.mark.parametrize("key", ["listeners", "admin.listeners"])
def test_the_key_of_a_door_that_cannot_be_opened_is_told(
    new: RestService, tmp_path: Path, key: str
) -> None:
    free = {"listeners": "http://127.0.0.1:0", "admin.listeners": "http://127.0.0.1:0"}
    none = {
        f"{key}.https.ssl.keystore.type": "PEM",
        f"{key}.https.ssl.keystore.location": str(tmp_path / "none.pem"),
    }
    taken = f"http://127.0.0.1:{new.worker_id.split(':')[1]}"
    for bad in ({key: taken}, {key: "https://127.0.0.1:0", **none}):
        with pytest.raises(ListenError) as caught:
            service({**free, **bad})
        assert caught.value.key == key


def test_all_addresses_are_served_and_one_is_advertised() -> None:
    with serving(ok, {"listeners": "http://:0"}) as made:
        port = int(made.worker_id.rsplit(":", 1)[1])
        for host in ("127.0.0.1", "localhost"):
            answer = httpx.get(f"http://{host}:{port}/connectors/a", trust_env=False)
            assert answer.status_code == 200
        assert ask(made, "GET /connectors/a")[0] == 200


def test_https(tmp_path: Path) -> None:
    """Workers that call each other by TLS, each with a certificate of its own."""
    pem = tmp_path / "worker.pem"
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(tmp_path / "key.pem"), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    pem.write_text((tmp_path / "key.pem").read_text() + certificate.read_text())
    texts = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
        "ssl.client.auth": "required",
    }
    with serving(ok, texts) as made:
        assert made.url.startswith("https://127.0.0.1:")
        assert called(made, DescribeConnector("a")) == Success(INFO)
        with pytest.raises(httpx.HTTPError):  # no TLS
            httpx.get(f"http{made.url.removeprefix('https')}connectors/a", trust_env=False)
        stranger = ssl.create_default_context(cafile=str(certificate))
        with pytest.raises(httpx.HTTPError):  # without a certificate of its own
            httpx.get(f"{made.url}connectors/a", verify=stranger, trust_env=False)


@pytest.mark.parametrize("text", [None, "no key and no certificate"])
def test_a_certificate_that_cannot_be_used_is_told_at_once(
    tmp_path: Path, text: str | None
) -> None:
    pem = tmp_path / "worker.pem"
    if text is not None:
        pem.write_text(text)
    texts = {
        "listeners": "https://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pem),
    }
    with pytest.raises(OSError, match=rf"cannot use {pem} \(ssl.keystore.location"):
        service(texts)
