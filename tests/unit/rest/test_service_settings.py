"""The REST settings of a worker: admin listeners, headers, addresses, TLS."""

import http.client
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from support.rest.asking import INFO, ask, called, ok
from support.rest.world import LOCAL, service, serving

from headgate.herder.messages import (
    Call,
    DescribeConnector,
    Result,
    SetLoggerLevel,
    Success,
)
from headgate.ports import IncomingCall
from headgate_rest import ListenError, RestService

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


@pytest.mark.parametrize("front", ["false", "true"])
def test_https(front: str, tmp_path: Path) -> None:
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
        "headgate.rest.front.process": front,
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
