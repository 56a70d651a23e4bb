"""The command asks workers over REST for their views: all at once, each at its own address."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.grpc.worker import grpc_worker
from typer.testing import CliRunner

from headgate_runtime.command.parser import app
from headgate_runtime.remote import looks
from headgate_runtime.remote.over_rest import RestRemote
from headgate_runtime.remote.remote import ConnectorRow, TaskRow, Work

SINK = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
LOGIN = {"HEADGATE_USERNAME": "ops", "HEADGATE_PASSWORD": "hush"}
REFUSED = b"HTTP/1.1 401 no\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"


class Listener:
    """Gives `reply` to each request, whatever it is, and closes the connection. So a reply of HTTP
    says ``Connection: close``: else the next request may go there. None: takes connections and is
    silent."""

    def __init__(self, reply: bytes | None) -> None:
        self._reply = reply
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.requests: list[bytes] = []
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                found, _ = self._socket.accept()
            except OSError:
                return  # closed
            self._held.append(found)
            if self._reply is None:
                self.requests.append(b"")
                continue
            self.requests.append(found.recv(4096))
            found.sendall(self._reply)
            found.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
        for each in (self._socket, *self._held):
            each.close()


Listening = Callable[[bytes | None], Listener]


@pytest.fixture
def listening() -> Iterator[Listening]:
    with ExitStack() as stack:

        def made(reply: bytes | None) -> Listener:
            found = Listener(reply)
            stack.callback(found.close)
            return found

        yield made


def work(where: str, *urls: str, login: bool = False) -> Work:
    remote = RestRemote(where, LOGIN if login else {})
    workers = [{"worker_id": f"w{at}", "url": url} for at, url in enumerate(urls)]
    try:
        return remote.work({"workers": workers}, [])
    finally:
        remote.close()


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
        status.encode(),
        len(body),
        body,
    )


def test_silent_workers_are_waited_for_side_by_side(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "ALL_S", 1.0)
    silent = [f"http://{listening(None).address}" for _ in range(20)]
    java = f"http://{listening(answer(b'{}', '404 no')).address}"
    begun = time.monotonic()
    told = work("http://127.0.0.1:1", *silent, java).unknown
    assert time.monotonic() - begun < 10  # one after another they take 5 s each
    assert [told[f"w{at}"] for at in range(20)] == [looks.LATE] * 20
    assert told["w20"] == looks.TELLS_NOTHING


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"\x15\x03\x01\x00\x02\x02\x46", "does not speak http"),  # a refusal by TLS
        (b"", "does not speak http"),
        (answer(b"[1"), looks.TELLS_NOTHING),
        (answer(b"\xff"), looks.TELLS_NOTHING),
        (answer(b"[]"), looks.TELLS_NOTHING),
        (answer(b"{}", "503 no"), "it answers with status 503"),
        (REFUSED, "it wants a user; ask it itself: headgate status --url http://127.0.0.1:"),
    ],
)
def test_an_answer_that_is_no_view_is_told(listening: Listening, reply: bytes, said: str) -> None:
    told = work("http://127.0.0.1:1", f"http://{listening(reply).address}/").unknown
    assert said in told["w0"]


@pytest.mark.parametrize("url", ["http://[::1", "ftp://w:1", "http://w:x", "http://hüte"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    told = work("http://127.0.0.1:1", url).unknown
    assert told == {"w0": f"{url} is no address of a worker"}


def test_nobody_listens_there() -> None:
    told = work("http://127.0.0.1:1", "http://127.0.0.1:1").unknown
    assert told["w0"].startswith("it does not answer: [Errno 111]")


def test_the_login_is_told_to_the_address_of_the_context_alone(listening: Listening) -> None:
    named, other = listening(REFUSED), listening(REFUSED)
    urls = [f"http://{each.address}" for each in (named, other)]
    told = work(urls[0], *urls, login=True).unknown
    assert told["w0"] == "it does not let this user in"
    assert told["w1"].startswith("it wants a user; ask it itself")
    assert [b"Authorization: Basic" in each.requests[0] for each in (named, other)] == [True, False]


def test_show_asks_no_worker_that_runs_nothing_of_it(
    listening: Listening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = listening(REFUSED)

    class WithAnother(RestRemote):
        def cluster(self) -> Any:
            found = super().cluster()
            more = {**found["workers"][0], "worker_id": "w2", "url": f"http://{other.address}"}
            return {**found, "workers": [*found["workers"], more]}

    with grpc_worker(tmp_path) as served:
        served.client.put_config("orders", SINK)
        served.client.wait("orders")
        where = "headgate_runtime.remote.options.open_remote"
        monkeypatch.setattr(where, lambda url: WithAnother(str(url)))
        run = CliRunner()
        done = run.invoke(app, ["connectors", "show", "orders", "--url", served.rest.url])
        assert done.exit_code == 0 and "not known" not in done.stdout, done.output
        assert other.requests == []
        done = run.invoke(app, ["status", "--url", served.rest.url])
        assert "return on w2 is not known: it wants a user" in done.stdout
        assert len(other.requests) == 1


def test_a_connector_that_is_on_no_worker_yet_may_hang_on_any(listening: Listening) -> None:
    """The connector's worker reports it only once it has started."""
    one, two = listening(REFUSED), listening(REFUSED)
    workers = [{"worker_id": each.address, "url": f"http://{each.address}"} for each in (one, two)]
    remote = RestRemote("http://127.0.0.1:1", {})
    on_one = ConnectorRow("c", "sink", "RUNNING", worker=one.address)
    remote.work({"workers": workers}, [on_one], of_rows=True)
    assert (len(one.requests), len(two.requests)) == (1, 0)
    task_on_two = ConnectorRow(
        "c", "sink", "RUNNING", worker=one.address, tasks=(TaskRow(0, "RUNNING", two.address),)
    )
    remote.work({"workers": workers}, [task_on_two], of_rows=True)
    assert (len(one.requests), len(two.requests)) == (2, 1)
    remote.work({"workers": workers}, [ConnectorRow("c", "sink", "")], of_rows=True)
    assert (len(one.requests), len(two.requests)) == (3, 2)
    remote.close()
